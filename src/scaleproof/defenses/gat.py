"""Guided adversarial training (Sriramanan et al. 2020): one guided step, and the distance of probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from scaleproof.defenses import terms
from scaleproof.defenses.base import EIGHT, Batch, Defense, Learner, Memory, Outcome, check_weights
from scaleproof.defenses.inner import Guided, Inner
from scaleproof.losses import logits


@dataclass(frozen=True, kw_only=True)
class Guidance(Defense):
    """CE(x) + weight |P(x) - P(x')|^2; this weight and the attack's grow `late_factor` times at `late_epoch` (1-based).

    The attack starts from random signs; in every second step of an epoch the same weight guides it, else nothing.
    """

    inner: Inner | None = Inner(
        threat=EIGHT, objective=Guided(), steps=1, step_size=8 / 255, start="signs", start_size=4 / 255
    )
    weight: float = 10.0
    late_factor: float = 4.0
    late_epoch: int = 87
    name = "gat"
    label = "GAT"
    single_step = True

    def __post_init__(self) -> None:
        check_weights(weight=self.weight, late_factor=self.late_factor)

    def stretched(self, place: Callable[[int], int]) -> Self:
        return replace(self, late_epoch=place(self.late_epoch))

    def at(self, epoch: int, step: int) -> Self:
        assert self.inner is not None
        assert isinstance(self.inner.objective, Guided)
        factor = self.late_factor if epoch + 1 >= self.late_epoch else 1.0
        guidance = self.weight * factor if step % 2 else 0.0
        return replace(
            self,
            inner=replace(self.inner, objective=replace(self.inner.objective, weight=guidance)),
            weight=self.weight * factor,
            late_factor=1.0,
        )

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        perturbed = self.adversarial(learner, batch)
        clean, output = learner.outputs(batch.x, "clean"), learner.outputs(perturbed, "adversarial")
        distance = terms.squared_distance_rows(logits(clean), logits(output)).mean()
        found = {"clean": self.classified(clean, batch.y), "distance": self.weight * distance}
        return self.finished(found, output, batch.y)
