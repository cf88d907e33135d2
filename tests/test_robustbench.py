"""RobustBench's checkpoints load without RobustBench, and ours go back in its form."""

import json
import os
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from helpers import images
from scaleproof import suite
from scaleproof.cli.main import app
from scaleproof.export import Entry, export_robustbench, finished, model_info, their_architecture, their_eps
from scaleproof.models import Classifier, build, load_model
from scaleproof.models.naming import their_state
from scaleproof.models.robustbench import VARIABLE, load_robustbench
from scaleproof.schemas import schema
from their_networks import Normalised, TheirPreAct, TheirResNet, TheirWide, shaken

STYLES = {
    "wrn-10-2": lambda: TheirWide(10, 2),
    "wrn-16-1": lambda: TheirWide(16, 1, classes=100, extra=True),
    "resnet18": lambda: TheirResNet(),
    "resnet-small": lambda: TheirResNet(width=16, head="fc", shortcut="downsample"),
    "resnet50-8": lambda: TheirResNet((3, 4, 6, 3), 8, wide=True),
    "preact-resnet18": lambda: TheirPreAct(),
    "preact-resnet18-8": lambda: TheirPreAct(8, classes=7),
}
WRAPS = {
    "plain": lambda state: state,
    "nested": lambda state: {
        "state_dict": state,
        "epoch": 3,
        "optimizer": {"state": {0: {"x": torch.ones(2)}}},
    },
    "parallel": lambda state: {"net": {f"module.{name}": value for name, value in state.items()}},
    "twice": lambda state: {"model": {f"module.model.{name}": value for name, value in state.items()}},
    "ordered": lambda state: OrderedDict(state),
}


def saved(folder: Path, content: Any, name: str = "Me2026First", dataset: str = "cifar10") -> str:
    path = folder / dataset / "Linf" / f"{name}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)
    return f"robustbench:{name}@{folder}"


def agree(spec: str, theirs: nn.Module) -> Any:
    loaded, x = load_model(spec), images(5, (3, 32, 32), low=0, high=1)
    with torch.no_grad():
        assert torch.allclose(loaded.classifier(x), theirs(x), atol=1e-5), "the same logits"
    assert theirs(x).std() > 1e-2
    return loaded


@pytest.mark.parametrize("style", STYLES)
def test_styles(style: str, tmp_path: Path) -> None:
    theirs = shaken(STYLES[style]())
    loaded = agree(saved(tmp_path, theirs.state_dict()), theirs)
    assert loaded.architecture == style
    assert any("names no normalisation" in note for note in loaded.notes)


@pytest.mark.long
@pytest.mark.parametrize("shape", [(28, 10), (34, 10)])
def test_full_size(shape: tuple[int, int], tmp_path: Path) -> None:
    theirs = shaken(TheirWide(*shape, extra=True))
    assert agree(saved(tmp_path, theirs.state_dict()), theirs).architecture == "wrn-{}-{}".format(*shape)


@pytest.mark.parametrize("wrap", WRAPS)
def test_wrappings(wrap: str, tmp_path: Path) -> None:
    theirs = shaken(TheirWide(10, 1))
    agree(saved(tmp_path, WRAPS[wrap](theirs.state_dict())), theirs)


@pytest.mark.parametrize("names", [("mu", "sigma"), ("mean", "std")])
@pytest.mark.parametrize("outside", [True, False])
def test_normalisation_in_the_file(names: tuple[str, str], outside: bool, tmp_path: Path) -> None:
    theirs = shaken(Normalised(TheirWide(10, 1), *names))
    state = theirs.state_dict()
    if not outside:  # as in a network that normalises itself
        state = {name.removeprefix("model."): value for name, value in state.items()}
    agree(saved(tmp_path, state), theirs)


def test_a_normalising_layer_of_a_sequence(tmp_path: Path) -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.full((3,), 0.4))
            self.register_buffer("std", torch.full((3,), 0.3))

        def forward(self, x: Tensor) -> Tensor:
            return (x - 0.4) / 0.3

    theirs = shaken(nn.Sequential(Layer(), TheirWide(10, 1)))
    agree(saved(tmp_path, theirs.state_dict()), theirs)


def test_normalisation_that_only_robustbench_knows(tmp_path: Path) -> None:
    inner = shaken(TheirWide(10, 1))
    spec = saved(tmp_path, inner.state_dict(), "Hendrycks2019Using")
    loaded = agree(spec, nn.Sequential(Twice(), inner))
    assert any("as RobustBench's code does for this name" in note for note in loaded.notes)
    with pytest.raises(ValueError, match="standardises every image by itself"):
        load_model(saved(tmp_path, inner.state_dict(), "Ding2020MMA"))


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x - 1


