"""FAB, targeted (Croce and Hein 2020b): the nearest misclassified image, by steps onto linearised boundaries.

Each step projects the current point and the clean image onto the hyperplane where the linearised logits of the true
class and the target meet, goes a little beyond, and mixes the two. A misclassified point is remembered if it is nearer
than those before, and the search goes back towards the clean image from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from torch import Tensor

from scaleproof.attacks.base import Format, State, at_least, likeliest_wrong
from scaleproof.losses import logit_gap, margin, misclassified
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.threat import DEFAULT_THREAT, Threat, rows_like

LEAST_SIZE = 1e-8


@dataclass(frozen=True, kw_only=True)
class FABState(State):
    found: Tensor  # (B, ...) the nearest misclassified image so far
    size: Tensor  # (B,) of its perturbation, infinite where there is none
    surest: Tensor  # (B, ...) the one inside the ball that was misclassified most clearly
    clarity: Tensor  # (B,) its margin
    clean_logits: Tensor  # (B, K)


@dataclass(frozen=True, kw_only=True)
class FAB:
    """One run for each of the `targets` likeliest wrong classes; steps overshoot by `overshoot` (eta in the paper)."""

    threat: Threat = DEFAULT_THREAT
    steps: int = 100
    targets: int = 9
    most_mixing: float = 0.1  # alpha_max in the paper
    overshoot: float = 1.05
    backwards: float = 0.9  # beta in the paper
    name: str = "fab-t"
    label: str = "FAB-T"
    scale_invariant = False
    needs_features = False
    coarsest: ClassVar[Format] = "fp16"  # values near the boundary drown in the rounding of bf16
    capturable = True

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, targets=self.targets)

    @property
    def restarts(self) -> int:
        return self.targets

    def for_classes(self, classes: int) -> tuple[FAB, tuple[str, ...]]:
        return replace(self, targets=min(self.targets, classes - 1)), ()

    def init(self, oracle: Oracle, clean: Tensor, y: Tensor, index: Tensor, rng: Rng) -> FABState:
        scores = oracle.logits(clean)
        pairs = torch.stack([y, likeliest_wrong(scores, y, rng.restart + 1)], dim=1)
        return FABState(
            index=index,
            clean=clean,
            y=pairs,
            current=clean,
            visited=clean,
            logits=scores,
            clean_logits=scores,
            found=clean,
            size=torch.full_like(index, torch.inf, dtype=torch.float32),
            surest=clean,
            clarity=torch.full_like(scores[:, 0], -torch.inf),
        )

    def step(self, oracle: Oracle, state: State) -> FABState:
        state = cast(FABState, state)
        at = oracle.value_and_grad(logit_gap, state.current, state.y)
        moved = self.towards_boundary(state, at.value, at.gradient)
        return self.remembered(state, moved, oracle.logits(moved))

    def towards_boundary(self, state: FABState, value: Tensor, gradient: Tensor) -> Tensor:
        """The mixture of the two projections, each with its overshoot."""
        here, clean, normal = state.current.flatten(1), state.clean.flatten(1), gradient.flatten(1)
        offset = (normal * here).sum(1) - value  # of the plane where the linearised gap is zero
        steps = [self.threat.nearest_on_plane(point, normal, offset) for point in (here, clean)]
        sizes = [self.threat.size(step).clamp_min(LEAST_SIZE) for step in steps]
        mixing = (sizes[0] / (sizes[0] + sizes[1])).clamp(0, self.most_mixing).to(here.dtype)[:, None]
        ahead = (here + self.overshoot * steps[0]) * (1 - mixing) + (
            clean + self.overshoot * steps[1]
        ) * mixing
        return ahead.clamp(0, 1).view_as(state.current)

    def remembered(self, state: FABState, moved: Tensor, scores: Tensor) -> FABState:
        """Keep the nearest misclassified point; what lies outside the ball counts as not visited."""
        wrong = misclassified(scores, state.true_class)
        size = self.threat.size(moved - state.clean).float()
        inside, nearer = size <= self.threat.eps, wrong & (size < state.size)
        clarity = margin(scores, state.true_class)
        clearer = wrong & inside & (clarity > state.clarity)
        back = state.clean + self.backwards * (moved - state.clean)
        return replace(
            state,
            found=torch.where(rows_like(nearer, moved).bool(), moved, state.found),
            size=torch.where(nearer, size, state.size),
            surest=torch.where(rows_like(clearer, moved).bool(), moved, state.surest),
            clarity=torch.where(clearer, clarity, state.clarity),
            current=torch.where(rows_like(wrong, moved).bool(), back, moved),
            visited=torch.where(rows_like(inside, moved).bool(), moved, state.clean),
            logits=torch.where(inside[:, None], scores, state.clean_logits),
        )

    def finish(self, oracle: Oracle, state: State) -> Tensor:
        state = cast(FABState, state)
        inside = rows_like(state.size <= self.threat.eps, state.found).bool()
        nearest = torch.where(inside, state.found, state.clean)
        if oracle.format == "float32":
            return nearest
        doubtful = ~misclassified(oracle.judge(nearest), state.true_class)  # by float32, not by the search
        return torch.where(rows_like(doubtful, nearest).bool(), state.surest, nearest)

    def describe(self) -> dict[str, object]:
        return {
            "attack": "fab-t",
            **vars(self.threat),
            "steps": self.steps,
            "targets": self.targets,
            "alpha_max": self.most_mixing,
            "eta": self.overshoot,
            "beta": self.backwards,
            "restarts": self.restarts,
        }
