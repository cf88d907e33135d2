"""The generated table of the recipes that methods have of their own."""

from __future__ import annotations

from docs_parts import table

from scaleproof.training import recipe
from scaleproof.training.recipes import ORIGINALS


def own_recipes() -> str:
    """Every method as its own authors ran it, from the recipes themselves."""
    lines, sources = [], []
    for method in ORIGINALS:
        found = recipe(method, name="original")
        config, defense = found.config, found.defense
        inner = defense.inner
        ball = defense.ball
        size = "" if ball is None else fraction(ball.eps)
        attack = "" if inner is None else f"{inner.steps} of {fraction(inner.step_size)}, {inner.start}"
        lines.append(
            [
                f"`{method}`",
                f"{config.epochs}",
                f"{config.batch_size}",
                f"{config.rate:g}",
                f"{config.weight_decay:g}",
                config.schedule.told(),
                size,
                attack,
                "" if not hasattr(defense, "weight") else f"{defense.weight:g}",
            ]
        )
        sources.append(f"- `{method}`: {found.provenance}")
    head = ["method", "epochs", "batch", "rate", "weight decay", "schedule", "eps", "steps, start", "weight"]
    return table(head, lines) + "\n" + "\n".join(sources) + "\n"


def fraction(size: float) -> str:
    """A size of the pixel range as people write it."""
    levels = 255 * size
    return f"{levels:g}/255" if abs(levels - round(levels, 1)) < 1e-9 else f"{size:g}"
