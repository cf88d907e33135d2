"""What people give to the calls of the package: taken where its meaning is clear, refused in words where it is not."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import scaleproof
from helpers import LinearNet, decisions, images
from scaleproof import Classifier, Threat, evaluate, examine, load_model, scale_sweep, suite
from scaleproof.analysis.subject import Subject
from scaleproof.attacks import PGD, fgsm, preset
from scaleproof.attacks.suites import as_attacks
from scaleproof.contract import understood
from scaleproof.gate import Rules, gate
from scaleproof.images import as_images
from scaleproof.models.specs import LoadedModel

NET = LinearNet(4).eval()
X = images(12)
Y = decisions(NET, X)
ATTACK = PGD(threat=Threat(eps=0.02), steps=2)
EXPECTED = evaluate(NET, (X, Y), [ATTACK]).arrays()
BYTES = (255 * X).round().to(torch.uint8)


def same(found: dict[str, Any]) -> bool:
    return all(np.array_equal(found[name], EXPECTED[name], equal_nan=True) for name in EXPECTED)


PAIRS: dict[str, Any] = {
    "arrays": (X.numpy(), Y.numpy()),
    "a list": [X, Y],
    "float64": (X.double().numpy(), Y.numpy()),
    "a tensor of float64": (X.double(), Y),
    "a loader of float64": DataLoader(TensorDataset(X.double(), Y), batch_size=5),
    "narrow labels": (X.numpy(), Y.numpy().astype(np.uint8)),
    "labels in a list": (X, Y.tolist()),
    "a loader": DataLoader(TensorDataset(X, Y), batch_size=5),
    "read only": (np.broadcast_to(X.numpy(), X.shape), Y.numpy()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_images_in_every_usual_form_give_the_same_verdicts(name: str) -> None:
    assert same(evaluate(NET, PAIRS[name], [ATTACK]).arrays())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_images_are_those_in_float32(dtype: torch.dtype) -> None:
    found, expected = (evaluate(NET, (x, Y), [ATTACK]).arrays() for x in (X.to(dtype), X.to(dtype).float()))
    assert np.array_equal(found["digest__pgd"], expected["digest__pgd"])
    assert [one.passed for one in examine(NET, (X.to(dtype), Y))]


def test_bytes_in_an_array_are_those_of_a_dataset() -> None:
    found = evaluate(NET, (BYTES.numpy(), Y.numpy()), [ATTACK]).arrays()
    floats = evaluate(NET, (BYTES / 255, Y), [ATTACK]).arrays()
    assert np.array_equal(found["digest__pgd"], floats["digest__pgd"])


def test_labels_may_lie_on_another_device_than_images() -> None:
    given = as_images((torch.empty(12, 3, 4, 4, device="meta"), list(range(12))))
    x, y = given.select(np.array([3, 1], np.int64))
    assert (x.device.type, x.shape) == ("meta", (2, 3, 4, 4))
    assert y.tolist() == [3, 1]


def test_a_loader_draws_no_global_random_numbers() -> None:
    before = torch.get_rng_state()
    evaluate(NET, DataLoader(TensorDataset(X, Y), batch_size=5, shuffle=True), [ATTACK])
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (X, r"got a Tensor alone: give its labels too, as \(images, labels\)"),
        (X.numpy(), "got a ndarray alone: give its labels too"),
        ((X, Y, Y), r"a pair \(images, labels\) .* got 3 things in a tuple"),
        ("sample", r"got the text 'sample': load it first, with load\('sample'\)"),
        (TensorDataset(X, Y), r"got a TensorDataset: .* give DataLoader\(dataset, batch_size=256\)"),
        (3, "images must be a pair .* got a int"),
        (([1, 2], Y), "images must be a tensor or a numpy array, got list"),
        ((X.numpy().astype(np.int64), Y), r"bytes or floats in \[0, 1\], got an array of int64"),
        ((X.numpy(), np.eye(4)[Y]), r"labels must be whole numbers of shape \(N,\), got float64 \(12, 4\)"),
        (DataLoader(TensorDataset(X), 5), r"batches \(images, labels\) of two tensors, got Tensor: pick them"),
        (DataLoader(TensorDataset(X, Y, Y), 5), "two tensors, got Tensor, Tensor, Tensor"),
        (DataLoader(X, 5), "two tensors, got Tensor"),
        (DataLoader(TensorDataset(X, Y), 50, drop_last=True), "at least one batch, got none"),
        (DataLoader(TensorDataset(X, Y), batch_size=None), r"labels \(N,\), got .* labels \(\): .* give batch_size"),
        (DataLoader([(X[0], 0), (X[0, :, 1:], 1)]), r"of one size .*, got images .* and .*: resize them"),
        ((X, np.int64(3)), r"labels must be whole numbers of shape \(N,\), got torch.int64 \(\)"),
        ((torch.tensor(0.5), Y), r"images must be rows of pixels, got the shape \(\)"),
    ],
)  # fmt: skip
def test_images_that_cannot_be_used_are_refused_in_words(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(NET, given, [ATTACK])
    with pytest.raises(ValueError, match=message):
        examine(NET, given)


def test_the_readme_s_way_to_examine_works() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    (call,) = re.findall(r"in Python: `(scaleproof\.examine\(.*?\))`", readme)
    found = eval(call, {"scaleproof": scaleproof, "model": NET, "images": X, "labels": Y})
    assert "constant" in {check.name for check in found}


def test_attacks_alone_or_from_a_generator() -> None:
    assert same(evaluate(NET, (X, Y), ATTACK).arrays())
    assert same(evaluate(NET, (X, Y), (attack for attack in [ATTACK])).arrays())  # type: ignore[arg-type]
    assert evaluate(NET, (X, Y), "pgd").attacks[0].name == "pgd"
    assert gate(NET, (X, Y), ATTACK, Rules(min_robust=0)).attacks == ("PGD",)
    assert [row.attack for row in scale_sweep(NET, (X, Y), ATTACK, alphas=(1.0, 2.0)).rows] == ["pgd", "pgd"]


def test_attacks_are_those_of_the_paper_where_none_are_given() -> None:
    names = [attack.name for attack in suite("paper")]
    assert [one.name for one in evaluate(NET, (X, Y)).attacks] == names
    assert [row.attack for row in scale_sweep(NET, (X, Y), alphas=(1.0,)).rows] == names


@pytest.mark.parametrize("given", [["pgd", "si-pgd"], ("PGD", "si-pgd"), ["pgd,si-pgd"]])
def test_names_in_a_list_are_those_in_one_text(given: Any) -> None:
    assert as_attacks(given) == suite("pgd,si-pgd")
    assert preset("standard") == getattr(as_attacks(["standard"]), "preset", None)
    with pytest.raises(ValueError, match="no attack or suite is called 'nothing'"):
        as_attacks([*given, "nothing"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([PGD], r"attacks must be made before they are given, got the class PGD: give PGD\(...\)"),
        (PGD, r"got the class PGD: give PGD\(...\)"),
        ([ATTACK, "pgd"], r"got the name 'pgd': give suite\('pgd'\), or all names in one text"),
        ([8 / 255], r"attacks must be such as PGD\(...\), .* got float"),
        (None, r"attacks must be such as PGD\(...\), .* got NoneType"),
        (fgsm, r"a function is given as Foreign\(fgsm, name="),
        ([], "attack names must be unique and at least one, got none"),
    ],
)  # fmt: skip
def test_attacks_that_cannot_be_used_are_refused_in_words(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(NET, (X, Y), given)
    with pytest.raises(ValueError, match=message):
        gate(NET, (X, Y), given, Rules(min_robust=0))


def test_what_was_loaded_is_a_model() -> None:
    loaded = load_model("demo")
    assert isinstance(loaded, LoadedModel)
    x, y = torch.rand(4, 3, 32, 32), torch.arange(4)
    data = (x, decisions(loaded.classifier, x))
    found, expected = (evaluate(one, data, [ATTACK]).arrays() for one in (loaded, loaded.classifier))
    assert np.array_equal(found["digest__pgd"], expected["digest__pgd"])
    assert Classifier(loaded, logit_scale=2.0).net is loaded.classifier.net
    assert Subject.of(loaded, (x, y)).classifier is loaded.classifier


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("runs/at", r"got the text 'runs/at': load it first, with load_model\('runs/at'\)"),
        (Path("runs/at"), r"load it first, with load_model\('runs/at'\)"),
        (LinearNet, r"got the class LinearNet: give an instance, LinearNet\(...\)"),
        (NET.state_dict(), "a model must be a torch.nn.Module or what load_model.* gives, got OrderedDict"),
        (lambda x: x, "got function: make it the forward of a Module"),
    ],
)  # fmt: skip
def test_models_that_cannot_be_used_are_refused_in_words(given: Any, message: str) -> None:
    calls = (
        lambda: evaluate(given, (X, Y), [ATTACK]),
        lambda: examine(given, (X, Y)),
        lambda: Classifier(given),
    )
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_in_other_formats_than_float32_are_refused_with_what_to_do(dtype: torch.dtype) -> None:
    net = LinearNet(4).to(dtype).eval()
    for call in (evaluate, examine, Subject.of):
        with pytest.raises(
            ValueError, match=rf"are {dtype}\): convert it with \.float\(\): verdicts are float32"
        ):
            call(net, (X, Y))  # type: ignore[operator]


class Normalising(nn.Module):
    """A network that normalises by itself, as the trace of it does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((1, 3, 1, 1), 0.5))
        self.net = LinearNet(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.net(x - self.mean)
        return logits


def test_images_with_channels_last_are_refused_in_one_voice(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        ValueError, match=r"does not take these images, torch.float32 of shape \(8, 4, 4, 6\)"
    ):
        evaluate(Normalising().eval(), (torch.rand(12, 4, 4, 6), Y), [ATTACK])
    assert capfd.readouterr() == ("", "")


def test_too_little_memory_is_no_fault_of_the_images() -> None:
    with pytest.raises(torch.OutOfMemoryError), understood(X, NET):
        raise torch.OutOfMemoryError("out of memory")


def test_a_network_with_a_part_called_classifier_is_itself_the_model() -> None:
    net = nn.Sequential()
    net.add_module("classifier", LinearNet(4))
    assert Classifier(net.eval()).net is net


def test_attacks_within_several_threats_are_refused() -> None:
    mixed = [PGD(name="a", threat=Threat(eps=12 / 255)), PGD(name="b", threat=Threat(eps=2 / 255))]
    message = (
        "must share one threat.*a linf eps 0.047058823529411764, b linf eps 0.00784313725490196: evaluate"
    )
    with pytest.raises(ValueError, match=message):
        evaluate(NET, (X, Y), mixed)
    with pytest.raises(ValueError, match=r"must share one threat.*pgd linf eps .*, si-pgd l2 eps 0.5"):
        evaluate(NET, (X, Y), [PGD(), *suite("si-pgd", Threat(norm="l2", eps=0.5))])


def test_names_of_attacks_are_taken_whatever_their_case() -> None:
    assert suite("PGD, APGD-CE,Si-Pgd") == suite("pgd,apgd-ce,si-pgd")
    assert suite("Standard") == suite("standard")
    assert suite("Standard").preset == preset("STANDARD") == preset("standard")
    with pytest.raises(ValueError, match=r"no attack or suite is called 'SIPGD'\. Did you mean 'si-pgd'"):
        suite("SIPGD")
    with pytest.raises(ValueError, match="no module 'PGD'"):
        suite("PGD:fgsm")


def test_the_floor_of_a_benchmark_is_the_suite_as_it_is_meant_to_be_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    floor = importlib.import_module("parts_of_si").floor
    assert [floor(name).preset for name in ("standard", "rand")] == [preset("standard"), preset("rand")]
