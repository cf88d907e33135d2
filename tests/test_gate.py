"""The gate: it fails what is shown to be too weak, says when it does not know, and is seldom wrong by chance."""

import itertools
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from torch import Tensor

from helpers import DoesNothing, LinearNet, decisions, images, worst_margin
from scaleproof import PGD, Threat, suite
from scaleproof.attacks import Nearest, Sampled, Scouting
from scaleproof.attacks.sampled import Left
from scaleproof.baseline import wide
from scaleproof.gate import (
    EARLY,
    Gate,
    Rules,
    Sample,
    about_drop,
    about_minimum,
    blocks,
    cheap_first,
    gate,
    random_order,
)
from scaleproof.statistics import Paired

THREAT = Threat(eps=0.05)
STRONG = [PGD(threat=THREAT, steps=8, name="pgd")]


def seen(survived: int, count: int, of: int | None = None) -> Sample:
    """All images are right when clean; `count` of them were looked at."""
    return Sample(count=of or count, correct=of or count, seen=count, attacked=count, survived=survived)


@pytest.mark.parametrize(
    ("limit", "needed"), [(45.0, 450), (44.9, 449), (44.95, 450), (0.1, 1), (100.0, 1000)]
)
def test_all_images_seen_are_counted(limit: float, needed: int) -> None:
    assert about_minimum(seen(needed, 1000), limit) == "pass"
    assert about_minimum(seen(needed - 1, 1000), limit) == "fail"
    assert seen(needed, 1000).interval() == (needed / 1000, needed / 1000)


def test_a_sample_decides_where_its_interval_is_clear_of_the_limit() -> None:
    sample = seen(50, 100, of=1000)
    low, high = sample.interval()
    assert low < 0.5 < high
    least, most = round(100 * low, 1), round(100 * high, 1)  # tenths of a percent are images here
    assert about_minimum(sample, least) == "pass"
    assert about_minimum(sample, round(least + 0.1, 1)) == "undecided"
    assert about_minimum(sample, most) == "undecided"
    assert about_minimum(sample, round(most + 0.1, 1)) == "fail"
    assert about_minimum(seen(0, 0, of=1000), 45) == "undecided"


def test_images_already_wrong_are_no_part_of_the_sample() -> None:
    """Of 1000 images 800 are right; 80 of 100 seen, of which 40 survived: 400 of 1000 are to be expected."""
    sample = Sample(count=1000, correct=800, seen=100, attacked=80, survived=40)
    assert sample.bound == pytest.approx(0.4)
    low, high = sample.interval()
    assert low < 0.4 < high
    assert high <= (800 - 40) / 1000


def test_a_drop_fails_beyond_chance_only() -> None:
    same, few, many = (Paired(count=1000, lost=lost, won=10) for lost in (10, 16, 60))
    assert about_drop(same, 0, complete=True) == "pass"
    assert about_drop(same, 0, complete=False) == "undecided", "what was not seen may differ"
    assert about_drop(few, 0, complete=True) == "undecided", "six images more may be chance"
    assert about_drop(few, 0.6, complete=True) == "pass"
    assert about_drop(few, 5, complete=False) == "pass"
    assert about_drop(many, 0, complete=True) == "fail"
    assert about_drop(many, 3, complete=True) == "fail"
    assert about_drop(many, 4, complete=True) == "undecided", "five points, but four are within the interval"
    assert about_drop(many, 5, complete=True) == "pass"
    tiny = Paired(count=20, lost=4, won=0)
    assert tiny.interval()[0] > 0
    assert about_drop(tiny, 0, complete=True) == "undecided", "the exact test says one in eight"
    assert about_drop(Paired(count=0, lost=0, won=0), 1, complete=False) == "undecided"


def test_a_drop_that_hardly_anything_is_known_of_passes_with_a_warning() -> None:
    few, many = Paired(count=60, lost=0, won=0), Paired(count=10_000, lost=10, won=10)
    (found,) = wide(few, 1.0)
    assert found.severity == "warning"
    assert "12.0 points wide" in found.meaning
    assert "up to 6.0 points" in found.meaning
    assert wide(few, 13.0) == ()
    assert wide(many, 1.0) == wide(many, 0.0) == (), "where no drop is allowed, a point is close enough"
    assert len(wide(many, 0.1)) == 1


def test_blocks_take_every_image_once_and_tell_doublings() -> None:
    order = random_order(1000, seed=3)
    assert sorted(order) == list(range(1000))
    assert (order != random_order(1000, seed=4)).any()
    parts = list(blocks(order, 128))
    assert (np.concatenate([block for block, _ in parts]) == order).all()
    sizes = [len(block) for block, _ in parts]
    assert sizes[:5] == [16, 16, 32, 64, 128]
    assert max(sizes) == 128
    ends = itertools.accumulate(sizes)
    assert [end for end, (_, doubled) in zip(ends, parts, strict=True) if doubled] == [
        16,
        32,
        64,
        128,
        256,
        512,
    ]


@cache
def fails(survived: int, count: int, of: int, limit: float, confidence: float) -> bool:
    return about_minimum(seen(survived, count, of), limit, confidence) == "fail"


