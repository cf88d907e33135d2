"""Catastrophic overfitting: what counts as one. Needs no torch, for reports tell it, too."""

from __future__ import annotations

from dataclasses import dataclass

from scaleproof.statistics import two_sided_z, wilson

OF_BEST, OF_CLEAN = 0.25, 0.1
CONSTANT = 0.9  # of its clean accuracy: a network that attacks hardly change gives one answer for everything
SURE = 0.999  # of either accuracy, for one looks after every epoch


@dataclass(frozen=True)
class Accuracies:
    """On held-out images, in percent."""

    clean: float
    pgd: float


def collapsed(best: Accuracies, now: Accuracies, drop: float, *, count: int, eps_share: float = 1.0) -> bool:
    """Whether accuracy under PGD on `count` images fell far below its best.

    By more than `drop` points; or, where it never was that high, beyond chance and to next to nothing beside the best
    and beside the clean accuracy. The share of one class is no such best, and while eps still grows (`eps_share`),
    nothing is.
    """
    gone = now.pgd < OF_BEST * best.pgd and now.pgd < OF_CLEAN * now.clean
    learnt = best.pgd < CONSTANT * best.clean and eps_share == 1
    return best.pgd - now.pgd > drop or (gone and learnt and beyond_chance(best.pgd, now.pgd, count))


def beyond_chance(high: float, low: float, count: int) -> bool:
    """Whether the intervals of two accuracies on so many images are apart."""
    (least, _), (_, most) = (
        wilson(round(count * one / 100), count, two_sided_z(SURE)) for one in (high, low)
    )
    return least > most
