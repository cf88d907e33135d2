"""Judge a sentence of the paper by measurements: holds, does not hold, inconclusive or not measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scaleproof.paper.claims import claims
from scaleproof.paper.prose import Item, ProseClaim

HOLDS, FAILS, UNCLEAR, MISSING = "holds", "does not hold", "inconclusive", "not measured"
DIGITS = 9  # beyond which a difference of printed numbers is the noise of floating point


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A value in the unit of the paper, and half the width of its interval."""

    value: float
    error: float = 0.0


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
    found = tuple(compared(claim, left, right, measured) for left, right in claim.comparisons())
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


def compared(claim: ProseClaim, left: Item, right: Item, measured: Mapping[str, Measured]) -> Comparison:
    """One comparison: clear when the room it has, or lacks, is larger than the error of the difference."""
    one, other = value_of(left, measured), value_of(right, measured)
    if one is None or other is None:
        return Comparison(left=left.key, right=right.key, verdict=MISSING)
    error = math.hypot(one.error, other.error)
    surplus = room(claim, one.value - other.value)
    if surplus > error or (claim.kind == "equal" and surplus == error == 0):
        verdict = HOLDS
    else:
        verdict = FAILS if surplus <= -error else UNCLEAR
    return Comparison(left=left.key, right=right.key, verdict=verdict, surplus=surplus, error=error)


def room(claim: ProseClaim, difference: float) -> float:
    """How far a difference is on the right side of what the sentence asks for."""
    if claim.kind == "equal":
        return round(claim.tolerance - abs(difference), DIGITS)
    signed = difference if claim.kind == "greater" else -difference
    return round(signed - claim.by + claim.tolerance, DIGITS)


def value_of(item: Item, measured: Mapping[str, Measured]) -> Measured | None:
    return measured.get(item.key) if item.value is None else Measured(value=item.value)
