"""Square, RayS and FAB in detail: budgets and signs of channels, where a coarse search ends, no numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import LinearNet, decisions, images
from scaleproof import Rng, Threat, attack_batch, evaluate, suite
from scaleproof.attacks import FAB, SPSA, RayS, Square
from scaleproof.attacks.rays import RaySState, advanced
from scaleproof.attacks.square import SquareState
from scaleproof.attacks.windows import bump, window_mask
from scaleproof.losses import Objective
from scaleproof.models import Classifier
from scaleproof.oracle import Gradient, Oracle
from scaleproof.speed import PLAIN

L2 = Threat(norm="l2", eps=0.4)


def square_state(attack: Square, channels: int, count: int = 6) -> SquareState:
    shape = (channels, 8, 8)
    net, x = LinearNet(shape=shape).eval(), images(count, shape)
    oracle = Oracle(Classifier(net), speed=PLAIN)
    state = attack.init(oracle, x, decisions(net, x), torch.arange(count), Rng(0, "square"))
    for _ in range(3):
        state = attack.step(oracle, state)
    return state


def test_each_channel_of_a_window_has_its_own_budget() -> None:
    """Under l2 a channel may spend what it spent in both windows, and its share of what is left; by loops."""
    attack = Square(threat=L2, steps=10)
    state = square_state(attack, 3)
    words, side = state.rng.words(state.index, 8, draw=7), 3
    found = attack.reshaped(state, side, words)
    first, second = (window_mask(state.clean, words[:, k], words[:, k + 1], side) for k in (0, 2))
    shape = bump(state.clean, words[:, 0], words[:, 1], side, (words[:, 4] & 1).bool())
    compared = 0
    for row in range(len(state.index)):
        delta = (state.current - state.clean)[row].double()
        spare = max(0.0, L2.eps**2 - float(delta.square().sum()))
        moved = delta.clone()
        for channel in range(3):
            inside = torch.maximum(first[row, 0], second[row, 0]).bool()
            spent = float(delta[channel][inside].square().sum())
            window = first[row, 0].bool()
            norm = float(delta[channel][window].square().sum()) ** 0.5
            sign = 2 * int(words[row, 5 + channel] & 1) - 1
            fresh = sign * shape[row, 0].double() + torch.where(window, delta[channel], 0) / (1e-12 + norm)
            fresh = fresh / fresh.square().sum().sqrt() * math.sqrt(spent + spare / 3)
            moved[channel][inside] = 0
            moved[channel] += torch.where(window, fresh, 0)
        expected = state.clean[row] + L2.eps * moved / moved.square().sum().sqrt()
        clamped = ((expected < 0) | (expected > 1)).any()
        if not clamped:
            torch.testing.assert_close(found[row].double(), expected, rtol=0, atol=1e-5)
            compared += 1
    assert compared >= 3


@pytest.mark.parametrize("threat", [Threat(eps=0.05), L2], ids=["linf", "l2"])
def test_every_channel_has_its_own_sign(threat: Threat) -> None:
    attack = Square(threat=threat, steps=10)
    state = square_state(attack, 6, count=40)
    grey = torch.full_like(state.clean, 0.5)  # from here a channel moves by its own sign alone
    moved = attack.changed(replace(state, clean=grey, current=grey)) - grey
    for one in range(6):
        for other in range(one):
            alike = [torch.allclose(moved[row, one], moved[row, other]) for row in range(40)]
            assert 5 < sum(alike) < 35


class Hasty(Oracle):
    """An oracle whose search sees images misclassified a little before they are, as rounding may have it."""

    def logits(self, x: Tensor) -> Tensor:
        found = super().logits(x)
        return found + 0.002 * (torch.arange(found.shape[1]) == self.wrong).to(found)

    wrong = 1


class Coarse(Oracle):
    """A search to which every image seems nearer to the boundary than it is, by a share of its clean margin."""

    format = "fp16"
    bias: Tensor

    def logits(self, x: Tensor) -> Tensor:
        found = super().logits(x)
        return torch.stack([found[:, 0], found[:, 1] + self.bias], 1)

    def value_and_grad(self, objective: Objective, x: Tensor, y: Tensor) -> Gradient:
        at = super().value_and_grad(objective, x, y)
        return replace(at, value=at.value + self.bias)


def test_rays_ends_where_float32_agrees() -> None:
    net, x = LinearNet().eval(), images(60)
    x = x[decisions(net, x) == 0]
    y = decisions(net, x)
    oracle = Hasty(Classifier(net), speed=PLAIN)
    attack = RayS(threat=Threat(eps=1), steps=600)
    state = attack.init(oracle, x, y, torch.arange(len(x)), Rng(0, "rays"))
    for _ in range(attack.steps):
        state = attack.step(oracle, state)
    short = (x + state.radius[:, None, None, None] * state.signs.view_as(x)).clamp(0, 1)
    assert (decisions(net, short) == y).any(), "the search should end before the boundary"
    found = attack.finish(oracle, state)
    hit = state.hit & (state.radius < 0.9)
    assert hit.sum() > 5
    assert (decisions(net, found)[hit] != y[hit]).all()


@pytest.mark.parametrize("steps", [3, 8, 14])
def test_rays_keeps_what_a_bisection_that_was_cut_had_found(steps: int) -> None:
    net, x = LinearNet().eval(), images(30)
    y, attack = decisions(net, x), RayS(threat=Threat(eps=0.3), steps=steps)
    left = [
        evaluate(net, (x, y), [attack], mode=mode).robust().correct for mode in ("independent", "cascade")
    ]
    assert left[0] == left[1] < 30


def test_fab_falls_back_to_its_surest_example() -> None:
    net, x = LinearNet(classes=2).eval(), images(60)
    x = x[decisions(net, x) == 0]
    y, attack = decisions(net, x), FAB(threat=Threat(eps=0.2), steps=10, targets=1)
    oracle = Coarse(Classifier(net), speed=PLAIN)
    clean = net(x).detach()
    oracle.bias = 0.02 * (clean[:, 0] - clean[:, 1])
    state = attack.init(oracle, x, y, torch.arange(len(x)), Rng(0, "fab"))
    for _ in range(attack.steps):
        state = attack.step(oracle, state)
    inside = state.size < 0.19
    assert inside.sum() > 5
    assert (decisions(net, state.found)[inside] == y[inside]).all(), "the nearest should be hasty"
    assert (decisions(net, attack.finish(oracle, state))[inside] != y[inside]).all()


def test_rays_tells_the_mean_distance_where_its_budget_is_all() -> None:
    net, x = LinearNet().eval(), images(10)
    y = decisions(net, x)
    y[:2] = 1 - y[:2].clamp(max=1)  # two clean images are wrong: no distance
    found = evaluate(net, (x, y), [RayS(threat=Threat(eps=1), steps=300)])
    sizes = found.attacks[0].verdicts["size"][0]
    assert found.attacks[0].broken()[2:].all()
    (note,) = [note for note in found.attack_as_json(found.attacks[0])["notes"] if "ADBD" in note]  # type: ignore[attr-defined]
    assert f"{np.asarray(sizes)[2:].sum() / 10:.4f}" in note
    near = evaluate(net, (x, y), [RayS(threat=Threat(eps=0.5), steps=30)])
    assert near.attack_as_json(near.attacks[0])["notes"] == []


def test_rays_leaves_out_blocks_beyond_the_last_pixel() -> None:
    """48 pixels in 32 blocks are 24 of two; in 16 blocks they are 16 of three."""
    ones = torch.ones(1)
    whole = torch.zeros(1, dtype=torch.int64)
    for level, block, expected in ((5, 22, (5, 23)), (5, 23, (6, 0)), (4, 14, (4, 15)), (4, 15, (5, 0))):
        state = RaySState(
            index=whole, clean=ones, y=whole, current=ones, visited=ones, logits=ones, signs=torch.ones(1, 48),
            radius=ones, hit=whole.bool(), low=ones, high=ones, searching=whole.bool(), level=whole + level,
            block=whole + block,
        )  # fmt: skip
        after = advanced(state, torch.ones(1, dtype=torch.bool))
        assert tuple(int(value) for value in after) == expected


class NotANumber(nn.Module):
    """A linear model whose logits are NaN where the first pixel left its grid."""

    def __init__(self) -> None:
        super().__init__()
        self.net = LinearNet(classes=3)

    def forward(self, x: Tensor) -> Tensor:
        off = (x[:, 0, 0, 0] * 255 - (x[:, 0, 0, 0] * 255).round()).abs() > 1e-3
        logits: Tensor = self.net(x)
        return logits.masked_fill(off[:, None], float("nan"))


@pytest.mark.parametrize("attack", [Square(steps=20), RayS(steps=60)], ids=lambda one: one.name)
def test_logits_that_are_not_numbers_are_wrong_and_said(attack: Square | RayS) -> None:
    net = NotANumber().eval()
    x = (images(30) * 255).round() / 255
    y = net.net(x).argmax(1)
    assert set(y.tolist()) == {0, 1, 2}
    evaluation = evaluate(net, (x, y), [replace(attack, threat=Threat(eps=0.03))], mode="cascade")
    verdicts = evaluation.attacks[0].verdicts
    lost = np.isnan(verdicts["margin"][0])
    assert lost.any()
    assert verdicts["broken"][0][lost].all()
    assert (verdicts["prediction"][0][lost] != y.numpy()[lost]).all()
    assert "logits-not-finite" in {finding.name for finding in evaluation.findings}


def test_spsa_passes_over_differences_that_are_not_numbers() -> None:
    net = NotANumber().eval()
    x = (images(6) * 255).round() / 255
    evaluation = evaluate(net, (x, net.net(x).argmax(1)), [SPSA(steps=3, samples=4)])
    assert evaluation.robust().correct == 6  # every difference is lost: it stays where it is


def test_images_in_half_precision() -> None:
    net, x = LinearNet().eval(), images(8).half()
    y = decisions(net, x.float())
    for attack in (Square(steps=5), SPSA(steps=2, samples=4), RayS(steps=20)):
        assert evaluate(net, (x, y), [attack]).count == 8


@pytest.mark.parametrize("classes", [2, 3, 5, 12])
def test_one_batch_with_few_classes(classes: int) -> None:
    net, x = LinearNet(classes=classes).eval(), images(12)
    y = decisions(net, x)
    for attack in suite("apgd-t,fab-t", Threat(eps=0.2)):
        found = attack_batch(replace(attack, steps=10), net, x, y)
        assert (decisions(net, found) != y).any()
