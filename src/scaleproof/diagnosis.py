"""Check: one diagnosis as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Check:
    """One question about a model or an evaluation, its answer, and what to do about it."""

    name: str
    label: str
    passed: bool | None  # None where it was not asked
    value: float | None = None
    limit: float | None = None  # passed up to here
    meaning: str
    advice: str

    def as_json(self) -> dict[str, object]:
        return dict(vars(self))


def at_most(name: str, label: str, value: float, limit: float, meaning: str, advice: str) -> Check:
    """A check that passes where a value is no larger than its limit; one that is not a number fails."""
    known = math.isfinite(value)
    return Check(
        name=name,
        label=label,
        passed=known and value <= limit,
        value=value if known else None,
        limit=limit,
        meaning=meaning,
        advice=advice,
    )


def not_asked(name: str, label: str, why: str, advice: str = "") -> Check:
    """A check without an answer; its label says what it is about and claims nothing.

    The advice, if any, is how to get an answer, never a remedy for what nobody found.
    """
    return Check(name=name, label=label, passed=None, meaning=why, advice=advice)


def is_reliable(checks: Sequence[Check]) -> bool:
    """Whether no check failed."""
    return all(check.passed is not False for check in checks)


def failed(checks: Sequence[Check]) -> tuple[str, ...]:
    return tuple(check.name for check in checks if check.passed is False)
