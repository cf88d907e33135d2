"""Rankings of targets beside their closed forms on linear models, and what they are worth there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from helpers import LinearNet, SmallConvNet, decisions, images
from scaleproof import Classifier, Rng, Threat, evaluate, losses
from scaleproof.attacks import APGD, Ranking, Scouts, Slopes
from scaleproof.attacks.base import likeliest_wrong
from scaleproof.attacks.rankings import ordered
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


def distance_by_hand(net: LinearNet, x: Tensor, y: Tensor, target: int, threat: Threat) -> Tensor:
    """Minus the distance to the plane where a class meets the true one, in float64 (B,)."""
    weight, bias = net.head.weight.detach().double(), net.head.bias.detach().double()
    normal = weight[y] - weight[target]  # (B, D)
    gap = (x.flatten(1).double() * normal).sum(1) + bias[y] - bias[target]
    dual = normal.abs().sum(1) if threat.norm == "linf" else normal.norm(dim=1)
    return torch.where(y == target, -torch.inf, -gap / dual)


BY_HAND = {Scouts: reached_by_hand, Slopes: distance_by_hand}
KINDS = pytest.mark.parametrize("kind", BY_HAND, ids=lambda kind: kind.name)


@KINDS
@pytest.mark.parametrize("threat", [LINF, L2], ids=["linf", "l2"])
def test_targets_come_in_the_order_derived_by_hand(kind: type[Scouts | Slopes], threat: Threat) -> None:
    net, x = LinearNet(classes=CLASSES).eval(), images(80)
    y, oracle = decisions(net, x), Oracle(Classifier(net), speed=PLAIN)
    columns = [BY_HAND[kind](net, x, y, target, threat) for target in range(CLASSES)]
    sorted_, order = torch.stack(columns, dim=1).sort(dim=1, descending=True)
    apart = -sorted_.diff(dim=1)[:, : CLASSES - 2]
    clear = (apart > 1e-4 * sorted_[:, : CLASSES - 1].abs().amax(1, keepdim=True)).all(1)
    assert clear.float().mean() > 0.9, "few ties"
    found = ordered(kind(CLASSES - 1), oracle, threat, x, y)
    assert torch.equal(found[clear], order[clear, : CLASSES - 1])
    likeliest = likeliest_wrong(net(x), y, 1)
    assert (likeliest[clear] != order[clear, 0]).any(), "clean logits rank otherwise"


@KINDS
def test_rankings_look_at_the_likeliest_classes_alone(kind: type[Scouts | Slopes]) -> None:
    net, x = LinearNet(classes=CLASSES).eval(), images(40)
    y, oracle = decisions(net, x), Oracle(Classifier(net), speed=PLAIN)
    both = ordered(kind(2), oracle, LINF, x, y).sort(1).values
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


@pytest.mark.parametrize(("ranking", "left"), [(None, 1), (Scouts(2), 0), (Slopes(2), 0)], ids=str)
def test_one_target_is_enough_where_it_was_chosen_well(ranking: Ranking | None, left: int) -> None:
    net, x, y = NearAndSteep().eval(), torch.full((1, 3, 4, 4), 0.5), torch.tensor([0])
    attack = APGD(
        threat=Threat(eps=0.01), objective=losses.cw_margin, steps=20, targets=1, ranking=ranking, name="t"
    )
    assert evaluate(net, (x, y), attack, mode="cascade", speed=PLAIN).robust().correct == left


@KINDS
def test_every_run_has_a_target_of_its_own(kind: type[Scouts | Slopes]) -> None:
    net, x = SmallConvNet().eval(), images(8, (3, 8, 8))
    y, oracle = decisions(net, x), Oracle(Classifier(net), speed=PLAIN)
    attack, _ = APGD(objective=losses.dlr, targets=3, ranking=kind()).for_classes(10)
    states = [attack.init(oracle, x, y, torch.arange(8), Rng(0, "t", run)) for run in range(3)]
    targets = torch.stack([state.y[:, 1] for state in states], dim=1)
    for row, truth in zip(targets.tolist(), y.tolist(), strict=True):
        assert len({*row, truth}) == 4


@KINDS
def test_batch_sizes_do_not_matter(kind: type[Scouts | Slopes]) -> None:
    net, x = SmallConvNet().eval(), images(20, (3, 8, 8))
    data = (x, decisions(net, x))
    attack = APGD(threat=Threat(eps=0.01), objective=losses.cw_margin, steps=8, targets=2, ranking=kind())
    runs = [evaluate(net, data, attack, mode="cascade", batch_size=size, speed=PLAIN) for size in (1, 7, 20)]
    assert 0 < runs[0].robust().correct < 20
    for other in runs[1:]:
        assert (runs[0].attacks[0].broken() == other.attacks[0].broken()).all()


@pytest.mark.parametrize(("kind", "forwards"), [(Scouts, 2), (Slopes, 1)])
def test_a_ranking_costs_what_is_counted(kind: type[Scouts | Slopes], forwards: int) -> None:
    net, x = SmallConvNet().eval(), images(5, (3, 8, 8))
    y, oracle = decisions(net, x), Oracle(Classifier(net), speed=PLAIN)
    assert ordered(kind(4), oracle, LINF, x, y).shape == (5, 4)
    assert (oracle.cost.forwards, oracle.cost.backwards) == (5 * (1 + forwards * 4), 5 * 4)


def test_few_classes_and_the_record() -> None:
    attack, _ = APGD(objective=losses.cw_margin, targets=9, ranking=Scouts()).for_classes(3)
    assert (attack.targets, attack.restarts) == (2, 2)
    assert attack.describe()["ranking"] == ["scouts", 9]
    assert "ranking" not in APGD(targets=9).describe(), "records of runs without one stay as they were"


@pytest.mark.parametrize(("targets", "among"), [(None, 9), (3, 2)])
def test_rankings_without_targets_to_choose_are_refused(targets: int | None, among: int) -> None:
    with pytest.raises(ValueError, match=f"at least as many classes .*, got {among} for {targets} targets"):
        APGD(targets=targets, ranking=Scouts(among))


@KINDS
def test_a_ranking_of_nothing_is_refused(kind: type[Scouts | Slopes]) -> None:
    with pytest.raises(ValueError, match="among >= 1 classes, got 0"):
        kind(0)
