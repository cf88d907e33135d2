"""Catastrophic overfitting: what counts as one. Needs no torch, for reports tell it, too."""

from __future__ import annotations

OF_BEST, OF_CLEAN = 0.25, 0.1


def collapsed(best: float, pgd: float, clean: float, drop: float) -> bool:
    """Whether accuracy under PGD (percent, on held-out images) fell far below its best.

    By more than `drop` points; or, where it never was that high, to next to nothing beside the best and beside the
    clean accuracy. (A network that begins to learn falls from the share of one class, too, but not by that much.)
    """
    return best - pgd > drop or (pgd < OF_BEST * best and pgd < OF_CLEAN * clean)
