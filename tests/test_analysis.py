"""Analysis: surfaces, cosines and curves against closed forms; models left as found; work that survives a stop."""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import LinearNet, SmallConvNet, decisions, images, worst_margin
from scaleproof import analyse, load, load_model
from scaleproof.analysis import (
    PARTS,
    ClassPlan,
    CosinePlan,
    EpsPlan,
    Plan,
    StepPlan,
    Subject,
    SurfacePlan,
    WeightPlan,
    accuracy_by_eps,
    accuracy_by_steps,
    class_robustness,
    classes_of_verdicts,
    confusion,
    cosine_histograms,
    example_surfaces,
    filter_normalised_direction,
    histogram,
    moved,
    weight_surface,
)
from scaleproof.analysis.curves import lines_of
from scaleproof.analysis.kept import Course
from scaleproof.evaluation import AttackResult, Evaluation
from scaleproof.models import Classifier
from scaleproof.progress import Progress
from scaleproof.rng import Rng
from scaleproof.store import FolderStore, MemoryStore
from scaleproof.threat import Threat

EPS = 0.03
THREAT = Threat(eps=EPS)
SMALL = Plan(
    surfaces=SurfacePlan(images=2, points=3),
    weights=WeightPlan(images=6, points=3, steps=2),
    cosines=CosinePlan(steps=2),
    eps=EpsPlan(factors=(0.5, 1.0), steps=2),
    steps=StepPlan(steps=(1, 2), restarts=2, restart_steps=2),
    classes=ClassPlan(steps=2),
)


@pytest.fixture
def linear() -> tuple[LinearNet, Tensor, Tensor]:
    net = LinearNet().eval()
    x = images(24)
    return net, x, decisions(net, x)


def conv_subject(eps: float = EPS) -> tuple[SmallConvNet, Subject]:
    net = SmallConvNet().eval()
    x = images(12, (3, 8, 8))
    return net, Subject.of(net, (x, decisions(net, x)), threat=Threat(eps=eps))


# Example loss surfaces.


