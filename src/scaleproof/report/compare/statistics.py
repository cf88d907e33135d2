"""Differences of two accuracies: of the same images, or of two sets of images."""

import math
from dataclasses import dataclass

from scaleproof.report.records import Flags, Share
from scaleproof.report.words import NORMAL_QUANTILE, share_of

HALVINGS = 60


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


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact two-sided p-value of McNemar's test: a fair coin decides each image that changes sides."""
    tosses = gained + lost
    ways = sum(binomials(tosses, min(gained, lost)))
    return min(1.0, 2 * ways / (1 << tosses))


def binomials(tosses: int, most: int) -> list[int]:
    """Return the numbers of ways to get 0, 1, ... heads, exactly."""
    found = [1]
    for heads in range(1, most + 1):
        found.append(found[-1] * (tosses - heads + 1) // heads)
    return found


def paired_interval(gained: int, lost: int, count: int) -> tuple[float, float]:
    """Return the 95% score interval of a difference over pairs (Tango 1998)."""
    value = (gained - lost) / count
    return edge(gained, lost, count, value, -1.0), edge(gained, lost, count, value, 1.0)


def edge(gained: int, lost: int, count: int, inside: float, outside: float) -> float:
    """Halve the way between a difference that fits and one that does not until both are the same number."""
    if abs(score(gained, lost, count, outside)) <= NORMAL_QUANTILE:
        return outside
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        fits = abs(score(gained, lost, count, middle)) <= NORMAL_QUANTILE
        inside, outside = (middle, outside) if fits else (inside, middle)
    return inside


def score(gained: int, lost: int, count: int, difference: float) -> float:
    """Return how many standard deviations the pairs lie from what a supposed difference makes most likely."""
    linear = difference * (2 * count - gained + lost) - gained - lost
    constant = -lost * difference * (1 - difference)
    share = (math.sqrt(max(0.0, linear**2 - 8 * count * constant)) - linear) / (4 * count)
    variance = count * (2 * share + difference * (1 - difference))
    distance = gained - lost - count * difference
    if variance <= 0:
        return 0.0 if abs(distance) < 1e-9 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def unpaired_difference(first: Share, second: Share) -> Difference:
    """Compare two shares of different images by their Wilson intervals (Newcombe 1998, method 10)."""
    first, second = share_of(first.correct, first.count), share_of(second.correct, second.count)
    value = second.accuracy - first.accuracy
    (low, high), (bottom, top) = first.interval, second.interval
    down = math.hypot(second.accuracy - bottom, high - first.accuracy)
    up = math.hypot(top - second.accuracy, first.accuracy - low)
    return Difference(value=value, interval=(value - down, value + up))
