"""Words of `scaleproof train` that need more than a look: models, schedules and balls, checked or turned into ours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaleproof.cli import options

if TYPE_CHECKING:
    from scaleproof.defenses import Defense
    from scaleproof.training.schedule import Schedule


def check_model(model: str, *, he: bool) -> None:
    """A name must be known; a hypersphere head comes with our own networks alone."""
    from scaleproof.models.architectures import ARCHITECTURES, HYPERSPHERE, checked_architecture
    from scaleproof.models.specs import is_path

    named = ":" not in model and not is_path(model)
    if named:
        checked_architecture(model, "" if he else ", or module:factory, a function of your own")
    if he and (not named or model.endswith(HYPERSPHERE)):
        remedy = "leave out +he, --he gives it" if named else "give one of them, or leave out --he"
        raise ValueError(
            f"--he gives a hypersphere head to one of our networks, {', '.join(ARCHITECTURES)}, got --model "
            f"{model}: {remedy}"
        )


def schedule(kind: str | None, decays: str | None) -> Schedule | None:
    """The schedule that was asked for; None where the recipe's stays."""
    from scaleproof.training import Cosine, Cyclic, Steps

    kinds: dict[str, Schedule] = {"constant": Steps(()), "cyclic": Cyclic(), "cosine": Cosine()}
    if kind not in (None, "steps", *kinds):
        raise ValueError(
            f"--schedule must be constant, steps (with --decays), cyclic or cosine, got {kind!r}"
        )
    if decays is None:
        if kind == "steps":
            raise ValueError("--schedule steps needs --decays: the epochs at whose start the rate falls")
        return kinds[kind] if kind else None
    if kind in kinds:
        raise ValueError(f"--decays goes with --schedule steps, got --schedule {kind}: give one of them")
    return Steps(options.whole_numbers(decays, "decays"))


def resized(base: Defense, eps: float) -> Defense:
    """The defense against a ball of this size, where it has one that can be resized."""
    if base.ball is None:
        raise ValueError(
            f"--eps is for methods with a ball, {base.name} has none: give its class an inner attack, or leave it out"
        )
    found = base.resized(eps / base.ball.eps)
    if found.ball is None or not math.isclose(found.ball.eps, eps, rel_tol=1e-6):
        raise ValueError(
            f"--eps {eps:g} does not reach {base.name}, whose resized() leaves another ball: let it change its ball"
        )
    return found
