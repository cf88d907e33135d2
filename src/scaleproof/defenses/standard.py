"""Standard training: cross entropy of clean images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from scaleproof.defenses.base import EIGHT, Batch, Defense, Learner, Memory, Outcome
from scaleproof.threat import Threat


@dataclass(frozen=True, kw_only=True)
class Standard(Defense):
    """No adversary; `threat` is what the probe measures it against."""

    threat: Threat = EIGHT
    name = "standard"
    label = "standard"

    @property
    def ball(self) -> Threat:
        return self.threat

    def resized(self, share: float) -> Self:
        return replace(self, threat=replace(self.threat, eps=self.threat.eps * share))

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        output = learner.outputs(batch.x, "clean")
        return Outcome({"clean": self.classified(output, batch.y)}, output)
