"""Loss surfaces around an image and around the weights: closed forms, and models left as found."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from analysis_helpers import EPS, THREAT, Normed, conv_subject, linear_case
from helpers import LinearNet, SmallConvNet, decisions, images, worst_margin
from scaleproof import load, load_model
from scaleproof.analysis import (
    Subject,
    SurfacePlan,
    WeightPlan,
    example_surfaces,
    filter_normalised_direction,
    moved,
    weight_surface,
)
from scaleproof.rng import Rng
from scaleproof.threat import Threat

# Example loss surfaces.


def test_a_surface_of_a_linear_model_is_its_closed_form() -> None:
    net, x, y = linear_case()
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


def test_the_weight_surface_of_a_linear_model_is_its_closed_form() -> None:
    net, x, y = linear_case()
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