def test_a_surface_of_a_linear_model_is_its_closed_form(linear: tuple[LinearNet, Tensor, Tensor]) -> None:
    net, x, y = linear
    plan = SurfacePlan(images=3, span=2.0, points=9)
    surfaces = example_surfaces(Subject.of(net, (x, y), threat=THREAT, seed=5), plan)
    weight, bias = net.head.weight.double().detach(), net.head.bias.double().detach()
    at = EPS * torch.tensor(plan.coordinates, dtype=torch.float64)
    for number in range(3):
        gap = weight[1 - y[number]] - weight[y[number]]
        flat = x[number].flatten().double()
        noise = Rng(5, "surface-random", 0).uniform(torch.tensor([number]), tuple(x.shape[1:])).flatten()
        random = torch.where(noise < 0.5, -1.0, 1.0).double()
        start = gap @ flat + bias[1 - y[number]] - bias[y[number]]
        margin = start + at[:, None] * gap.abs().sum() + at[None, :] * (gap @ random)
        np.testing.assert_allclose(surfaces.margin[number], margin, rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(
            surfaces.losses["cross_entropy"][number], F.softplus(margin), rtol=1e-4, atol=2e-5
        )
        along = flat + at[:, None] * gap.sign()  # (P, D), the random direction at 0
        cosines = F.normalize(along, dim=1) @ F.normalize(weight, dim=1).T
        by_hand = F.cross_entropy(15 * cosines, y[number].expand(len(at)), reduction="none")
        np.testing.assert_allclose(surfaces.losses["cosine"][number, :, 4], by_hand, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(
        surfaces.mean("cross_entropy"), surfaces.losses["cross_entropy"].mean(axis=0), rtol=1e-5
    )


def test_a_surface_stays_within_the_pixel_range() -> None:
    net = LinearNet().eval()
    x = torch.ones(1, 3, 4, 4)
    subject = Subject.of(net, (x, decisions(net, x)), threat=THREAT)
    surface = example_surfaces(subject, SurfacePlan(images=1, points=3)).margin[0]
    gap = (net.head.weight[1 - decisions(net, x)[0]] - net.head.weight[decisions(net, x)[0]]).detach()
    assert surface[2, 1] - surface[1, 1] == pytest.approx(float(2 * EPS * gap[gap < 0].abs().sum()), rel=1e-3)
    assert surface[0, 1] == surface[1, 1], "white pixels cannot get whiter"


def test_the_middle_of_a_surface_is_the_plain_loss() -> None:
    net, subject = conv_subject()
    surfaces = example_surfaces(subject, SurfacePlan(images=4, points=5))
    x, y = subject.images.select(surfaces.rows)
    with torch.no_grad():
        plain = torch.stack([F.cross_entropy(net(a[None]), b[None]) for a, b in zip(x, y, strict=True)])
    np.testing.assert_allclose(surfaces.losses["cross_entropy"][:, 2, 2], plain, rtol=1e-5, atol=1e-6)


def test_surfaces_prefer_images_that_are_classified_right() -> None:
    net = SmallConvNet().eval()
    x = images(6, (3, 8, 8))
    y = decisions(net, x)
    y[0] = (y[0] + 1) % 10
    subject = Subject.of(net, (x, y), threat=THREAT)
    assert example_surfaces(subject, SurfacePlan(images=2, points=3)).rows.tolist() == [1, 2]
    wrong = Subject.of(net, (x, (decisions(net, x) + 1) % 10), threat=THREAT)
    assert example_surfaces(wrong, SurfacePlan(images=2, points=3)).rows.tolist() == [0, 1]


def test_directions_under_l2_have_length_one() -> None:
    net = LinearNet().eval()
    x = images(1, low=0.4, high=0.6)
    subject = Subject.of(net, (x, decisions(net, x)), threat=Threat(norm="l2", eps=0.1))
    margin = example_surfaces(subject, SurfacePlan(images=1, points=3, span=1.0)).margin[0]
    gap = (net.head.weight[0] - net.head.weight[1]).detach()
    assert 0.95 < (margin[2, 1] - margin[1, 1]) / (0.1 * float(gap.norm())) < 1.0001


# Weight loss surface.


class Normed(nn.Module):
    """A network with every kind of parameter that must stay, and one that must move."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.layer = nn.LayerNorm((4, 6, 6))
        self.head = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(self.norm(self.conv(x))).mean((2, 3)))
        return logits


def test_directions_have_the_lengths_of_the_filters() -> None:
    net = Normed()
    direction = filter_normalised_direction(net, seed=3)
    assert {id(parameter) for parameter, _ in direction} == {id(net.conv.weight), id(net.head.weight)}
    for parameter, step in direction:
        torch.testing.assert_close(step.flatten(1).norm(dim=1), parameter.detach().flatten(1).norm(dim=1))
        assert not torch.allclose(step, parameter)
    again, other = (
        filter_normalised_direction(net, seed=3),
        filter_normalised_direction(net, seed=3, number=1),
    )
    assert all(torch.equal(a[1], b[1]) for a, b in zip(direction, again, strict=True))
    assert not any(torch.equal(a[1], b[1]) for a, b in zip(direction, other, strict=True))


def test_tied_weights_move_once() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight = net[0].weight
    assert len(filter_normalised_direction(net, seed=0)) == 1


def test_a_model_is_left_bit_for_bit_also_on_an_exception() -> None:
    net = SmallConvNet().eval()
    before = copy.deepcopy(net.state_dict())
    seen = []

    def stop() -> None:
        with moved(filter_normalised_direction(net, seed=0), 0.5):
            seen.append(torch.equal(net.head.weight, before["head.weight"]))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stop()
    assert seen == [False]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_model_that_fails_on_the_way_is_left_as_found() -> None:
    net, subject = conv_subject()
    before, calls = copy.deepcopy(net.state_dict()), []

    def fail(*_: object) -> None:
        calls.append(torch.equal(net.head.weight, before["head.weight"]))
        if len(calls) == 3:
            raise RuntimeError("the network fails")

    with net.head.register_forward_hook(fail), pytest.raises(RuntimeError, match="the network fails"):
        weight_surface(subject, WeightPlan(images=4, points=3, steps=2))
    assert calls[-1] is False, "it failed while the weights were moved"
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_the_weight_surface_of_a_linear_model_is_its_closed_form(
    linear: tuple[LinearNet, Tensor, Tensor],
) -> None:
    net, x, y = linear
    plan = WeightPlan(images=16, reach=0.5, points=5, directions=2, steps=20)
    surface = weight_surface(Subject.of(net, (x, y), threat=THREAT, seed=2), plan)
    for number in range(2):
        (_, step), *_ = filter_normalised_direction(net, 2, number)
        for place, amount in enumerate(plan.amounts):
            there = copy.deepcopy(net)
            with torch.no_grad():
                there.head.weight += amount * step
                clean = F.cross_entropy(there(x[:16]).double(), y[:16])
            worst = F.softplus(-worst_margin(there, x[:16], y[:16], THREAT)).mean()
            assert surface.loss["clean"][number, place] == pytest.approx(float(clean), rel=1e-4)
            assert surface.loss["adversarial"][number, place] == pytest.approx(float(worst), rel=1e-3)


def test_the_weight_surface_at_zero_is_the_plain_loss() -> None:
    net, subject = conv_subject()
    before = copy.deepcopy(net.state_dict())
    surface = weight_surface(subject, WeightPlan(images=12, points=3, steps=5))
    x, y = subject.images.select(np.arange(12))
    with torch.no_grad():
        assert surface.loss["clean"][0, 1] == pytest.approx(float(F.cross_entropy(net(x), y)), rel=1e-5)
    assert surface.accuracy["clean"][0, 1] == 1
    assert (surface.loss["adversarial"] > surface.loss["clean"]).all()
    assert surface.loss["clean"][0, 0] != surface.loss["clean"][0, 1]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_folded_weights_move_too() -> None:
    """The fast gradients work on copies of the weights, which must be made anew at every point."""
    subject = Subject.of(load_model("demo").classifier, load("sample").first(4), threat=THREAT)
    surface = weight_surface(subject, WeightPlan(images=4, points=3, steps=2))
    assert len(set(surface.loss["adversarial"][0])) == 3
    assert (surface.loss["adversarial"] > surface.loss["clean"]).all()


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


def test_accuracy_against_eps_on_a_linear_model_is_its_closed_form(
    linear: tuple[LinearNet, Tensor, Tensor],
) -> None:
    net, x, y = linear
    y = y.clone()
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


# The whole.


class Headless(nn.Module):
    """Logits that come from no linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).mean((2, 3))


def test_without_a_head_the_cosine_parts_are_left_out_with_a_note() -> None:
    torch.manual_seed(0)
    net, x = Headless().eval(), images(6, (3, 8, 8))
    done = analyse(net, (x, decisions(net, x)), SMALL, threat=THREAT)
    assert set(done.parts) == set(PARTS) - {"cosines"}
    assert done.notes[0].startswith("Cosines are left out: the head must be a linear layer")
    assert list(done.parts["surfaces"].losses) == ["cross_entropy"]  # type: ignore[union-attr]
    assert [line.attack for line in done.parts["eps"].lines] == ["pgd"]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="cosines need the head"):
        cosine_histograms(Subject.of(net, (x, decisions(net, x)), threat=THREAT))


