"""Checks that count images: a few out of few are no proof."""

from __future__ import annotations

from torch import Tensor

from scaleproof.diagnosis import Check
from scaleproof.statistics import wilson

ONE_SIDED = 1.6448536269514722  # 95%
WORTH_SAYING = 0.0005  # below it a bound is printed as 0.0%


def seldom(name: str, label: str, flags: Tensor, limit: float, meaning: str, advice: str) -> Check:
    """A check that fails where a share of images is larger than its limit beyond chance (Wilson, 95%, one-sided)."""
    hits, count = int(flags.sum()), len(flags)
    low, _ = wilson(hits, count, ONE_SIDED)
    least = f", so at least {100 * low:.1f}% beyond chance" if low >= WORTH_SAYING else ""
    return Check(
        name=name,
        label=label,
        passed=low <= limit,
        value=hits / count,
        limit=limit,
        meaning=f"{meaning} {hits} of {count} images{least}.",
        advice=advice,
    )
