"""Cosines, accuracy against eps and steps, and classes: closed forms and hand counts."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from analysis_helpers import EPS, THREAT, conv_subject, linear_case
from helpers import decisions, worst_margin
from scaleproof.analysis import (
    ClassPlan,
    CosinePlan,
    EpsPlan,
    StepPlan,
    Subject,
    accuracy_by_eps,
    accuracy_by_steps,
    class_robustness,
    classes_of_verdicts,
    confusion,
    cosine_histograms,
    histogram,
)
from scaleproof.analysis.curves import lines_of, spoken
from scaleproof.evaluation import AttackResult, Evaluation
from scaleproof.threat import Threat

# Cosines.


class Direct(nn.Module):
    """Two pixels are the features; class weights lie on the axes, and class 0 has a bias that decides."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[2.0, 0.0], [0.0, 0.5]]))
            self.head.bias.copy_(torch.tensor([0.1, 0.0]))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return logits


def test_cosines_of_a_hand_made_head() -> None:
    x = torch.tensor([[0.3, 0.4], [0.6, 0.8], [0.8, 0.6], [0.9, 0.0]]).reshape(4, 1, 1, 2)
    y = torch.tensor([0, 0, 1, 0])
    subject = Subject.of(Direct().eval(), (x, y), threat=THREAT)
    found = cosine_histograms(subject, CosinePlan(bins=8, steps=10))
    np.testing.assert_allclose(found.values["clean_true"], [0.6, 0.6, 0.6, 1.0], atol=1e-6)
    np.testing.assert_allclose(found.values["clean_other"], [0.8, 0.8, 0.8, 0.0], atol=1e-6)
    assert found.counts["clean_true"] == [0, 0, 0, 0, 0, 0, 3, 1]
    assert found.counts["clean_other"] == [0, 0, 0, 0, 1, 0, 0, 3]
    assert found.all_classes["clean"] == [0, 0, 0, 0, 1, 0, 3, 4], (
        "of two classes, all are the true and the other"
    )
    assert found.mismatch["clean"] == 0.5, "logits say 0 for all; the cosine says 1 for the first two"
    corner = torch.tensor([0.3 - EPS, 0.4 + EPS])
    assert found.values["adversarial_true"][0] == pytest.approx(float(corner[0] / corner.norm()), rel=1e-4)
    assert found.as_json()["count"] == 4


def test_a_histogram_keeps_what_rounding_pushes_out() -> None:
    values = np.array([-1.0000001, -0.5, 0.0, 0.49, 1.0000001], dtype=np.float64)
    assert histogram(values, [-1.0, -0.5, 0.0, 0.5, 1.0]) == [1, 1, 2, 1]


# Curves.


def test_accuracy_against_eps_on_a_linear_model_is_its_closed_form() -> None:
    net, x, y = linear_case()
    y[:2] = 1 - y[:2]  # two wrong from the start
    curve = accuracy_by_eps(Subject.of(net, (x, y), threat=THREAT), EpsPlan(steps=20))
    assert curve.clean.correct == 22
    right = decisions(net, x) == y
    seen = set()
    for line in curve.lines[:1]:
        for point in line.points:
            expected = right & (worst_margin(net, x, y, Threat(eps=point.at)) > 0)
            assert point.robust.correct == point.within.correct == int(expected.sum())
            seen.add(point.robust.correct)
    assert curve.unbounded == curve.lines[0].points[-1].at == 1.0
    assert curve.lines[0].points[-1].robust.correct == 0
    assert len(seen) > 3, "the curve has a slope"


def test_the_budgets_end_where_everything_is_within_reach() -> None:
    radii = EpsPlan(factors=(1.0, 4.0, 1000.0)).radii(Threat(norm="l2", eps=0.5), 48)
    assert radii == [0.5, 2.0, pytest.approx(48**0.5)]
    x, y = torch.zeros(1, 3, 4, 4), torch.ones(1, 3, 4, 4)
    assert float(Threat(norm="l2", eps=radii[-1]).size(y - x)) <= radii[-1]


def evaluation_of(broken: list[bool]) -> Evaluation:
    """An evaluation by one attack whose verdicts are given."""
    result = AttackResult(
        name="a",
        label="A",
        settings={},
        scale_invariant=False,
        needs_features=False,
        verdicts={"broken": np.array([broken])},
        forwards=0,
        backwards=0,
        seconds=0.0,
    )
    labels = np.zeros(len(broken), dtype=np.int64)
    return Evaluation(
        mode="independent",
        labels=labels,
        clean_prediction=labels,
        cosine_disagrees=None,
        attacks=(result,),
        seconds=0.0,
        speed={},
    )


def test_what_is_broken_within_less_counts_within_more() -> None:
    found = [
        evaluation_of(broken) for broken in ([True, False, False], [False, True, False], [True, False, False])
    ]
    (line,) = lines_of([1.0, 2.0, 3.0], found)
    assert [point.robust.correct for point in line.points] == [2, 2, 2]
    assert [point.within.correct for point in line.points] == [2, 1, 1]


def test_steps_and_restarts() -> None:
    _, subject = conv_subject()
    curve = accuracy_by_steps(subject, StepPlan(steps=(8, 1, 1), restarts=3, restart_steps=1))
    assert [line.attack for line in curve.steps] == ["pgd", "si-pgd"]
    for line in curve.steps:
        assert [point.at for point in line.points] == [1, 8]
        assert line.points[1].robust.correct < line.points[0].robust.correct
    for one, many in zip(curve.steps, curve.restarts, strict=True):
        left = [point.robust.correct for point in many.points]
        assert left == sorted(left, reverse=True)
        assert left[0] == one.points[0].robust.correct, "the first restart is the attack itself"


# Classes.


def test_confusion_against_a_hand_count() -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "labels": np.array([0, 0, 1, 1, 2, 2]),
        "clean_prediction": np.array([0, 0, 1, 2, 2, 2]),
        "broken__a": np.array(
            [[True, False, False, False, False, False], [True, True, False, False, False, False]]
        ),
        "prediction__a": np.array([[1, 0, 1, -1, 2, 2], [2, 2, 1, -1, 2, 2]]),
        "broken__b": np.array([[True, True, True, False, False, False]]),
        "prediction__b": np.array([[2, 2, 0, -1, 2, 2]]),
    }
    found = classes_of_verdicts(arrays, ["a", "b"], 3)
    assert found.confusion.tolist() == [[0, 1, 1], [1, 0, 1], [0, 0, 2]]
    assert found.clean_correct.tolist() == [2, 1, 2]
    assert (found.robust(2).correct, found.robust(2).count, found.clean(1).correct) == (2, 2, 1)
    assert confusion(np.array([1, 1]), np.array([1, 0]), 2).tolist() == [[0, 0], [1, 1]]


def test_classes_agree_with_the_evaluation() -> None:
    net, subject = conv_subject(eps=0.003)
    found = class_robustness(subject, ClassPlan(steps=4))
    assert found.confusion.shape == (10, 10)
    assert found.confusion.sum() == 12
    assert found.clean_correct.sum() == 12
    assert 0 < np.trace(found.confusion) < 12
    labels = decisions(net, subject.images.select(np.arange(12))[0])
    assert found.confusion.sum(axis=1).tolist() == np.bincount(labels, minlength=10).tolist()


def test_progress_names_a_budget_in_four_digits() -> None:
    names = [f"eps-{16 / 255!r}", "steps-100", "restarts"]
    assert [spoken(name) for name in names] == ["eps 0.06275", "steps 100", "restarts"]
