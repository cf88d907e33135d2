"""Catastrophic overfitting: what counts as one. Needs no torch, for reports tell it, too."""

from __future__ import annotations

from dataclasses import dataclass

OF_BEST, OF_CLEAN = 0.25, 0.1
CONSTANT = 0.9  # of its clean accuracy: a network that attacks hardly change gives one answer for everything


@dataclass(frozen=True)
class Accuracies:
    """On held-out images, in percent."""

    clean: float
    pgd: float


def collapsed(best: Accuracies, now: Accuracies, drop: float, *, eps_share: float = 1.0) -> bool:
    """Whether accuracy under PGD fell far below its best.

    By more than `drop` points; or, where it never was that high, to next to nothing beside the best and beside the
    clean accuracy. The share of one class is no such best, and while eps still grows (`eps_share`), nothing is.
    """
    gone = now.pgd < OF_BEST * best.pgd and now.pgd < OF_CLEAN * now.clean
    learnt = best.pgd < CONSTANT * best.clean and eps_share == 1
    return best.pgd - now.pgd > drop or (gone and learnt)
