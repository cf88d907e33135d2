"""Free adversarial training (Shafahi et al. 2019): one backward pass serves the weights and the perturbation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from scaleproof.defenses.base import EIGHT, Batch, BatchNormPolicy, Defense, Learner, Memory, Outcome
from scaleproof.losses import cosine_cross_entropy
from scaleproof.threat import Threat

ONE_PASS = BatchNormPolicy(attack="train", attack_updates=True)


@dataclass(frozen=True, kw_only=True)
class Free(Defense):
    """CE(x + delta); each batch is replayed, and delta, which outlives the batch, takes a step of eps each time.

    With `separate_cosine`, delta follows the cosine objective of that scale by a backward pass of its own.
    """

    threat: Threat = EIGHT
    batch_norm: BatchNormPolicy = ONE_PASS
    replay: int = 8
    separate_cosine: float | None = None
    name = "free"
    label = "FreeAT"
    single_step = True

    def __post_init__(self) -> None:
        if self.replay < 1:
            raise ValueError(f"replay must be >= 1, got {self.replay}")
        if self.batch_norm != ONE_PASS:
            raise ValueError(
                f"FreeAT's attack is its outer pass: batch_norm must be {ONE_PASS}, got {self.batch_norm}"
            )

    @property
    def replays(self) -> int:
        return self.replay

    @property
    def ball(self) -> Threat:
        return self.threat

    def resized(self, share: float) -> Self:
        return replace(self, threat=replace(self.threat, eps=self.threat.eps * share))

    def new_memory(self, images: Tensor) -> dict[str, Tensor]:
        return {"delta": torch.zeros_like(images)}

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        delta = memory["delta"][batch.first : batch.first + len(batch.x)].detach().requires_grad_()
        output = learner.outputs(in_range(batch.x + delta), "adversarial")
        found = self.finished({"adversarial": self.classified(output, batch.y)}, output, batch.y)
        if self.separate_cosine is None:
            return replace(found, leaf=delta)
        value = cosine_cross_entropy(self.separate_cosine)(output, batch.y).sum()
        leaf = delta.detach().requires_grad_()
        (leaf.grad,) = torch.autograd.grad(value, delta, retain_graph=True)
        return replace(found, leaf=leaf)

    def remember(self, outcome: Outcome, batch: Batch, memory: Memory) -> None:
        leaf = outcome.leaf
        assert leaf is not None
        assert leaf.grad is not None
        moved = leaf.detach() + self.threat.eps * self.threat.steepest(leaf.grad)
        memory["delta"][batch.first : batch.first + len(leaf)].copy_(self.threat.within(moved))


def in_range(x: Tensor) -> Tensor:
    """Pixels within [0, 1], with a gradient at the bounds too: that of clamp is zero there from torch 2.15 on."""
    return torch.where(x < 0, 0.0, torch.where(x > 1, 1.0, x))