def gate_on(alive: np.ndarray, order: np.ndarray, limit: float, last: int) -> bool:
    """Whether a gate with these verdicts fails when it must end after `last` images or before."""
    end = 0
    for block, doubled in blocks(order, 64):
        if end + len(block) > last:
            break
        end += len(block)
        if doubled and fails(int(alive[order[:end]].sum()), end, len(alive), limit, EARLY):
            return True
    return fails(int(alive[order[:end]].sum()), end, len(alive), limit, 0.95)


def test_a_model_at_the_limit_seldom_fails() -> None:
    alive = np.arange(300) < 150
    random = np.random.default_rng(0)
    failed = [
        gate_on(alive, random.permutation(300), 50.0, int(random.integers(8, 300))) for _ in range(1500)
    ]
    assert 0 < np.mean(failed) < 0.05
    weak = [gate_on(alive, random.permutation(300), 75.0, 200) for _ in range(50)]
    assert np.mean(weak) > 0.95, "and one far below it fails"


@pytest.fixture(scope="module")
def case() -> tuple[LinearNet, tuple[Tensor, Tensor], int]:
    """A linear network, images, and how many of them survive the worst case."""
    net, x = LinearNet().eval(), images(120)
    y = decisions(net, x)
    y[:20] = 1 - y[:20]
    left = int((worst_margin(net, x, y, THREAT) > 0).sum())
    assert 10 < left < 90
    return net, (x, y), left


def test_the_bound_is_the_known_optimum(case: tuple[LinearNet, tuple[Tensor, Tensor], int]) -> None:
    net, data, left = case
    exact = 100 * left / 120
    for limit, decision in ((exact - 0.5, "pass"), (exact + 0.5, "fail")):
        found = gate(net, data, STRONG, Rules(min_robust=limit), batch_size=32)
        assert found.decision == decision
        if found.sample.complete:
            assert found.sample.survived == left
    idle = gate(
        net, data, [DoesNothing(threat=THREAT, steps=1)], Rules(min_robust=exact + 0.5), batch_size=32
    )
    assert idle.decision == "pass"
    assert idle.sample.survived == 100, "an attack that does nothing shows nothing"


def test_it_fails_as_soon_as_it_is_certain(case: tuple[LinearNet, tuple[Tensor, Tensor], int]) -> None:
    net, data, _ = case
    found = gate(net, data, STRONG, Rules(min_robust=90), batch_size=32)
    assert (found.decision, found.sample.seen) == ("fail", 0), "100 of 120 are right without an attack"
    found = gate(net, data, STRONG, Rules(min_robust=80), batch_size=32)
    assert found.decision == "fail"
    assert 0 < found.sample.seen < 120


def test_an_audit_looks_at_a_share_of_all_images(
    case: tuple[LinearNet, tuple[Tensor, Tensor], int],
) -> None:
    net, (x, y), _ = case
    audit = Sampled(PGD(threat=Threat(eps=1.0), steps=8), count=60)  # which breaks whatever it looks at
    found = gate(net, (x, y), [audit], Rules(min_robust=1), batch_size=32)
    correct = np.flatnonzero(decisions(net, x) == y)
    looked = audit.takes(Left(rows=correct, margins={}, total=len(x), seed=0))
    assert found.sample.complete
    assert found.sample.survived == (~looked).sum() > 30


def counting_clock() -> Callable[[], float]:
    ticks = itertools.count()
    return lambda: float(next(ticks))


def limited(case: tuple[LinearNet, tuple[Tensor, Tensor], int], budget: float) -> Gate:
    net, data, left = case
    return gate(
        net,
        data,
        suite("pgd,fgsm", THREAT, steps=8),
        Rules(min_robust=100 * left / 120),
        batch_size=32,
        budget=budget,
        clock=counting_clock(),
    )


def test_the_budget_ends_it(case: tuple[LinearNet, tuple[Tensor, Tensor], int]) -> None:
    none, some, whole = (limited(case, budget) for budget in (1, 35, 10_000))
    assert (none.decision, none.sample.seen) == ("undecided", 0)
    assert none.sample.bound is None
    assert some.decision == "undecided"
    assert 0 < some.sample.seen < 120
    assert some.attacks == ("FGSM", "PGD"), "cheap ones first"
    assert whole.sample.complete
    assert whole.decision == "pass"
    low, high = some.sample.interval()
    assert low <= case[2] / 120 <= high
    with pytest.raises(ValueError, match="the budget must be above 0 seconds"):
        limited(case, 0)


def test_rules_are_checked(case: tuple[LinearNet, tuple[Tensor, Tensor], int]) -> None:
    with pytest.raises(ValueError, match="a gate needs a limit"):
        Rules()
    with pytest.raises(ValueError, match="min_robust must be from 0 to 100, in percent, got -1"):
        Rules(min_robust=-1)
    with pytest.raises(ValueError, match="go together"):
        gate(case[0], case[1], STRONG, Rules(max_drop=1))
    with pytest.raises(ValueError, match="train mode"):
        gate(LinearNet().train(), case[1], STRONG, Rules(min_robust=1))
    assert [attack.name for attack in cheap_first(suite("standard,fgsm"))][:2] == ["fgsm", "apgd-ce"]
    near = (Scouting(threat=THREAT), Nearest(PGD(threat=THREAT)))
    with pytest.raises(
        ValueError, match="pgd-nearest takes the nearest of all images, which here come in blocks"
    ):
        gate(case[0], case[1], near, Rules(min_robust=1))
