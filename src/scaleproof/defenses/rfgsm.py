"""RFGSM-AT (Wong et al. 2020): one step of 1.25 eps from a uniform start."""

from __future__ import annotations

from dataclasses import dataclass

from scaleproof.defenses.base import EIGHT, Batch, BatchNormPolicy, Defense, Learner, Memory, Outcome
from scaleproof.defenses.inner import Inner


@dataclass(frozen=True, kw_only=True)
class RandomStep(Defense):
    """CE(x'); the attack runs in train mode and its pass moves the running statistics, as the original's does."""

    inner: Inner | None = Inner(threat=EIGHT, steps=1, step_size=10 / 255)
    batch_norm: BatchNormPolicy = BatchNormPolicy(attack="train", attack_updates=True)
    name = "rfgsm"
    label = "RFGSM-AT"
    single_step = True

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        output = learner.outputs(self.adversarial(learner, batch), "adversarial")
        return self.finished({"adversarial": self.classified(output, batch.y)}, output, batch.y)
