"""Defenses: one paper per file, and `scale_invariant` for any of them."""

from __future__ import annotations

import difflib

from scaleproof.defenses.alp import LogitPairing
from scaleproof.defenses.at import AdversarialTraining
from scaleproof.defenses.base import Batch, BatchNormPolicy, Defense, Margin, Outcome
from scaleproof.defenses.free import Free
from scaleproof.defenses.gat import Guidance
from scaleproof.defenses.gradalign import GradientAlignment
from scaleproof.defenses.inner import Divergence, Guided, Inner, Labelled
from scaleproof.defenses.mart import Mart
from scaleproof.defenses.named import defense_settings, named_defense
from scaleproof.defenses.rfgsm import RandomStep
from scaleproof.defenses.si import hypersphere, scale_invariant
from scaleproof.defenses.standard import Standard
from scaleproof.defenses.trades import Trades

METHODS: tuple[type[Defense], ...] = (
    *(Standard, AdversarialTraining, Trades, LogitPairing, Mart),
    *(Free, Guidance, RandomStep, GradientAlignment),
)
NAMES = tuple(method.name for method in METHODS)

__all__ = [
    "METHODS",
    "NAMES",
    "AdversarialTraining",
    "Batch",
    "BatchNormPolicy",
    "Defense",
    "Divergence",
    "Free",
    "GradientAlignment",
    "Guidance",
    "Guided",
    "Inner",
    "Labelled",
    "LogitPairing",
    "Margin",
    "Mart",
    "Outcome",
    "RandomStep",
    "Standard",
    "Trades",
    "defense",
    "defense_settings",
    "hypersphere",
    "scale_invariant",
]


def defense(name: str) -> Defense:
    """A defense by its short name, with the paper's settings, or one's own by module:NAME."""
    if ":" in name:
        return named_defense(name, NAMES)
    for method in METHODS:
        if method.name == name:
            return method()
    base, _, twin = name.lower().partition("-")
    near = [base] if base in NAMES else difflib.get_close_matches(name.lower(), NAMES, n=1)
    option = f" --{twin}" if near == [base] and twin in ("si", "he") else ""
    hint = f"; did you mean {near[0] + option!r}?" if near else ""
    raise ValueError(
        f"a method must be one of {', '.join(NAMES)}, or module:NAME of your own, got {name!r}{hint}"
    )
