"""TRADES (Zhang et al. 2019): clean cross entropy and the divergence of clean and adversarial probabilities."""

from __future__ import annotations

from dataclasses import dataclass

from scaleproof.defenses import terms
from scaleproof.defenses.base import EIGHT, Batch, Defense, Learner, Memory, Outcome, check_weights
from scaleproof.defenses.inner import Divergence, Inner
from scaleproof.losses import logits


@dataclass(frozen=True, kw_only=True)
class Trades(Defense):
    """CE(x) + weight KL(p(x) to p(x')), the gradient through both; the attack maximises the divergence."""

    inner: Inner | None = Inner(threat=EIGHT, objective=Divergence())
    weight: float = 6.0
    name = "trades"
    label = "TRADES"

    def __post_init__(self) -> None:
        check_weights(weight=self.weight)

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        perturbed = self.adversarial(learner, batch)
        clean, output = learner.outputs(batch.x, "clean"), learner.outputs(perturbed, "adversarial")
        found = {
            "clean": self.classified(clean, batch.y),
            "divergence": self.weight * terms.divergence(logits(clean), logits(output)),
        }
        return self.finished(found, output, batch.y)
