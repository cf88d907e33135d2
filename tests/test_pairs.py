"""Who gets differences in pairs, who does not, and what they cost; how well they are computed: test_hand_written.py."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from scaleproof import Speed, evaluate
from scaleproof.attacks import PGD, SPSA
from scaleproof.attacks.oracles import Oracles
from scaleproof.attacks.sampled import Sampled
from scaleproof.data import load
from scaleproof.models import load_model
from scaleproof.oracle import Oracle

ATTACK = SPSA(steps=2, samples=4)
KEPT = "differences in fp16, held apart from their middle"


def with_pairs(factor: float, draws: int = 1) -> tuple[Oracles, Tensor]:
    """An oracle in bf16 with stand-ins for pairs: two passes in float32, their difference times `factor`."""
    classifier, (x, _) = load_model("demo").classifier, load("sample").batch(0, 8)
    oracle = Oracle(classifier, speed=Speed(precision="bf16"), draws=draws)

    def pairs(x: Tensor, directions: Tensor, difference: float) -> tuple[Tensor, Tensor]:
        points = ((x[:, None] + side * difference * directions).flatten(0, 1) for side in (1, -1))
        ahead, behind = (classifier(point) for point in points)
        middle, half = (ahead + behind) / 2, (ahead - behind) / 2
        return middle + factor * half, middle - factor * half

    oracle.choice = replace(oracle.choice, pairs=pairs)
    return Oracles(oracle), x


def test_good_pairs_are_used_and_counted() -> None:
    oracles, x = with_pairs(1.0)
    assert oracles.suited(ATTACK) is not oracles.main, "nobody has looked yet"
    oracles.look([PGD(), ATTACK], x)
    assert oracles.suited(ATTACK) is oracles.main
    assert oracles.suited(Sampled(ATTACK)) is oracles.main
    assert oracles.suited(replace(ATTACK, difference=0.5)) is not oracles.main, "nobody looked at that step"
    assert KEPT in oracles.describe()["notes"]  # type: ignore[operator]
    before = oracles.main.cost.forwards
    ahead, behind = oracles.main.both_sides(x, torch.ones(8, 5, *x.shape[1:]), 1e-3)
    assert ahead.shape == behind.shape == (40, 10)
    assert oracles.main.cost.forwards - before == 80


@pytest.mark.parametrize("factor", [0.0, 1.5, float("nan"), float("inf")])
def test_bad_pairs_are_not(factor: float) -> None:
    oracles, x = with_pairs(factor)
    oracles.look([ATTACK], x)
    assert oracles.suited(ATTACK).format == "float32"
    notes = oracles.describe()["notes"]
    assert any("off here: float32 in their place" in note for note in notes), notes  # type: ignore[union-attr]


def test_several_draws_take_no_pairs() -> None:
    oracles, x = with_pairs(1.0, draws=2)
    oracles.look([ATTACK], x)
    assert oracles.suited(ATTACK).format == "float32"


def test_without_pairs_the_search_is_float32() -> None:
    classifier, data = load_model("demo").classifier, load("sample").first(4)
    found = evaluate(classifier, data, [ATTACK], speed=Speed(precision="bf16"), mode="cascade")
    assert "searches that need finer numbers: float32" in found.speed["notes"]
    assert KEPT not in found.speed["notes"]
