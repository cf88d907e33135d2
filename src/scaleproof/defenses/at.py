"""Adversarial training (Madry et al. 2018): cross entropy of adversarial examples."""

from __future__ import annotations

from dataclasses import dataclass

from scaleproof.defenses.base import EIGHT, Batch, Defense, Learner, Memory, Outcome
from scaleproof.defenses.inner import Inner


@dataclass(frozen=True, kw_only=True)
class AdversarialTraining(Defense):
    """CE(x')."""

    inner: Inner | None = Inner(threat=EIGHT)
    name = "at"
    label = "AT"

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        output = learner.outputs(self.adversarial(learner, batch), "adversarial")
        return self.finished({"adversarial": self.classified(output, batch.y)}, output, batch.y)
