"""Dropping broken rows changes the cost and not the verdict."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import LinearNet, SmallConvNet, decisions, images
from scaleproof import PGD, Rng, Speed, Threat, evaluate, suite
from scaleproof.attacks import APGD, FAB, Attack, RayS, Scouting, Scouts, Square
from scaleproof.attacks.base import State
from scaleproof.attacks.loop import Packing, perturb, unique_first
from scaleproof.attacks.pgd import PGDState
from scaleproof.attacks.walk import Walk, flat, others, rebuilt, watch
from scaleproof.models import Classifier
from scaleproof.oracle import Oracle
from scaleproof.speed.graph import move


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_sizes(batch: int, count: int) -> None:
    packing = Packing(batch)
    size = packing.size_for(count)
    assert count <= size < count + -(-batch // 1024)
    assert len({packing.size_for(number) for number in range(1, batch + 1)}) <= 1024
    assert not packing.shrinks(size, size), "nothing is packed for nothing"
    assert packing.shrinks(0, size)


@given(st.integers(1, 300), st.integers(1, 300), st.booleans())
def test_packing(count: int, batch: int, pad: bool) -> None:
    packing = Packing(batch, pad)
    rows = packing.pack(torch.arange(5, 5 + count))
    assert rows[:count].tolist() == list(range(5, 5 + count))
    assert len(rows) == (packing.size_for(count) if pad else count)
    assert set(rows[count:].tolist()) <= {5}


def test_unique_first() -> None:
    assert unique_first(torch.tensor([4, 2, 4, 4, 7, 2])).tolist() == [0, 1, 4]


@pytest.mark.parametrize("count", [1, 5, 37])
@pytest.mark.parametrize("pad", [False, True])
def test_dropping_loses_nobody(count: int, pad: bool) -> None:
    net, x = SmallConvNet().eval(), images(count, (3, 8, 8))
    y, oracle = decisions(net, x), Oracle(Classifier(net), speed=Speed(precision="float32"))
    attack, index = PGD(threat=Threat(eps=0.02), steps=8), torch.arange(count)
    kept, dropped = (
        perturb(attack, oracle, x, y, index, Rng(0), drop=drop, packing=Packing(40, pad))
        for drop in (False, True)
    )
    broken = [net(found).argmax(1) != y for found in (kept, dropped)]
    assert dropped.shape == x.shape
    assert attack.threat.violation(dropped, x) is None
    assert bool((broken[1] | ~broken[0]).all()), "what breaks with all steps breaks with dropping"


def test_dropping_costs_less_and_breaks_no_less() -> None:
    net, x = LinearNet(5).eval(), images(120)
    data, attacks = (x, decisions(net, x)), suite("pgd,pgd-cw", Threat(eps=0.02))
    full, fast = (evaluate(net, data, attacks, mode=mode) for mode in ("independent", "cascade"))
    assert fast.robust().correct <= full.robust().correct
    assert 0 < full.robust().correct < full.clean.correct
    assert sum(a.backwards for a in fast.attacks) < 0.7 * sum(a.backwards for a in full.attacks)
    assert full.attacks[0].backwards == 120 * 20
    attacked = fast.attacks[1].verdicts["attacked"][0]
    assert (attacked == fast.survivors("pgd")).all(), (
        "a cascade's second attack sees the survivors of the first"
    )


def test_a_row_that_only_looks_broken_stays() -> None:
    """The oracle's eyes may be wrong; a row leaves on the float32 verdict alone."""
    net, x = LinearNet(3).eval(), images(10)
    y, oracle = decisions(net, x), Oracle(Classifier(net))
    original = oracle.value_and_grad

    def lying(*arguments: object) -> object:
        result = original(*arguments)  # type: ignore[arg-type]
        object.__setattr__(result, "logits", -result.logits)
        return result

    oracle.value_and_grad = lying  # type: ignore[assignment, method-assign]
    attack = PGD(threat=Threat(eps=1e-5), steps=3, start="none")
    found = perturb(attack, oracle, x, y, torch.arange(10), Rng(0), drop=True, packing=Packing(10))
    assert bool((net(found).argmax(1) == y).all())
    assert not torch.equal(found, x), "all steps were taken"


