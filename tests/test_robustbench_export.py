"""Our networks and evaluations go back to RobustBench in its form."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from helpers import images
from robustbench_helpers import agree, saved
from scaleproof import suite
from scaleproof.cli.main import app
from scaleproof.export import Entry, export_robustbench, finished, model_info, their_architecture, their_eps
from scaleproof.models import Classifier, build, load_model
from scaleproof.models.naming import their_state
from scaleproof.schemas import schema
from their_networks import TheirPreAct, TheirResNet, shaken


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


def test_what_was_taken_for_granted_of_a_file_belongs_to_its_number(tmp_path: Path) -> None:
    spec = saved(tmp_path, their_state(load_model("demo").classifier))
    words = ["--limit", 2, "--attacks", "fgsm", "--device", "cpu", "--no-checks", "--out", tmp_path / "x"]
    scaleproof("evaluate", spec, *words)
    findings = json.loads((tmp_path / "x" / "evaluation.json").read_text())["findings"]
    notes = [one["meaning"] for one in findings if (one["name"], one["severity"]) == ("model", "note")]
    assert notes == list(load_model(spec).notes)
    assert any("its forward pass is taken for granted" in note for note in notes)


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


def test_failed_checks_of_the_run_go_to_the_footnote(measured: Path) -> None:
    run, evaluation = documents(measured)
    checks = [one | {"passed": True} for one in evaluation["checks"]]
    checks[0] |= {"label": "Gradients are finite", "passed": False, "meaning": "They are not."}
    evaluation |= {"reliable": False, "checks": checks}
    info, warnings = model_info(run, evaluation, Entry(model="M", footnote="Mine."))
    assert info["unreliable"] is True
    assert info["footnote"] == "Mine. check failed, Gradients are finite: They are not"
    assert any("exported as unreliable: check failed, Gradients are finite" in one for one in warnings)
    del evaluation["checks"]
    info, _ = model_info(run, evaluation, Entry(model="M"))
    assert (info["unreliable"], info["footnote"]) == (True, "the run calls its own number unreliable")


def test_a_run_that_nobody_examined_is_not_exported_in_silence(measured: Path) -> None:
    run, evaluation = documents(measured)
    del evaluation["checks"], evaluation["reliable"]
    info, warnings = model_info(run, evaluation, Entry(model="M"))
    assert info["unreliable"] is False, "nothing was found against it, for nobody looked"
    assert info["footnote"].startswith("the model was not examined")
    assert any("not examined" in one and "without --no-checks" in one for one in warnings)


@pytest.mark.parametrize(
    ("data", "norm", "eps", "told"),
    [
        ("cifar10", "linf", 4 / 255, "cifar10 are for Linf 8/255 and L2 0.5, this run had Linf 4/255"),
        ("cifar10", "l2", 1.0, "cifar10 are for Linf 8/255 and L2 0.5, this run had L2 1"),
        ("cifar100", "l2", 0.5, "cifar100 are for Linf 8/255, this run had L2 0.5"),
        ("imagenet", "linf", 8 / 255, "imagenet are for Linf 4/255, this run had Linf 8/255"),
        (
            "svhn",
            "linf",
            8 / 255,
            "RobustBench has cifar10, cifar100, imagenet, this model was measured on svhn",
        ),
        ("cifar10", "l2", 0.5, None),
        ("cifar10", "linf", 0.0313725, None),
        ("cifar10", "linf", 0.031, "this run had Linf 0.031"),
        ("imagenet", "linf", 4 / 255, None),
    ],
)
def test_a_threat_of_none_of_their_boards_is_told(
    measured: Path, data: str, norm: str, eps: float, told: str | None
) -> None:
    run, evaluation = documents(measured)
    evaluation["data"]["name"], evaluation["threat"] = data, {"norm": norm, "eps": eps}
    _, warnings = model_info(run, evaluation, Entry(model="M"))
    found = [one for one in warnings if one.startswith(("RobustBench has", "RobustBench's boards"))]
    assert len(found) == (told is not None)
    assert all(str(told) in one for one in found)


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
