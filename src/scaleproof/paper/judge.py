"""Judge a sentence of the paper by measurements: holds, does not hold, inconclusive or not measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, stdev

from scaleproof.paper.claims import claims
from scaleproof.paper.prose import Item, ProseClaim
from scaleproof.statistics import student_t, two_sided_z

HOLDS, FAILS, UNCLEAR, MISSING = "holds", "does not hold", "inconclusive", "not measured"
CONFIDENCE = 0.95
SEEDS = 3  # fewer settle nothing
DIGITS = 9  # beyond which a difference of printed numbers is the noise of floating point


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A value in the unit of the paper, with half the width of its interval or with the values of its seeds.

    `full` is False where less was measured than the paper says: such a value points somewhere and settles nothing.
    """

    value: float
    error: float = 0.0
    seeds: Mapping[int, float] = field(default_factory=dict)
    full: bool = True


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two measurements side by side; `surplus` is the room that the sentence has, negative where it fails."""

    left: str
    right: str
    verdict: str
    surplus: float | None = None
    error: float | None = None


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict on a sentence, with every comparison behind it."""

    claim: ProseClaim
    verdict: str
    comparisons: tuple[Comparison, ...]

    def count(self, verdict: str) -> int:
        return sum(comparison.verdict == verdict for comparison in self.comparisons)


def printed() -> dict[str, Measured]:
    """The paper's own numbers by their measurement: what its sentences may be held against first."""
    return {claim.measurement: Measured(value=claim.value) for claim in claims()}


def judge(claim: ProseClaim, measured: Mapping[str, Measured]) -> Judgement:
    """Hold a sentence against measurements, keyed as `Claim.measurement` and `Item.key` are."""
    pairs = claim.comparisons()
    found = tuple(compared(claim, left, right, measured, len(pairs)) for left, right in pairs)
    held, failed, missing = (
        sum(one.verdict == verdict for one in found) for verdict in (HOLDS, FAILS, MISSING)
    )
    if missing == len(found):
        verdict = MISSING
    elif enough(claim, held, len(found)):
        verdict = HOLDS
    elif not enough(claim, len(found) - failed, len(found)):
        verdict = FAILS
    else:
        verdict = UNCLEAR
    return Judgement(claim=claim, verdict=verdict, comparisons=found)


def enough(claim: ProseClaim, count: int, total: int) -> bool:
    return count == total if claim.of == "all" else 2 * count > total


def compared(
    claim: ProseClaim, left: Item, right: Item, measured: Mapping[str, Measured], total: int = 1
) -> Comparison:
    """One of `total` comparisons: clear when the room it has, or lacks, is larger than the error of the difference.

    Where all must hold, one counterexample is enough, and among many one comes up by chance: to count, it must be
    clear at a level divided by their number (Bonferroni).
    """
    one, other = value_of(left, measured), value_of(right, measured)
    if one is None or other is None:
        return Comparison(left=left.key, right=right.key, verdict=MISSING)
    difference, error = distance(one, other)
    surplus = room(claim, difference)
    if error is None:
        return Comparison(left=left.key, right=right.key, verdict=UNCLEAR, surplus=surplus)
    strict = error if claim.of == "most" else distance(one, other, 1 - (1 - CONFIDENCE) / total)[1]
    assert strict is not None
    tie = surplus == error == 0 and bool(
        one.seeds or other.seeds
    )  # of runs; printed numbers are what they are
    if surplus > error or (claim.kind == "equal" and surplus == error == 0):
        verdict = HOLDS
    elif tie:
        verdict = UNCLEAR
    else:
        verdict = FAILS if surplus <= -strict else UNCLEAR
    return Comparison(left=left.key, right=right.key, verdict=verdict, surplus=surplus, error=error)


def distance(one: Measured, other: Measured, confidence: float = CONFIDENCE) -> tuple[float, float | None]:
    """The difference of two measurements and its error: over pairs of runs with one seed, where both have seeds.

    The error is None where too few runs, or partial ones, are behind it, and where all pairs differ by the same:
    nothing is known about the spread of such differences, except that they are not zero.
    """
    full = one.full and other.full
    if not one.seeds and not other.seeds:
        wider = two_sided_z(confidence) / two_sided_z(CONFIDENCE)
        return one.value - other.value, wider * math.hypot(one.error, other.error) if full else None
    pairs = [
        one.seeds.get(seed, one.value) - other.seeds.get(seed, other.value) for seed in shared(one, other)
    ]
    if not pairs:
        return one.value - other.value, None
    if len(pairs) < SEEDS or not full:
        return fmean(pairs), None
    spread = round(stdev(pairs), DIGITS)
    if spread == 0 and round(fmean(pairs), DIGITS) != 0:
        return fmean(pairs), None
    return fmean(pairs), student_t(len(pairs) - 1, confidence) * spread / math.sqrt(len(pairs))


def shared(one: Measured, other: Measured) -> list[int]:
    """The seeds that both sides have; a constant goes with every seed."""
    if not one.seeds or not other.seeds:
        return sorted({*one.seeds, *other.seeds})
    return sorted({*one.seeds} & {*other.seeds})


def room(claim: ProseClaim, difference: float) -> float:
    """How far a difference is on the right side of what the sentence asks for."""
    if claim.kind == "equal":
        return round(claim.tolerance - abs(difference), DIGITS)
    signed = difference if claim.kind == "greater" else -difference
    return round(signed - claim.by + claim.tolerance, DIGITS)


def value_of(item: Item, measured: Mapping[str, Measured]) -> Measured | None:
    return measured.get(item.key) if item.value is None else Measured(value=item.value)
