"""MART (Wang et al. 2020): misclassification-aware adversarial training."""

from __future__ import annotations

from dataclasses import dataclass

from scaleproof.defenses import terms
from scaleproof.defenses.base import EIGHT, Batch, Defense, Learner, Memory, Outcome, check_weights
from scaleproof.defenses.inner import Inner
from scaleproof.losses import logits


@dataclass(frozen=True, kw_only=True)
class Mart(Defense):
    """BCE(x') + weight KL(p(x) to p(x')) (1 - p_y(x)); the last factor is not detached."""

    inner: Inner | None = Inner(threat=EIGHT)
    weight: float = 6.0
    name = "mart"
    label = "MART"

    def __post_init__(self) -> None:
        check_weights(weight=self.weight)

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        perturbed = self.adversarial(learner, batch)
        clean, output = learner.outputs(batch.x, "clean"), learner.outputs(perturbed, "adversarial")
        found = {
            "boosted": terms.boosted_cross_entropy(logits(output), batch.y),
            "divergence": self.weight * terms.weighted_divergence(logits(clean), logits(output), batch.y),
        }
        return self.finished(found, output, batch.y)
