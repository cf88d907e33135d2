"""Defenses that a test names on the command line, as module:NAME."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch.nn.functional as F

from scaleproof.defenses import AdversarialTraining, Batch, Defense, Inner, Outcome
from scaleproof.defenses.base import Learner, Memory
from scaleproof.losses import logits
from scaleproof.threat import Threat

INNER = Inner(threat=Threat(eps=8 / 255), steps=1)


@dataclass(frozen=True, kw_only=True)
class Smooth(Defense):
    """Adversarial training with label smoothing."""

    inner: Inner | None = INNER
    smoothing: float = 0.1
    shares: list[float] = field(default_factory=lambda: [1.0])  # makes it a defense that has no hash
    single_step = True
    name = "smooth"
    label = "AT, smoothed labels"

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        output = learner.outputs(self.adversarial(learner, batch), "adversarial")
        loss = F.cross_entropy(logits(output), batch.y, label_smoothing=self.smoothing)
        return self.finished({"adversarial": loss}, output, batch.y)


READY = Smooth(smoothing=0.2)


def smoother() -> Smooth:
    return Smooth(smoothing=0.3)


def longer() -> AdversarialTraining:
    """One of ours with other settings."""
    return replace(AdversarialTraining(), inner=replace(INNER, steps=2))


@dataclass(frozen=True, kw_only=True)
class Needy(Smooth):
    strength: float


class Nameless(Defense):
    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        raise NotImplementedError


class Borrowed(AdversarialTraining):
    """Has its parent's name."""


class Unfinished(Defense):
    """Has no outcome."""

    name, label = "unfinished", "Unfinished"


@dataclass(frozen=True, kw_only=True)
class Endless(Smooth):
    smoothing: float = float("inf")


class Silent(Smooth):
    """Says nothing of what all defenses have."""

    def describe(self) -> dict[str, object]:
        return {"defense": self.name, "inner": None, "smoothing": self.smoothing}


@dataclass(frozen=True, kw_only=True)
class Plain(Smooth):
    """Meets no adversary."""

    inner: Inner | None = None


@dataclass(frozen=True, kw_only=True)
class Deaf(Plain):
    """Has a ball that cannot be resized."""

    @property
    def ball(self) -> Threat:
        return INNER.threat


def network() -> Any:
    return object()
