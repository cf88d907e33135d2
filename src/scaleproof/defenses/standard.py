"""Standard training: cross entropy of clean images."""

from __future__ import annotations

from dataclasses import dataclass

from scaleproof.defenses.base import Batch, Defense, Learner, Memory, Outcome


@dataclass(frozen=True, kw_only=True)
class Standard(Defense):
    """No adversary."""

    name = "standard"
    label = "standard"

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        output = learner.outputs(batch.x, "clean")
        return Outcome({"clean": self.classified(output, batch.y)}, output)
