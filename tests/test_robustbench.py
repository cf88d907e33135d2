"""RobustBench's checkpoints load without RobustBench."""

import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robustbench_helpers import agree, saved
from scaleproof.models import Classifier, load_model
from scaleproof.models.naming import their_state
from scaleproof.models.robustbench import VARIABLE, load_robustbench
from scaleproof.models.swish import SwishNet
from scaleproof.oracle import Oracle
from scaleproof.speed import Speed
from their_networks import Normalised, TheirPreAct, TheirResNet, TheirSwish, TheirWide, shaken

STATED = {  # the usual figures, as they were published with these networks
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}

STYLES = {
    "wrn-10-2": lambda: TheirWide(10, 2),
    "wrn-16-1": lambda: TheirWide(16, 1, classes=100, extra=True),
    "resnet18": lambda: TheirResNet(),
    "resnet-small": lambda: TheirResNet(width=16, head="fc", shortcut="downsample"),
    "resnet50-8": lambda: TheirResNet((3, 4, 6, 3), 8, wide=True),
    "preact-resnet18": lambda: TheirPreAct(),
    "preact-resnet18-8": lambda: TheirPreAct(8, classes=7),
}
SWISH: dict[str, tuple[Any, str]] = {
    "wrn-10-2-swish": (lambda: TheirSwish(2, (1, 1, 1), wide=True), "cifar10"),
    "wrn-16-1-swish": (lambda: TheirSwish(1, (2, 2, 2), classes=100, wide=True), "cifar100"),
    "preact-resnet10-swish": (lambda: TheirSwish(1, (1, 1, 1, 1), wide=False), "cifar10"),
    "preact-resnet18-swish": (lambda: TheirSwish(1, (2, 2, 2, 2), wide=False), "cifar10"),
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


@pytest.mark.parametrize("style", STYLES)
def test_styles(style: str, tmp_path: Path) -> None:
    theirs = shaken(STYLES[style]())
    loaded = agree(saved(tmp_path, theirs.state_dict()), theirs)
    assert loaded.architecture == style
    assert any("names no normalisation" in note for note in loaded.notes)


@pytest.mark.parametrize("style", SWISH)
def test_swish_and_the_padding_of_tensorflow(style: str, tmp_path: Path) -> None:
    """Recognised by their names, normalised by their number of classes, and traced for speed."""
    make, dataset = SWISH[style]
    theirs = shaken(make())
    loaded = load_model(saved(tmp_path, theirs.state_dict()))
    assert loaded.architecture == style
    mean, std = STATED[dataset]
    x = torch.rand(5, 3, 32, 32)
    with torch.no_grad():
        wanted = theirs((x - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None])
        torch.testing.assert_close(loaded.classifier(x), wanted, rtol=1e-4, atol=1e-5)
    said = (
        "normalised as RobustBench's code does"
        if dataset == "cifar10"
        else "taken to be normalised as for cifar100"
    )
    assert any(said in note for note in loaded.notes), "all of them are saved under cifar10"
    again = their_state(loaded.classifier)
    assert sorted(again) == sorted(theirs.state_dict()), "without a normalisation, which that code has itself"
    assert all(torch.equal(again[name], value) for name, value in theirs.state_dict().items())
    assert Oracle(loaded.classifier, speed=Speed(precision="float32"), images=x).choice.folded


# classes, what it does to images first, whether its file says so
NORMALISED: dict[str, tuple[int, Any, bool]] = {
    "as stated": (10, STATED["cifar10"], False),
    "not at all": (10, (None, None), True),
    "in another way": (10, STATED["cifar100"], True),
    "not at all, with other classes": (7, (None, None), False),
    "with other classes": (7, STATED["cifar10"], True),
}


@pytest.mark.parametrize("how", NORMALISED)
def test_a_swish_network_of_ours_is_normalised_as_before_when_it_comes_back(how: str, tmp_path: Path) -> None:
    classes, (mean, std), told = NORMALISED[how]
    net = shaken(SwishNet((16, 32), (1, 1), stem=16, wide=True, classes=classes))
    state = their_state(Classifier(net, mean=mean, std=std))
    assert ("mu" in state, "sigma" in state) == (told, told)
    agree(saved(tmp_path, state), Classifier(net, mean=mean, std=std))


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
    assert any("as RobustBench's code does for this model" in note for note in loaded.notes)
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


def swish(start: str = "", other: str = "") -> dict[str, Tensor]:
    """The weights of a wide one of two stages, where names may have another part."""
    state = TheirSwish(1, (1, 1), wide=True).state_dict()
    return {name.replace(start, other): value for name, value in state.items()}


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
    "stages apart": (
        swish("layer.1.", "layer.2."),
        "none of our architectures: between its blocks 0.0, 2.0 some",
    ),
    "blocks apart": (
        swish("layer.1.block.0.", "layer.1.block.1."),
        "between its blocks 0.0, 1.1 some are missing",
    ),
    "one norm twice": (
        swish() | {"bn.weight": torch.ones(32)},
        r"under one name, .* 2 .batchnorm.weight, bn.weight",
    ),
    "two heads": (
        TheirWide(10, 1).state_dict() | {"linear.bias": torch.ones(10)},
        r"all but one of: 2 .fc.bias, linear.bias",
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
