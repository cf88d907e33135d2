"""GradAlign (Andriushchenko and Flammarion 2020): FGSM training that keeps input gradients aligned."""

from __future__ import annotations

from dataclasses import dataclass

from scaleproof.defenses import terms
from scaleproof.defenses.base import (
    EIGHT,
    Batch,
    BatchNormPolicy,
    Defense,
    Learner,
    Memory,
    Outcome,
    check_weights,
)
from scaleproof.defenses.inner import Draw, Inner


@dataclass(frozen=True, kw_only=True)
class GradientAlignment(Defense):
    """CE(x') + weight (1 - cosine of the inner objective's gradients at x and at x + U).

    The gradient at x is a constant; the one at x + U is differentiated once more.
    """

    inner: Inner | None = Inner(threat=EIGHT, steps=1, step_size=8 / 255, start="none")
    batch_norm: BatchNormPolicy = BatchNormPolicy(attack="train", attack_updates=True)
    weight: float = 0.2
    name = "gradalign"
    label = "GradAlign"
    single_step = True

    def __post_init__(self) -> None:
        check_weights(weight=self.weight)

    @property
    def draws(self) -> tuple[Draw, ...]:
        assert self.inner is not None
        return self.inner.threat.draws

    @property
    def reuses(self) -> bool:
        """Whether the gradient at x is the attack's, too."""
        return self.inner is not None and self.inner.steps == 1 and self.inner.start == "none"

    @property
    def folds(self) -> bool:
        return super().folds and not self.reuses

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        assert self.inner is not None
        near = self.inner.threat.spread(batch.x, batch.noise[0])
        here = learner.gradient_graph(self.inner, batch.x, batch.y, keep=False)
        if self.reuses:
            perturbed = self.inner.threat.ascend(batch.x, here, batch.x, self.inner.step_size)
        else:
            perturbed = self.adversarial(learner, batch)
        output = learner.outputs(perturbed, "adversarial")
        there = learner.gradient_graph(self.inner, near, batch.y, keep=True)
        found = {
            "adversarial": self.classified(output, batch.y),
            "alignment": self.weight * terms.alignment(here, there),
        }
        return self.finished(found, output, batch.y)