def test_old_files_do_not_count_batches(tmp_path: Path) -> None:
    theirs = shaken(TheirResNet(width=8))
    state = {name: value for name, value in theirs.state_dict().items() if "num_batches" not in name}
    agree(saved(tmp_path, state), theirs)


def test_where_files_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = shaken(TheirWide(10, 1))
    saved(tmp_path / "models", theirs.state_dict())
    monkeypatch.chdir(tmp_path)
    agree("robustbench:Me2026First", theirs)
    agree("robustbench:cifar10/Linf/Me2026First", theirs)
    agree("robustbench:models/cifar10/Linf/Me2026First.pt", theirs)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "elsewhere"))
    with pytest.raises(ValueError, match=f"there is none at .*elsewhere.*in {VARIABLE}"):
        load_model("robustbench:Me2026First")
    with pytest.raises(ValueError, match="did you mean 'Me2026First'"):
        load_model("robustbench:cifar10/Linf/Me2026Frist@models")
    saved(tmp_path / "models", theirs.state_dict(), dataset="cifar100")
    with pytest.raises(
        ValueError, match="there are 2: say which of cifar10/Linf/Me2026First, cifar100/Linf/Me"
    ):
        load_model("robustbench:Me2026First@models")
    with pytest.raises(ValueError, match="must be robustbench:NAME"):
        load_model("robustbench:a/b@models")


class Evil:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    state = dict(TheirWide(10, 1).state_dict()) | {"x": Evil(tmp_path / "owned")}
    with pytest.raises(ValueError, match="asks to run code, which is refused"):
        load_model(saved(tmp_path, state))
    assert not (tmp_path / "owned").exists()


