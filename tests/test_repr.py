"""What a notebook shows of results and data is a line, never their arrays."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from helpers import LinearNet, decisions, images
from scaleproof import Dataset, Threat, analyse, evaluate, load, load_model, scale_sweep
from scaleproof.analysis import Plan, SurfacePlan
from scaleproof.attacks import PGD
from scaleproof.models import Classifier

ATTACK = PGD(threat=Threat(eps=0.1), steps=2)


def shown() -> Iterator[tuple[str, object]]:
    """Results of every kind that holds arrays, by name."""
    net = Classifier(LinearNet(4).eval())
    x = images(12)
    y = decisions(net, x)
    yield "a model", load_model("demo")
    yield "an output", net.outputs(x)
    evaluation = evaluate(net, (x, y), [ATTACK], keep_examples=True)
    yield "an evaluation", evaluation
    yield "an attack's result", evaluation.attacks[0]
    yield "examples", evaluation.examples
    yield "a sweep", scale_sweep(net, (x, y), [ATTACK], alphas=(1.0,))
    analysis = analyse(net, (x, y), Plan(surfaces=SurfacePlan(images=2, points=3, steps=1)))
    yield "an analysis", analysis
    yield from analysis.parts.items()


@pytest.fixture(scope="module")
def lines() -> dict[str, str]:
    return {name: repr(value) for name, value in shown()}


def test_results_are_shown_in_a_line(lines: dict[str, str]) -> None:
    assert {"surfaces", "cosines", "classes"} <= set(lines)
    assert {name: text for name, text in lines.items() if "\n" in text} == {}
    assert {name: text for name, text in lines.items() if "array(" in text or "tensor(" in text} == {}


def test_what_the_lines_say(lines: dict[str, str]) -> None:
    assert lines["a model"].startswith("LoadedModel(spec='demo', architecture='resnet-small', sha256='")
    assert lines["an output"] == "Output(logits (12, 4), features (12, 48), weight (4, 48))"
    assert lines["an attack's result"].startswith("AttackResult(pgd: broke ")
    assert " of 12 images, restarts: 1, " in lines["an attack's result"]
    assert lines["examples"].endswith(" of shape (3, 4, 4), by pgd)")
    assert lines["an analysis"].startswith("Analysis(surfaces, weights, cosines, ")


def test_data_are_shown_in_a_line() -> None:
    assert repr(load("sample")) == "Dataset(sample/test: 1000 images of 3 x 32 x 32, 10 classes)"
    grey = Dataset(
        name="mine",
        split="train",
        images=np.zeros((2, 1, 4, 4), np.uint8),
        labels=np.array([0, 1]),
        classes=("a", "b"),
        source="a test",
    )
    assert str(grey) == "Dataset(mine/train: 2 images of 1 x 4 x 4, 2 classes)"


def test_an_output_without_features_says_what_it_has() -> None:
    from scaleproof import Output

    assert repr(Output(logits=torch.zeros(3, 4))) == "Output(logits (3, 4))"
