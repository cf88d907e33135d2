"""Planning: how many images a question needs, before anything is attacked."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from scaleproof.statistics import two_sided_z, wilson_half_width

MOST = 100_000_000  # images that anyone could attack
EXACT = 1_000_000
REACH = 9  # standard deviations of the discordant pairs that are summed over


def images_for_half_width(share: float, half_width: float, confidence: float = 0.95) -> int:
    """The fewest images for which Wilson's interval around this share is no wider than asked for."""
    checked_share("share", share, least=0.0)
    checked_share("half_width", half_width)
    z = two_sided_z(confidence)
    low, high = 1, MOST
    if wilson_half_width(share, high, z) > half_width:
        raise ValueError(f"half_width must be reachable with {MOST:,} images, got {half_width:g}")
    while low < high:
        middle = (low + high) // 2
        if wilson_half_width(share, middle, z) <= half_width:
            high = middle
        else:
            low = middle + 1
    return low


def images_for_drop(drop: float, discordance: float, confidence: float = 0.95, power: float = 0.8) -> int:
    """How many images two models must share for a drop to be found with this power.

    `discordance` is the share of images on which the models disagree. Starts from Connor's formula (1987) and grows by
    half a percent until the exact power of the exact McNemar test suffices; for more than EXACT images the formula is
    right to half a percent by itself.
    """
    checked_share("drop", drop)
    checked_share("discordance", discordance)
    checked_share("power", power)
    if drop > discordance:
        raise ValueError(
            f"drop must be at most the discordance, got {drop:g} and {discordance:g}: "
            "images that both models get right or wrong alike make no drop"
        )
    z, reach = two_sided_z(confidence), NormalDist().inv_cdf(power)
    spread = z * math.sqrt(discordance) + reach * math.sqrt(discordance - drop * drop)
    count = max(1, math.ceil((spread / drop) ** 2))
    if count > MOST:
        raise ValueError(f"drop must be detectable with {MOST:,} images, got {drop:g}")
    while count <= EXACT and detection_power(count, drop, discordance, confidence) < power:
        count += max(1, count // 200)
    return count


def detection_power(count: int, drop: float, discordance: float, confidence: float = 0.95) -> float:
    """P(the exact McNemar test rejects, and on the side of a drop), when this drop and discordance are true."""
    deviation = math.sqrt(count * discordance * (1 - discordance))
    first = max(0, math.floor(count * discordance - REACH * deviation - 1))
    last = min(count, math.ceil(count * discordance + REACH * deviation + 1))
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])  # of the factorials
    chances = binomial(logs, count, discordance)[first : last + 1]
    lean = (discordance + drop) / (2 * discordance)
    found = [rejection(logs, tosses, lean, 1 - confidence) for tosses in range(first, last + 1)]
    return float(np.dot(chances, found))


def rejection(logs: NDArray[np.float64], tosses: int, lean: float, level: float) -> float:
    """P(so many of `tosses` discordant pairs are lost that the exact test rejects), each lost with chance `lean`."""
    tails = 2 * np.cumsum(binomial(logs, tosses, 0.5))  # p-values of 0, 1, 2, ... won
    won = int(np.searchsorted(tails, level, side="right"))  # rejected for fewer than so many won
    return float(binomial(logs, tosses, 1 - lean)[:won].sum())


def binomial(logs: NDArray[np.float64], tosses: int, chance: float) -> NDArray[np.float64]:
    """The probabilities of 0, 1, ..., `tosses` heads."""
    if chance in (0.0, 1.0):
        certain = np.zeros(tosses + 1)
        certain[tosses if chance else 0] = 1
        return certain
    heads = np.arange(tosses + 1)
    choose = logs[tosses] - logs[heads] - logs[tosses - heads]
    chances: NDArray[np.float64] = np.exp(
        choose + heads * math.log(chance) + (tosses - heads) * math.log1p(-chance)
    )
    return chances


def checked_share(name: str, value: float, least: float | None = None) -> None:
    """Refuse what is no share: in (0, 1), or from `least` on and up to 1."""
    inside = 0 < value < 1 if least is None else least <= value <= 1
    if not inside:
        raise ValueError(f"{name} must be a share between 0 and 1, got {value:g}")
