"""Auto-PGD (Croce and Hein 2020): PGD with momentum whose step size halves by itself.

At checkpoints (after 22% of the iterations, then at intervals that shrink by 3% down to 6%) a row's step is halved and
the row restarts from its best point, if the objective rose in at most rho of the steps since the last checkpoint, or if
neither the step nor the best value changed there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from torch import Tensor

from scaleproof.attacks.base import Format, State, at_least, likeliest_wrong
from scaleproof.attacks.rankings import Ranking, ordered
from scaleproof.losses import Objective, cross_entropy, misclassified, targeted
from scaleproof.oracle import Gradient, Oracle
from scaleproof.rng import Rng
from scaleproof.threat import DEFAULT_THREAT, Threat, rows_like

MOMENTUM = 0.75
FIRST_WINDOW, SHRINK, LEAST_WINDOW = 0.22, 0.03, 0.06  # shares of the iterations


@dataclass(frozen=True, kw_only=True)
class APGDState(State):
    before: Tensor  # (B, ...) the iterate before the current one
    gradient: Tensor  # (B, ...) at the current iterate
    best: Tensor  # (B, ...) the iterate of highest objective
    best_gradient: Tensor  # (B, ...)
    best_value: Tensor  # (B,)
    found: Tensor  # (B, ...) the last misclassified iterate
    broken: Tensor  # (B,) whether there was one
    stride: Tensor  # (B,) the step size
    value: Tensor  # (B,) of the current iterate; zero before the first step, as in the published code
    rises: Tensor  # (B,) how often the objective rose since the last checkpoint
    checked_value: Tensor  # (B,) the best value at the last checkpoint
    halved: Tensor  # (B,) whether the step was halved there
    iteration: Tensor  # (B,) steps taken
    window: Tensor  # (B,) steps from one checkpoint to the next
    since: Tensor  # (B,) steps since the last one


@dataclass(frozen=True, kw_only=True)
class APGD:
    """Auto-PGD with any objective; with `targets`, one run for each of the likeliest wrong classes.

    With a `ranking` the targets are the first of its order, else the likeliest.
    """

    threat: Threat = DEFAULT_THREAT
    objective: Objective = cross_entropy
    steps: int = 100
    rho: float = 0.75
    targets: int | None = None
    ranking: Ranking | None = None
    runs: int = 1
    name: str = "apgd-ce"
    label: str = "APGD-CE"
    coarsest: ClassVar[Format] = "bf16"
    capturable = True

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, runs=self.runs, targets=1 if self.targets is None else self.targets)
        if not 0 < self.rho <= 1:
            raise ValueError(f"rho must be above 0 and at most 1, got {self.rho}")
        if self.ranking is not None and not 1 <= (self.targets or 0) <= self.ranking.among:
            raise ValueError(
                f"a ranking must be among at least as many classes as there are targets, got {self.ranking.among} for "
                f"{self.targets} targets"
            )

    @property
    def restarts(self) -> int:
        return self.runs if self.targets is None else self.targets

    @property
    def scale_invariant(self) -> bool:
        return self.objective.scale_invariant

    @property
    def needs_features(self) -> bool:
        return self.objective.needs_features

    def for_classes(self, classes: int) -> tuple[APGD, tuple[str, ...]]:
        wanted = self.objective if self.targets is None else targeted(self.objective)
        objective, note = wanted.for_classes(classes)
        targets = None if self.targets is None else min(self.targets, classes - 1)
        changed = replace(self, objective=objective, targets=targets)
        return changed, () if note is None else (note,)

    def init(self, oracle: Oracle, clean: Tensor, y: Tensor, index: Tensor, rng: Rng) -> APGDState:
        if self.targets is not None:
            y = torch.stack([y, self.target(oracle, clean, y, rng.restart + 1)], dim=1)
        start = self.threat.far_sample(clean, index, rng)
        at = oracle.value_and_grad(self.objective, start, y)
        truth = y if y.dim() == 1 else y[:, 0]
        return APGDState(
            index=index, clean=clean, y=y, current=start, visited=start, logits=at.logits,
            before=start, gradient=at.gradient, best=start, best_gradient=at.gradient, best_value=at.value,
            found=start, broken=misclassified(at.logits, truth),
            stride=torch.full_like(at.value, 2 * self.threat.eps), value=torch.zeros_like(at.value),
            rises=torch.zeros_like(at.value), checked_value=at.value,
            halved=torch.ones_like(at.value, dtype=torch.bool), iteration=torch.zeros_like(index),
            window=torch.full_like(index, max(int(FIRST_WINDOW * self.steps), 1)), since=torch.zeros_like(index),
        )  # fmt: skip

    def target(self, oracle: Oracle, clean: Tensor, y: Tensor, rank: int) -> Tensor:
        """The class of the rank-th run (B,)."""
        if self.ranking is None:
            return likeliest_wrong(oracle.logits(clean), y, rank)
        return ordered(self.ranking, oracle, self.threat, clean, y)[:, rank - 1]

    def step(self, oracle: Oracle, state: State) -> APGDState:
        state = cast(APGDState, state)
        moved = self.moved(state)
        return self.adapted(noted(state, moved, oracle.value_and_grad(self.objective, moved, state.y)))

    def arrive(self, oracle: Oracle, state: APGDState) -> APGDState:
        """The last step: where it leads needs no gradient."""
        moved = self.moved(state)
        value, logits = oracle.value(self.objective, moved, state.y)
        return noted(state, moved, Gradient(value, state.gradient, logits))

    def moved(self, state: APGDState) -> Tensor:
        """A step along the gradient, joined with the last movement, and projected after each of the two."""
        size = rows_like(state.stride, state.current)
        ahead = self.threat.project(state.current + size * self.threat.steepest(state.gradient), state.clean)
        share = rows_like(torch.where(state.iteration > 0, MOMENTUM, 1.0), state.current)
        joined = (
            state.current + (ahead - state.current) * share + (state.current - state.before) * (1 - share)
        )
        return self.threat.project(joined, state.clean)

    def adapted(self, state: APGDState) -> APGDState:
        """At a checkpoint, halve the step where the search stands still, and go back to the best point there."""
        due = state.since == state.window
        shaking = state.rises <= self.rho * state.window.double()
        stuck = ~state.halved & (state.checked_value >= state.best_value)
        halve = due & (shaking | stuck)
        image = rows_like(halve, state.current).bool()
        shrunk = state.window - max(int(SHRINK * self.steps), 1)
        return replace(
            state,
            stride=torch.where(halve, state.stride / 2, state.stride),
            current=torch.where(image, state.best, state.current),
            gradient=torch.where(image, state.best_gradient, state.gradient),
            rises=torch.where(due, 0.0, state.rises),
            checked_value=torch.where(due, state.best_value, state.checked_value),
            halved=torch.where(due, halve, state.halved),
            window=torch.where(due, shrunk.clamp_min(max(int(LEAST_WINDOW * self.steps), 1)), state.window),
            since=torch.where(due, 0, state.since),
        )

    def finish(self, oracle: Oracle, state: State) -> Tensor:
        state = cast(APGDState, state)
        return torch.where(rows_like(state.broken, state.found).bool(), state.found, state.best)

    def describe(self) -> dict[str, object]:
        return {
            "attack": "apgd",
            **vars(self.threat),
            "objective": self.objective.name,
            "steps": self.steps,
            "rho": self.rho,
            "targets": self.targets,
            "restarts": self.restarts,
            **({} if self.ranking is None else {"ranking": [self.ranking.name, self.ranking.among]}),
        }


def noted(state: APGDState, moved: Tensor, at: Gradient) -> APGDState:
    """What a new iterate taught."""
    wrong, better = misclassified(at.logits, state.true_class), at.value > state.best_value
    image = rows_like(better, moved).bool()
    return replace(
        state,
        before=state.current,
        current=moved,
        visited=moved,
        logits=at.logits,
        gradient=at.gradient,
        best=torch.where(image, moved, state.best),
        best_gradient=torch.where(image, at.gradient, state.best_gradient),
        best_value=torch.where(better, at.value, state.best_value),
        found=torch.where(rows_like(wrong, moved).bool(), moved, state.found),
        broken=state.broken | wrong,
        rises=state.rises + (at.value > state.value).to(state.rises.dtype),
        value=at.value,
        iteration=state.iteration + 1,
        since=state.since + 1,
    )
