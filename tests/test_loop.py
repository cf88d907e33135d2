"""Dropping broken rows changes the cost and not the verdict."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import LinearNet, SmallConvNet, decisions, images
from scaleproof import PGD, Rng, Speed, Threat, evaluate, suite
from scaleproof.attacks.loop import Packing, perturb, unique_first
from scaleproof.models import Classifier
from scaleproof.oracle import Oracle


@given(st.integers(1, 5000))
def test_sizes(batch: int) -> None:
    sizes = Packing(batch).sizes
    assert sizes[-1] == batch
    assert 1 <= len(sizes) <= 8
    assert list(sizes) == sorted(set(sizes))


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