def arrays_of(
    plan: Plan, store: Any = None, seed: int = 0, **settings: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    net = SmallConvNet().eval()
    x = images(12, (3, 8, 8))
    done = analyse(net, (x, decisions(net, x)), plan, threat=THREAT, store=store, seed=seed, **settings)
    return done.arrays(), without_seconds(done.as_json())


def without_seconds(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: without_seconds(one) for name, one in value.items() if name != "seconds"}
    return [without_seconds(one) for one in value] if isinstance(value, list | tuple) else value


@dataclass
class StopsAfter:
    """A folder store that stops the run after so many pieces of work."""

    inner: Any
    left: list[int] = field(default_factory=lambda: [0])

    def load(self, key: str) -> Any:
        return self.inner.load(key)

    def save(self, key: str, arrays: Any) -> None:
        if self.left[0] == 0:
            raise KeyboardInterrupt
        self.left[0] -= 1
        self.inner.save(key, arrays)

    def part(self, name: str) -> "StopsAfter":
        return StopsAfter(self.inner.part(name), self.left)


def test_an_analysis_that_was_stopped_goes_on_bit_for_bit(tmp_path: Path) -> None:
    wanted = arrays_of(SMALL)
    for pieces in (1, 4, 8, 14):
        with pytest.raises(KeyboardInterrupt):
            arrays_of(SMALL, StopsAfter(FolderStore(tmp_path), [pieces]))
    saved = sorted(path for path in tmp_path.rglob("*.npz"))
    found = arrays_of(SMALL, FolderStore(tmp_path))
    assert len(saved) >= 14
    assert found[1] == wanted[1]
    assert all(np.array_equal(found[0][name], wanted[0][name]) for name in wanted[0])


def test_a_store_never_answers_for_another_analysis(tmp_path: Path) -> None:
    plan = Plan(parts=("surfaces",), surfaces=SMALL.surfaces)
    arrays_of(plan, FolderStore(tmp_path))
    with pytest.raises(ValueError, match="pieces of another analysis"):
        arrays_of(plan, FolderStore(tmp_path), seed=1)


def test_the_seed_and_not_the_batch_size_decides() -> None:
    plan = Plan(parts=("surfaces", "weights", "cosines"), surfaces=SMALL.surfaces, weights=SMALL.weights)
    one, same, other = arrays_of(plan), arrays_of(plan, batch_size=5), arrays_of(plan, seed=1)
    for name in one[0]:
        np.testing.assert_allclose(one[0][name], same[0][name], rtol=2e-3, atol=2e-4)
    assert any(not np.allclose(one[0][name], other[0][name], atol=1e-3) for name in one[0])


def test_progress_only_grows_and_ends_at_the_end() -> None:
    seen: list[Progress] = []
    net, x = SmallConvNet().eval(), images(6, (3, 8, 8))
    analyse(net, (x, decisions(net, x)), SMALL, threat=THREAT, progress=seen.append)
    assert [one.done for one in seen] == sorted(one.done for one in seen)
    assert seen[-1].done == seen[-1].total
    told: list[Progress] = []
    Course(told.append, {"a": 10, "b": 30}).piece("b")(
        Progress(done=1, total=2, label="x", unbroken=1, count=1)
    )
    assert (told[0].done, told[0].total, told[0].label) == (25, 40, "b, x")


def test_known_classes_are_taken_as_given() -> None:
    net, subject = conv_subject()
    given = class_robustness(subject, ClassPlan(steps=1))
    x, y = subject.images.select(np.arange(12))
    done = analyse(net, (x, y), Plan(parts=("classes",)), threat=THREAT, classes=given)
    assert done.parts["classes"] is given


def test_hooks_modes_and_gradients_are_left_alone() -> None:
    net = SmallConvNet().eval()
    net.body[0].weight.requires_grad_(False)
    x = images(6, (3, 8, 8))
    analyse(net, (x, decisions(net, x)), SMALL, threat=THREAT, store=MemoryStore())
    assert not net.training
    assert [parameter.requires_grad for parameter in net.parameters()].count(False) == 1
    assert not any(module._forward_hooks for module in net.modules())
    assert all(parameter.grad is None for parameter in net.parameters())


MISTAKES: dict[str, tuple[Any, str]] = {
    "parts": (lambda: Plan(parts=("surface",)), "parts must be some of surfaces, weights"),
    "no parts": (lambda: Plan(parts=()), "got none"),
    "even": (lambda: SurfacePlan(points=4), "points must be odd and >= 3"),
    "span": (lambda: SurfacePlan(span=0.0), "must be finite and > 0, got 0"),
    "images": (lambda: WeightPlan(images=0), "images must be >= 1, got 0"),
    "factors": (lambda: EpsPlan(factors=(-1.0,)), "factors must be finite and > 0"),
    "steps": (lambda: StepPlan(steps=()), "at least one number"),
    "eps": (
        lambda: Subject.of(LinearNet().eval(), (images(1), torch.tensor([0])), threat=Threat(eps=0.0)),
        "above 0",
    ),
    "mode": (lambda: Subject.of(SmallConvNet(), (images(1), torch.tensor([0]))), "train mode"),
    "none": (
        lambda: Subject.of(LinearNet().eval(), (images(0), torch.zeros(0).long())),
        "at least one image",
    ),
    "weights": (lambda: filter_normalised_direction(nn.BatchNorm2d(3), 0), "the model has none"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_explained(name: str) -> None:
    make, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_train_mode_can_be_allowed_and_buffers_stay() -> None:
    torch.manual_seed(0)
    net = Normed().train()
    x = images(6, (3, 8, 8))
    before = copy.deepcopy(net.state_dict())
    done = analyse(Classifier(net), (x, torch.arange(6)), SMALL, threat=THREAT, allow_train_mode=True)
    assert any("train mode" in note for note in done.notes)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_the_page_on_analysis_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[1] / "docs" / "analysis.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile("\n".join(blocks), "analysis.md", "exec"), {"__name__": "page"})
    assert "clean_true" in capsys.readouterr().out
