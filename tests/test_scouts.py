"""Scouts: the ranking of targets beside its closed form on linear models, and what it is worth there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from helpers import LinearNet, SmallConvNet, decisions, images
from scaleproof import Classifier, Rng, Threat, evaluate, losses
from scaleproof.attacks import APGD
from scaleproof.attacks.base import likeliest_wrong
from scaleproof.attacks.scouts import scouted
from scaleproof.oracle import Oracle
from scaleproof.speed import PLAIN

LINF, L2 = Threat(eps=0.05), Threat(norm="l2", eps=0.15)  # inside the pixel range of the images
CLASSES = 6


def reached_by_hand(net: LinearNet, x: Tensor, y: Tensor, target: int, threat: Threat) -> Tensor:
    """The best wrong logit minus the true one after the step of size eps towards a class, in float64 (B,)."""
    weight, bias = net.head.weight.detach().double(), net.head.bias.detach().double()
    direction = weight[target] - weight[y]  # (B, D)
    unit = direction.sign() if threat.norm == "linf" else direction / direction.norm(dim=1, keepdim=True)
    logits = (x.flatten(1).double() + threat.eps * unit) @ weight.T + bias
    wrong = logits.scatter(1, y[:, None], -torch.inf).max(1).values
    found = wrong - logits.gather(1, y[:, None]).squeeze(1)
    return torch.where(y == target, -torch.inf, found)


@pytest.mark.parametrize("threat", [LINF, L2], ids=["linf", "l2"])
def test_targets_come_in_the_order_of_what_a_step_reaches(threat: Threat) -> None:
    net, x = LinearNet(classes=CLASSES).eval(), images(80)
    y, oracle = decisions(net, x), Oracle(Classifier(net), speed=PLAIN)
    by_hand = torch.stack([reached_by_hand(net, x, y, target, threat) for target in range(CLASSES)], dim=1)
    order = by_hand.argsort(dim=1, descending=True)
    gap = (by_hand.sort(dim=1, descending=True).values.diff(dim=1).abs() > 1e-4)[:, : CLASSES - 2].all(1)
    assert gap.float().mean() > 0.9, "few ties"
    for rank in range(1, CLASSES):
        found = scouted(oracle, threat, x, y, CLASSES - 1, rank)
        assert torch.equal(found[gap], order[gap, rank - 1])
    likeliest = likeliest_wrong(net(x), y, 1)
    assert (likeliest[gap] != order[gap, 0]).any(), "clean logits rank otherwise"


def test_scouts_look_at_the_likeliest_classes_alone() -> None:
    net, x = LinearNet(classes=CLASSES).eval(), images(40)
    y, oracle = decisions(net, x), Oracle(Classifier(net), speed=PLAIN)
    both = torch.stack([scouted(oracle, LINF, x, y, 2, rank) for rank in (1, 2)], dim=1).sort(1).values
    expected = torch.stack([likeliest_wrong(net(x), y, rank) for rank in (1, 2)], dim=1).sort(1).values
    assert torch.equal(both, expected)


class NearAndSteep(torch.nn.Module):
    """Class 0 where pixels are 0.5; class 1 is near and out of reach, class 2 farther and within."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(48, 3)
        with torch.no_grad():
            weight = torch.zeros(3, 48)
            weight[1, 0], weight[2] = 1.0, torch.ones(48)
            self.head.weight.copy_(weight)
            self.head.bias.copy_(-0.5 * weight.sum(1) - torch.tensor([0.0, 0.1, 0.3]))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(x.flatten(1))
        return found


@pytest.mark.parametrize(("scouts", "left"), [(None, 1), (2, 0)], ids=["likeliest", "scouted"])
def test_one_target_is_enough_where_a_scout_chose_it(scouts: int | None, left: int) -> None:
    net, x, y = NearAndSteep().eval(), torch.full((1, 3, 4, 4), 0.5), torch.tensor([0])
    attack = APGD(
        threat=Threat(eps=0.01), objective=losses.cw_margin, steps=20, targets=1, scouts=scouts, name="t"
    )
    assert evaluate(net, (x, y), attack, mode="cascade", speed=PLAIN).robust().correct == left


def test_every_run_has_a_target_of_its_own() -> None:
    net, x = SmallConvNet().eval(), images(8, (3, 8, 8))
    y, oracle = decisions(net, x), Oracle(Classifier(net), speed=PLAIN)
    attack, _ = APGD(objective=losses.dlr, targets=3, scouts=9).for_classes(10)
    states = [attack.init(oracle, x, y, torch.arange(8), Rng(0, "t", run)) for run in range(3)]
    targets = torch.stack([state.y[:, 1] for state in states], dim=1)
    for row, truth in zip(targets.tolist(), y.tolist(), strict=True):
        assert len({*row, truth}) == 4


def test_batch_sizes_do_not_matter() -> None:
    net, x = SmallConvNet().eval(), images(20, (3, 8, 8))
    data = (x, decisions(net, x))
    attack = APGD(threat=Threat(eps=0.01), objective=losses.cw_margin, steps=8, targets=2, scouts=9)
    runs = [evaluate(net, data, attack, mode="cascade", batch_size=size, speed=PLAIN) for size in (1, 7, 20)]
    assert 0 < runs[0].robust().correct < 20
    for other in runs[1:]:
        assert (runs[0].attacks[0].broken() == other.attacks[0].broken()).all()


def test_scouts_cost_what_is_counted() -> None:
    net, x = SmallConvNet().eval(), images(5, (3, 8, 8))
    y, oracle = decisions(net, x), Oracle(Classifier(net), speed=PLAIN)
    scouted(oracle, LINF, x, y, 4, 1)
    assert (oracle.cost.forwards, oracle.cost.backwards) == (5 * (1 + 2 * 4), 5 * 4)


def test_few_classes_and_the_record() -> None:
    attack, _ = APGD(objective=losses.cw_margin, targets=9, scouts=9).for_classes(3)
    assert (attack.targets, attack.scouts, attack.restarts) == (2, 2, 2)
    assert attack.describe()["scouts"] == 2
    assert "scouts" not in APGD(targets=9).describe(), "records of runs without scouts stay as they were"


@pytest.mark.parametrize(("targets", "scouts"), [(None, 9), (3, 2), (1, 0)])
def test_scouts_without_targets_to_choose_are_refused(targets: int | None, scouts: int) -> None:
    with pytest.raises(ValueError, match=f"scouts .* at least as many, got {scouts} for {targets} targets"):
        APGD(targets=targets, scouts=scouts)
