"""Differences of two accuracies: of the same images, or of two sets of images."""

import math
from dataclasses import dataclass

from scaleproof.report.records import Flags, Share
from scaleproof.report.words import share_of
from scaleproof.statistics import mcnemar, paired_interval


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How much more accurate the second is than the first; gained and lost images where both saw the same ones."""

    value: float
    interval: tuple[float, float]
    gained: int | None = None
    lost: int | None = None
    p: float | None = None

    @property
    def paired(self) -> bool:
        """Tell whether both saw the same images."""
        return self.p is not None


def paired_difference(first: Flags, second: Flags) -> Difference:
    """Compare which of the same images are right."""
    gained, lost = int((second & ~first).sum()), int((first & ~second).sum())
    return Difference(
        value=(gained - lost) / len(first),
        interval=paired_interval(gained, lost, len(first)),
        gained=gained,
        lost=lost,
        p=mcnemar(gained, lost),
    )


def unpaired_difference(first: Share, second: Share) -> Difference:
    """Compare two shares of different images by their Wilson intervals (Newcombe 1998, method 10)."""
    first, second = share_of(first.correct, first.count), share_of(second.correct, second.count)
    value = second.accuracy - first.accuracy
    (low, high), (bottom, top) = first.interval, second.interval
    down = math.hypot(second.accuracy - bottom, high - first.accuracy)
    up = math.hypot(top - second.accuracy, first.accuracy - low)
    return Difference(value=value, interval=(value - down, value + up))
