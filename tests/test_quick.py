"""The suite "quick": its settings, what it finds on linear models, and what it says of itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from helpers import DoesNothing, LinearNet, decisions, images
from scaleproof import Threat, evaluate, suite
from scaleproof.attacks import APGD, PGD, preset

CLASSES, THREAT = 6, Threat(eps=0.01)


def breakable(net: LinearNet, x: Tensor, y: Tensor) -> Tensor:
    """Whether some wrong class can win within the ball and the pixel range: exact, in float64."""
    weight, bias = net.head.weight.double().detach(), net.head.bias.double().detach()
    flat = x.flatten(1).double()
    found = torch.zeros(len(x), dtype=torch.bool)
    for other in range(CLASSES):
        direction = weight[y] - weight[other]
        room = torch.where(direction > 0, flat, 1 - flat).clamp(max=THREAT.eps)
        gap = (direction * (flat - direction.sign() * room)).sum(1) + bias[y] - bias[other]
        found |= (gap < 0) & (y != other)
    return found


@pytest.mark.parametrize("scale", [1e-3, 1, 1e3])
def test_it_breaks_what_can_be_broken_at_every_scale_of_the_logits(scale: float) -> None:
    net, x = LinearNet(classes=CLASSES).eval(), images(80)
    y = decisions(net, x)
    wanted = breakable(net, x, y)
    with torch.no_grad():
        net.head.weight.mul_(scale)
        net.head.bias.mul_(scale)
    found = evaluate(net, (x, y), suite("quick", THREAT))
    assert 20 < int(wanted.sum()) < 60, "a case in which both answers occur"
    assert torch.equal(torch.from_numpy(~found.survivors()), wanted)
    assert evaluate(net, (x, y), DoesNothing(threat=THREAT)).survivors().all()


def test_it_is_the_cascade_that_was_measured() -> None:
    short, search = suite("quick", THREAT)
    assert isinstance(short, PGD)
    assert isinstance(search, APGD)
    assert (short.objective.name, short.steps, short.keep) == ("standardised_margin(4)", 20, "best")
    assert (search.objective.name, search.steps, search.targets) == ("cw_margin", 20, 9)
    assert search.ranking is None, "by the clean logits"
    assert preset("quick").mode == "cascade"
    assert suite("quick", steps=50)[0].steps == 50
    assert suite("quick", restarts=3)[0].restarts == 3
