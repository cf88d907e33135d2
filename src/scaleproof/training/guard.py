"""The guard against catastrophic overfitting: a sudden fall under PGD on the held-out images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from scaleproof.collapse import Accuracies, collapsed
from scaleproof.defenses.base import Defense
from scaleproof.training.checks import checked_validation
from scaleproof.training.config import TrainConfig
from scaleproof.training.weights import Best

GENTLER = 0.8  # the attack's step after a rollback, relative to the one before


def fall(
    history: Sequence[Mapping[str, Any]],
    record: Mapping[str, Any],
    best: Best,
    config: TrainConfig,
    held_out: int,
) -> str | None:
    """What the guard says of an epoch's record; nothing of the last epoch, of which no other could learn."""
    if config.guard == "off" or "validation" not in record or record["epoch"] == config.epochs:
        return None
    reached = next((past["validation"] for past in history if past["epoch"] == best.epoch), None)
    if reached is None:
        return None
    before = Accuracies(reached["clean"], best.pgd)
    now = Accuracies(record["validation"]["clean"], record["validation"]["pgd"])
    share = config.eps_share(record["epoch"] - 1)
    if not collapsed(before, now, config.guard_drop, count=held_out, eps_share=share):
        return None
    return f"PGD accuracy fell from {before.pgd:.1f} (epoch {best.epoch}) to {now.pgd:.1f}"


def check_guard(config: TrainConfig, count: int) -> None:
    """The guard watches the held-out images."""
    if config.guard != "off" and checked_validation(config, count) == 0:
        raise ValueError(
            f"the guard needs held-out images, {count} images leave none: give guard 'off' (--guard off)"
        )


def current_defense(defense: Defense, config: TrainConfig, number: int, rollbacks: int) -> Defense:
    """The defense of an epoch: a smaller ball while warming up, a gentler step after rollbacks."""
    share = config.eps_share(number)
    found = defense if share == 1 else defense.resized(share)
    if rollbacks and found.inner is not None:
        step_size = found.inner.step_size * GENTLER**rollbacks
        found = replace(found, inner=replace(found.inner, step_size=step_size))
    return found
