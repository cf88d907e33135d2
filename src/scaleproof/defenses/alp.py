"""Adversarial logit pairing (Kannan et al. 2018), in the paper's form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scaleproof.defenses import terms
from scaleproof.defenses.base import EIGHT, Batch, Defense, Learner, Memory, Outcome, check_weights
from scaleproof.defenses.inner import Inner
from scaleproof.losses import logits

PAIRINGS = {"mean-square": terms.mean_square_pairing, "norm": terms.norm_pairing}


@dataclass(frozen=True, kw_only=True)
class LogitPairing(Defense):
    """share CE(x) + (1 - share) CE(x') + weight times the distance of the logits."""

    inner: Inner | None = Inner(threat=EIGHT)
    share: float = 0.5
    weight: float = 3.0
    pairing: Literal["mean-square", "norm"] = "mean-square"
    name = "alp"
    label = "ALP"

    def __post_init__(self) -> None:
        check_weights(weight=self.weight, share=self.share)
        if self.share > 1:
            raise ValueError(f"share must be at most 1, got {self.share}")
        if self.pairing not in PAIRINGS:
            raise ValueError(f"pairing must be one of {', '.join(PAIRINGS)}, got {self.pairing!r}")

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        perturbed = self.adversarial(learner, batch)
        clean, output = learner.outputs(batch.x, "clean"), learner.outputs(perturbed, "adversarial")
        found = {
            "clean": self.share * self.classified(clean, batch.y),
            "adversarial": (1 - self.share) * self.classified(output, batch.y),
            "pairing": self.weight * PAIRINGS[self.pairing](logits(clean), logits(output)),
        }
        return self.finished(found, output, batch.y)
