"""Projected gradient descent (Madry et al. 2018) with any objective; with the cosine objective it is SI-PGD."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast, get_args

import torch
from torch import Tensor

from scaleproof.attacks.base import Format, State, at_least, likeliest_wrong
from scaleproof.losses import Objective, cosine_cross_entropy, cross_entropy, misclassified, targeted
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.threat import DEFAULT_THREAT, Threat, rows_like

Start = Literal["uniform", "none"]
Keep = Literal["last", "best"]


@dataclass(frozen=True, kw_only=True)
class PGDState(State):
    best: Tensor  # (B, ...) the iterate to return when the best one is kept
    best_value: Tensor  # (B,)
    best_broken: Tensor  # (B,) whether that iterate was misclassified


@dataclass(frozen=True, kw_only=True)
class PGD:
    """`steps` steps of `step_size` (default eps / 4) along the steepest direction, each projected into the ball.

    `keep="last"` returns the last iterate (the paper's way); "best" the misclassified iterate of highest objective,
    or the highest where none is misclassified. `target=k` pulls each image towards its k-th likeliest wrong class.
    """

    threat: Threat = DEFAULT_THREAT
    objective: Objective = cross_entropy
    steps: int = 20
    step_size: float | None = None
    start: Start = "uniform"
    keep: Keep = "last"
    restarts: int = 1
    target: int | None = None
    name: str = "pgd"
    label: str = "PGD"
    coarsest: ClassVar[Format] = "bf16"
    capturable = True

    def __post_init__(self) -> None:
        at_least(0, steps=self.steps)
        at_least(1, restarts=self.restarts)
        for field, word, words in (
            ("start", self.start, get_args(Start)),
            ("keep", self.keep, get_args(Keep)),
        ):
            if word not in words:
                raise ValueError(f"{field} must be one of {', '.join(words)}, got {word!r}")
        if self.step_size is not None and not 0 <= self.step_size < float("inf"):
            raise ValueError(f"step_size must be finite and >= 0, got {self.step_size}")
        if self.target is not None and self.target < 1:
            raise ValueError(f"target must be >= 1 (1 is the likeliest wrong class), got {self.target}")

    @property
    def stride(self) -> float:
        return self.threat.eps / 4 if self.step_size is None else self.step_size

    @property
    def scale_invariant(self) -> bool:
        return self.objective.scale_invariant

    @property
    def needs_features(self) -> bool:
        return self.objective.needs_features

    def for_classes(self, classes: int) -> tuple[PGD, tuple[str, ...]]:
        if self.target is not None and self.target >= classes:
            raise ValueError(f"target must be below the number of classes {classes}, got {self.target}")
        wanted = self.objective if self.target is None else targeted(self.objective)
        objective, note = wanted.for_classes(classes)
        return replace(self, objective=objective), () if note is None else (note,)

    def init(self, oracle: Oracle, clean: Tensor, y: Tensor, index: Tensor, rng: Rng) -> PGDState:
        logits = (
            oracle.logits(clean)
            if self.target is not None
            else clean.new_zeros(len(clean), max(oracle.width, 1))
        )
        if self.target is not None:
            y = torch.stack([y, likeliest_wrong(logits, y, self.target)], dim=1)
        start = self.threat.sample(clean, index, rng) if self.start == "uniform" else clean
        worst = torch.full_like(index, -torch.inf, dtype=torch.float32)
        return PGDState(
            index=index,
            clean=clean,
            y=y,
            current=start,
            visited=clean,
            logits=logits,
            best=start,
            best_value=worst,
            best_broken=torch.zeros_like(index, dtype=torch.bool),
        )

    def step(self, oracle: Oracle, state: State) -> PGDState:
        state = cast(PGDState, state)
        at = oracle.value_and_grad(self.objective, state.current, state.y)
        if self.keep == "best":
            state = keep_better(state, at.value, at.logits)
        return replace(
            state,
            current=oracle.ascend(self.threat, state.current, at.gradient, state.clean, self.stride),
            visited=state.current,
            logits=at.logits,
        )

    def finish(self, oracle: Oracle, state: State) -> Tensor:
        state = cast(PGDState, state)
        if self.keep == "last":
            return state.current
        output = oracle.outputs(state.current, features=self.needs_features)
        return keep_better(state, self.objective(output, state.y), output.logits).best

    def describe(self) -> dict[str, object]:
        return {
            "attack": "pgd",
            **vars(self.threat),
            "objective": self.objective.name,
            "steps": self.steps,
            "step_size": self.stride,
            "start": self.start,
            "keep": self.keep,
            "restarts": self.restarts,
            "target": self.target,
        }


def keep_better(state: PGDState, value: Tensor, logits: Tensor) -> PGDState:
    """Remember the current iterate where it is better; a misclassified one beats any that is not."""
    value, broken = value.float(), misclassified(logits, state.true_class)
    better = torch.where(broken == state.best_broken, value > state.best_value, broken)
    return replace(
        state,
        best=torch.where(rows_like(better, state.best).bool(), state.current, state.best),
        best_value=torch.where(better, value, state.best_value),
        best_broken=state.best_broken | broken,
    )


def fgsm(threat: Threat | None = None, objective: Objective = cross_entropy) -> PGD:
    """One step of size eps from the clean image (Goodfellow et al. 2015)."""
    threat = threat or Threat()
    return PGD(
        threat=threat,
        objective=objective,
        steps=1,
        step_size=threat.eps,
        start="none",
        name="fgsm",
        label="FGSM",
    )


def si_pgd(threat: Threat | None = None, *, scale: float = 15.0, steps: int = 20, restarts: int = 1) -> PGD:
    """PGD on the cosines between features and class weights: the paper's scale-invariant attack."""
    return PGD(
        threat=threat or Threat(),
        objective=cosine_cross_entropy(scale),
        steps=steps,
        restarts=restarts,
        name="si-pgd",
        label="SI-PGD",
    )
