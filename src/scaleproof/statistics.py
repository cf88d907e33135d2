"""Statistics of right and wrong: intervals for a share, for a part of a finite set, and for pairs.

No torch here, so that pages can be rendered without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Z95 = 1.959963984540054
HALVINGS = 60  # of an interval of length one: below the last digit of a float


def two_sided_z(confidence: float) -> float:
    """How many standard deviations a two-sided interval of this confidence reaches to either side."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}: 95% is 0.95")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def student_t(degrees: int, confidence: float = 0.95) -> float:
    """How many standard errors a two-sided interval reaches, where the deviation is estimated (Student 1908)."""
    if degrees < 1 or not 0 < confidence < 1:
        raise ValueError(f"degrees must be >= 1 and confidence between 0 and 1, got {degrees}, {confidence}")
    low, high = 0.0, 1.0
    while student_share(high, degrees) < confidence:
        high *= 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if student_share(middle, degrees) < confidence else (low, middle)
    return high


def student_share(reach: float, degrees: int) -> float:
    """P(|T| <= reach), by the finite sums for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(reach / math.sqrt(degrees))
    square, odd = math.cos(angle) ** 2, degrees % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for k in range((degrees - 1) // 2 if odd else degrees // 2):
        total += term
        term *= square * (2 * k + 2) / (2 * k + 3) if odd else square * (2 * k + 1) / (2 * k + 2)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def wilson(successes: int, count: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval for a share (Wilson 1927); the whole of [0, 1] for an empty sample."""
    if count == 0:
        return 0.0, 1.0
    share = successes / count
    denominator = 1 + z * z / count
    centre = (share + z * z / (2 * count)) / denominator
    half = wilson_half_width(share, count, z)
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == count else min(1.0, centre + half)
    return low, high


def wilson_half_width(share: float, count: int, z: float = Z95) -> float:
    """Half the length of Wilson's interval, before it is cut at 0 and 1."""
    return z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))


def part_interval(found: int, sample: int, whole: int, confidence: float = 0.95) -> tuple[int, int]:
    """How many of `whole` there are, if `found` of a random `sample` are: exact, by the hypergeometric distribution.

    Each end is the last number under which so few, or so many, are not yet implausible. It is one number where all
    were looked at.
    """
    if not 0 <= found <= sample <= whole:
        raise ValueError(f"found <= sample <= whole must hold, got {found}, {sample} and {whole}")
    tail = (1 - confidence) / 2
    most = last_plausible(found, sample, whole, tail)
    return whole - last_plausible(sample - found, sample, whole, tail), most


def last_plausible(found: int, sample: int, whole: int, tail: float) -> int:
    """The largest number in the whole set under which P(at most `found` in the sample) is above `tail`."""
    low, high = found, whole - (sample - found)
    while low < high:  # the probability falls as the number grows
        middle = (low + high + 1) // 2
        if few_probability(found, sample, middle, whole) > tail:
            low = middle
        else:
            high = middle - 1
    return low


def few_probability(found: int, sample: int, present: int, whole: int) -> float:
    """P(X <= found) for X hypergeometric: those present that come into a sample without replacement."""
    least = max(0, sample - (whole - present))
    terms = [
        log_choose(present, k) + log_choose(whole - present, sample - k) - log_choose(whole, sample)
        for k in range(least, min(found, present, sample) + 1)
    ]
    return min(1.0, math.fsum(math.exp(term) for term in terms))


def log_choose(n: int, k: int) -> float:
    if not 0 <= k <= n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def mcnemar(lost: int, won: int) -> float:
    """The exact two-sided p-value of McNemar's test (1947): `lost` and `won` are as likely as heads and tails.

    Pairs that agree do not count. In whole numbers, so that nothing is rounded before the last division.
    """
    if lost < 0 or won < 0:
        raise ValueError(f"lost and won must be >= 0, got {lost} and {won}")
    tosses, fewer = lost + won, min(lost, won)
    ways, term = 0, 1
    for heads in range(fewer + 1):
        ways += term
        term = term * (tosses - heads) // (heads + 1)
    return min(1.0, 2 * ways / (1 << tosses))


def paired_interval(lost: int, won: int, count: int, z: float = Z95) -> tuple[float, float]:
    """The score interval for (lost - won) / count over pairs (Tango 1998).

    It holds those differences which the score test does not reject; the difference 0 is McNemar's own test.
    """
    if min(lost, won) < 0 or lost + won > count:
        raise ValueError(f"lost and won must be >= 0 and at most count, got {lost}, {won} and {count}")
    if count == 0:
        return -1.0, 1.0
    drop = (lost - won) / count
    return end_of(lost, won, count, z, drop, -1.0), end_of(lost, won, count, z, drop, 1.0)


def end_of(lost: int, won: int, count: int, z: float, inside: float, outside: float) -> float:
    """Where the score of a difference reaches z, between one that is accepted and the end of the scale."""
    if abs(score(lost, won, count, outside)) <= z:
        return outside
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        if abs(score(lost, won, count, middle)) <= z:
            inside = middle
        else:
            outside = middle
    return inside


def score(lost: int, won: int, count: int, drop: float) -> float:
    """The score statistic of a difference, with the likeliest share of `won` under that difference."""
    b = (2 * count - lost + won) * drop - lost - won
    c = -won * drop * (1 - drop)
    likeliest = (math.sqrt(max(0.0, b * b - 8 * count * c)) - b) / (4 * count)
    variance = count * (2 * likeliest + drop * (1 - drop))
    distance = lost - won - count * drop
    if variance <= 0:
        return 0.0 if abs(distance) < 1e-9 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Two models on the same images: right before and wrong now (lost), wrong before and right now (won)."""

    count: int
    lost: int
    won: int

    @property
    def drop(self) -> float:
        """By how much the accuracy fell, as a share."""
        return (self.lost - self.won) / self.count if self.count else math.nan

    @property
    def p_value(self) -> float:
        return mcnemar(self.lost, self.won)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """An interval for the drop over all images of which these are a sample."""
        return paired_interval(self.lost, self.won, self.count, two_sided_z(confidence))

    def as_json(self) -> dict[str, object]:
        return {
            "count": self.count,
            "lost": self.lost,
            "won": self.won,
            "drop": self.drop if self.count else None,
            "interval": list(self.interval()),
            "mcnemar_p": self.p_value,
        }


def paired(before: Flags, after: Flags) -> Paired:
    """Compare which images are right before and after, image by image."""
    if before.shape != after.shape or before.ndim != 1:
        raise ValueError(f"pairs need one flag an image on both sides, got {before.shape} and {after.shape}")
    return Paired(count=len(before), lost=int((before & ~after).sum()), won=int((~before & after).sum()))


def boundary_distances(right: Flags, broken: Flags, size: NDArray[np.floating]) -> NDArray[np.floating]:
    """How far each image is from the decision boundary, by an attack with the whole pixel range as its budget.

    Zero where the clean image is wrong, one where nothing was found. Their mean is the ADBD of RayS (Chen and Gu 2020).
    """
    return np.where(right, np.where(broken, size, 1.0), 0.0)