CAPTURABLE: list[Attack] = [PGD(), PGD(keep="best"), APGD(), APGD(targets=3), FAB(), Square(), RayS()]
CAPTURABLE += [APGD(targets=2, ranking=Scouts(5), name="scouted"), Scouting()]


@pytest.mark.parametrize("attack", CAPTURABLE, ids=lambda attack: attack.name)
def test_a_step_in_buffers_is_the_step(attack: Attack) -> None:
    """What a captured graph does: the step on buffers of its own, again and again."""
    net, x = SmallConvNet().eval(), images(6, (3, 8, 8))
    y, oracle = decisions(net, x), Oracle(Classifier(net), speed=Speed(precision="float32"))
    fitted, _ = attack.for_classes(oracle.judge(x).shape[1])
    start = fitted.init(oracle, x, y, torch.arange(6), Rng(0))
    plain, other = Walk(fitted, oracle, start, watch(start, 5)), Walk(fitted, oracle, start, watch(start, 5))
    buffers = tuple(tensor.clone() for tensor in flat(start, other.watched))
    for _ in range(30):
        plain.step()
        move(other.moved, buffers)
    state, seen = rebuilt(start, other.watched, buffers)
    assert others(state) == others(plain.state)
    for one, two in zip(flat(plain.state, plain.watched), flat(state, seen), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0, equal_nan=True)
    assert not torch.equal(state.visited, x), "it moved"


@dataclass(frozen=True, kw_only=True)
class CountingState(PGDState):
    count: int = 0


class CountingPGD(PGD):
    def step(self, oracle: Oracle, state: State) -> PGDState:
        assert isinstance(state, CountingState)
        return replace(super().step(oracle, state), count=state.count + 1)  # type: ignore[call-arg]


def test_a_step_that_counts_outside_its_tensors_is_not_captured() -> None:
    net, x = LinearNet(3).eval(), images(4)
    oracle = Oracle(Classifier(net))
    state = CountingState(**vars(PGD().init(oracle, x, decisions(net, x), torch.arange(4), Rng(0))))
    walk = Walk(CountingPGD(), oracle, state)
    with pytest.raises(RuntimeError, match="counts outside its tensors"):
        walk.moved(*flat(state, None))


def test_a_result_that_lies_in_another_buffer_is_saved_first() -> None:
    buffers = torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([3.0])
    for expected in ([6.0, 1.0, 2.0], [9.0, 6.0, 1.0]):
        move(lambda a, b, c: (a + b + c, a, b), buffers)
        assert [float(buffer) for buffer in buffers] == expected


class EveryGradient(APGD):
    """APGD whose last step takes a gradient too, which nobody uses."""

    arrive = None


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("drop", [False, True])
def test_the_last_step_needs_no_gradient(steps: int, drop: bool) -> None:
    net, x = SmallConvNet().eval(), images(12, (3, 8, 8))
    y, found, costs = decisions(net, x), [], []
    for kind in (APGD, EveryGradient):
        oracle = Oracle(Classifier(net), speed=Speed(precision="float32"))
        attack = kind(threat=Threat(eps=0.004), steps=steps)
        found.append(perturb(attack, oracle, x, y, torch.arange(12), Rng(0), drop=drop))
        costs.append(oracle.cost)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    broken = net(found[0]).argmax(1) != y
    assert broken.any(), "nothing is shown where nothing is found"
    assert not broken.all(), "nor where nobody sees the last step"
    assert costs[0].forwards == costs[1].forwards
    assert 0 < costs[1].backwards - costs[0].backwards <= 12
