"""Scouting: one step of size eps towards each of the likeliest wrong classes.

It is no strong attack. How far its best step gets says which images are worth a longer search (`Nearest`); which
step that is says which class to search towards (`Scouts`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from torch import Tensor

from scaleproof.attacks.base import Format, State
from scaleproof.attacks.rankings import MOST, TOWARDS, likeliest
from scaleproof.losses import cw_margin, misclassified
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.threat import DEFAULT_THREAT, Threat, rows_like


@dataclass(frozen=True, kw_only=True)
class ScoutingState(State):
    classes: Tensor  # (B, N) the next class to try comes first
    best: Tensor  # (B, ...) where the step that got farthest led
    best_value: Tensor  # (B,) the margin there


@dataclass(frozen=True, kw_only=True)
class Scouting:
    """Keeps, of `among` steps from the clean image, the one that brought some wrong class nearest."""

    threat: Threat = DEFAULT_THREAT
    among: int = MOST
    name: str = "scouting"
    label: str = "Scouting"
    coarsest: ClassVar[Format] = "bf16"
    restarts = 1
    scale_invariant = True
    needs_features = False
    capturable = True

    def __post_init__(self) -> None:
        if self.among < 1:
            raise ValueError(f"scouting must be among >= 1 classes, got {self.among}")

    @property
    def steps(self) -> int:
        return self.among

    def for_classes(self, classes: int) -> tuple[Scouting, tuple[str, ...]]:
        return replace(self, among=min(self.among, classes - 1)), ()

    def init(self, oracle: Oracle, clean: Tensor, y: Tensor, index: Tensor, rng: Rng) -> ScoutingState:
        logits = oracle.logits(clean)
        return ScoutingState(
            index=index, clean=clean, y=y, current=clean, visited=clean, logits=logits,
            classes=likeliest(logits, y, self.among),
            best=clean, best_value=torch.full_like(logits[:, 0], -torch.inf),
        )  # fmt: skip

    def step(self, oracle: Oracle, state: State) -> ScoutingState:
        state = cast(ScoutingState, state)
        aim = torch.stack([state.y, state.classes[:, 0]], dim=1)
        at = oracle.value_and_grad(TOWARDS, state.clean, aim)
        ahead = oracle.ascend(self.threat, state.clean, at.gradient, state.clean, self.threat.eps)
        value, logits = oracle.value(cw_margin, ahead, state.y)
        value = value.where(
            value.isfinite() | ~misclassified(logits, state.y), torch.inf
        )  # broken, with no margin
        better = value > state.best_value
        return replace(
            state,
            classes=state.classes.roll(-1, dims=1),
            visited=ahead,
            logits=logits,
            best=torch.where(rows_like(better, ahead).bool(), ahead, state.best),
            best_value=torch.where(better, value, state.best_value),
        )

    def finish(self, oracle: Oracle, state: State) -> Tensor:
        return cast(ScoutingState, state).best

    def describe(self) -> dict[str, object]:
        return {"attack": "scouting", **vars(self.threat), "among": self.among, "restarts": self.restarts}