WRONG: dict[str, tuple[Any, str]] = {
    "no state": ({"epoch": 3}, "must hold a state dict, alone or under state_dict.* it holds 1 .epoch"),
    "list": ([1, 2], "it holds list"),
    "unlike": (
        {"init_conv.weight": torch.ones(3), "logits.bias": torch.ones(2)},
        "is none of our architectures",
    ),
    "no last norm": (TheirPreAct(8, norm=False).state_dict(), "PreActResNet with BatchNorm before its head"),
    "odd": ({**TheirWide(10, 1).state_dict(), "alpha": torch.ones(1)}, "unexpected: 1 .alpha"),
    "headless": (
        {name: value for name, value in TheirWide(10, 1).state_dict().items() if name != "fc.bias"},
        "missing: 1 .head.bias",
    ),
    "half a layer": ({**TheirWide(10, 1).state_dict(), "mu": torch.ones(3)}, "one mean and one deviation"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_files_that_do_not_fit(kind: str, tmp_path: Path) -> None:
    content, message = WRONG[kind]
    with pytest.raises(ValueError, match=message):
        load_model(saved(tmp_path, content))
    (tmp_path / "broken.pt").write_bytes(b"PK not a file")
    with pytest.raises(ValueError, match="damaged"):
        load_robustbench(str(tmp_path / "broken.pt"))


@pytest.mark.parametrize("name", ["resnet-small", "preact-resnet18", "resnet18", "resnet50"])
def test_our_networks_go_there_and_back(name: str, tmp_path: Path) -> None:
    net = shaken(build(name))
    ours = Classifier(net, mean=[0.4, 0.5, 0.6], std=[0.2, 0.2, 0.3])
    loaded = agree(saved(tmp_path, their_state(ours)), ours)
    assert loaded.architecture == name
    theirs: nn.Module = {
        "resnet-small": TheirResNet(width=16),
        "preact-resnet18": TheirPreAct(),
        "resnet18": TheirResNet(),
        "resnet50": TheirResNet((3, 4, 6, 3), wide=True),
    }[name]
    plain = Classifier(net)
    theirs.load_state_dict(their_state(plain))
    x = images(3, (3, 32, 32))
    with torch.no_grad():
        assert torch.allclose(theirs.eval()(x), plain(x), atol=1e-5), "plain torch loads it by their names"


def scaleproof(*words: object) -> Any:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run of one of the suite's attacks on some images."""
    folder = tmp_path_factory.mktemp("export")
    words = [
        "--limit",
        6,
        "--attacks",
        "apgd-ce",
        "--mode",
        "cascade",
        "--device",
        "cpu",
        "--out",
        folder / "x",
    ]
    scaleproof("evaluate", "demo", *words)
    return folder / "x"


def test_export_and_back(measured: Path, tmp_path: Path) -> None:
    words = ["--name", "Me2026First", "--title", "First", "--authors", "Me", "--out", tmp_path]
    done = scaleproof("export", "robustbench", measured, *words)
    info = json.loads((tmp_path / "model_info" / "sample" / "Linf" / "Me2026First.json").read_text())
    assert info == {
        "name": "First",
        "authors": "Me",
        "number_forward_passes": 1,
        "dataset": "sample",
        "architecture": "resnet-small",
        "eps": "8/255",
        "unreliable": False,
    }
    for left_out in ("clean_acc is left out", "autoattack_acc is left out: it takes all test images"):
        assert left_out in done.output
    assert "link, additional_data, venue" in done.output
    ours = load_model("demo").classifier
    agree(f"robustbench:Me2026First@{tmp_path / 'models'}", ours)
    state = torch.load(tmp_path / "models" / "sample" / "Linf" / "Me2026First.pt", weights_only=True)
    assert "layer1.0.conv1.weight" in state
    with pytest.raises(ValueError, match="nothing is overwritten"):
        export_robustbench(measured, Entry(model="Me2026First"), tmp_path)


def documents(measured: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run's documents as they would be after AutoAttack on all test images, but for some changes."""
    run, evaluation = finished(measured)
    attacks = [attack.describe() for attack in suite(changes.get("attacks", "standard"))]
    run["settings"] |= {
        "attacks": json.loads(json.dumps(attacks)),
        "precision": changes.get("precision", "tf32"),
    }
    evaluation["data"] |= {"name": "cifar10", "count": changes.get("count", 10_000), "split": "test"}
    evaluation["worst_case"]["accuracy"], evaluation["clean"]["accuracy"] = 0.4567, 0.8
    evaluation["findings"] = changes.get("findings", [])
    return run, evaluation


def test_all_of_autoattack_gives_all_fields(measured: Path) -> None:
    entry = Entry(
        model="M", title="T", authors="A", link="L", venue="V", reported="46.00", additional_data=False
    )
    info, warnings = model_info(*documents(measured), entry)
    assert warnings == ()
    assert info["autoattack_acc"] == "45.67"
    assert info["clean_acc"] == "80.00"
    assert info["reported"] == "46.00"
    assert info["additional_data"] is False
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(schema("robustbench-info")).validate(info)


LEFT_OUT: dict[str, dict[str, Any]] = {
    "it takes the suite standard as it is, this run had apgd-ce": {"attacks": "apgd-ce"},
    "it takes gradients in tf32 or float32, this run had auto": {"precision": "auto"},
    "it takes all 10000 test images, this run had 1000": {"count": 1000},
}


@pytest.mark.parametrize("reason", LEFT_OUT)
def test_another_evaluation_gives_no_autoattack_accuracy(measured: Path, reason: str) -> None:
    info, warnings = model_info(*documents(measured, **LEFT_OUT[reason]), Entry(model="M"))
    assert "autoattack_acc" not in info
    assert any(f"autoattack_acc is left out: {reason}" in warning for warning in warnings)


def test_a_doubtful_evaluation_says_so(measured: Path) -> None:
    doubt = {"name": "gradient-zero", "severity": "warning", "meaning": "no gradient"}
    info, _ = model_info(*documents(measured, findings=[doubt]), Entry(model="M", footnote="Mine"))
    assert info["unreliable"] is True
    assert info["footnote"] == "Mine. no gradient"


def test_words_of_theirs() -> None:
    names = {"wrn-34-10": "WideResNet-34-10", "resnet18": "ResNet-18", "preact-resnet18": "PreActResNet-18"}
    assert {ours: their_architecture(ours) for ours in names} == names
    assert their_architecture("VisionTransformer") == "VisionTransformer"
    assert their_eps({"norm": "linf", "eps": 8 / 255}) == "8/255"
    assert their_eps({"norm": "linf", "eps": 0.031}) == "0.031"
    assert their_eps({"norm": "l2", "eps": 0.5}) == "0.5"


def test_export_mistakes(measured: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must hold run.json and evaluation.json"):
        export_robustbench(tmp_path, Entry(model="M"), tmp_path)
    with pytest.raises(ValueError, match="a model's name must be a word"):
        Entry(model="a/b")
    changed = tmp_path / "changed"
    shutil.copytree(measured, changed)
    document = json.loads((changed / "evaluation.json").read_text())
    document["model"]["weights_sha256"] = "0" * 64
    (changed / "evaluation.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match="they have changed since"):
        export_robustbench(changed, Entry(model="M"), tmp_path)
