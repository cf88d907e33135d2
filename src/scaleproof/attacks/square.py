"""Square Attack (Andriushchenko et al. 2020): random search with square-shaped changes; it asks for logits only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from torch import Tensor

from scaleproof.attacks.base import Format, State, at_least
from scaleproof.attacks.windows import bump, stripes, tiles, window_mask
from scaleproof.losses import margin
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.threat import DEFAULT_THREAT, Threat, rows_like

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # queries after which the share of pixels halves


@dataclass(frozen=True, kw_only=True)
class SquareState(State):
    value: Tensor  # (B,) the margin of `current`: positive when misclassified
    query: Tensor  # (B,) how many were asked
    rng: Rng


@dataclass(frozen=True, kw_only=True)
class Square:
    """`steps` queries on the margin of the logits; a change is kept where the margin grows."""

    threat: Threat = DEFAULT_THREAT
    steps: int = 5000
    share: float = 0.8  # of the pixels that the first squares change; p in the paper
    runs: int = 1
    name: str = "square"
    label: str = "Square"
    scale_invariant = True
    needs_features = False
    coarsest: ClassVar[Format] = "fp16"

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, runs=self.runs)
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, got {self.share}")

    @property
    def restarts(self) -> int:
        return self.runs

    @property
    def capturable(self) -> bool:
        return self.threat.is_box  # the shapes of l2 are drawn by hand for each side

    def for_classes(self, classes: int) -> tuple[Square, tuple[str, ...]]:
        return self, ()

    def init(self, oracle: Oracle, clean: Tensor, y: Tensor, index: Tensor, rng: Rng) -> SquareState:
        start = self.threat.project(clean + self.first_change(clean, index, rng), clean)
        scores = oracle.logits(start)
        return SquareState(
            index=index, clean=clean, y=y, current=start, visited=start, logits=scores,
            value=found_margin(oracle, scores, y), query=torch.zeros_like(index), rng=rng,
        )  # fmt: skip

    def first_change(self, clean: Tensor, index: Tensor, rng: Rng) -> Tensor:
        """Vertical stripes of plus or minus eps under linf; a grid of bumps of length eps together under l2."""
        if self.threat.is_box:
            return self.threat.eps * stripes(clean, index, rng)
        return self.threat.eps * self.threat.steepest(tiles(clean, index, rng))

    def step(self, oracle: Oracle, state: State) -> SquareState:
        state = cast(SquareState, state)
        tried = self.changed(state)
        scores = oracle.logits(tried)
        value = found_margin(oracle, scores, state.y)
        better = rows_like(value > state.value, tried).bool()
        return replace(
            state,
            current=torch.where(better, tried, state.current),
            visited=tried,
            logits=scores,
            value=torch.maximum(value, state.value),
            query=state.query + 1,
        )

    def side(self, query: Tensor, clean: Tensor) -> Tensor:
        """The side of the square in a query, in pixels (B,)."""
        halvings = torch.zeros_like(query, dtype=torch.float64)
        for limit in HALVINGS:
            halvings += query > limit
        area = self.share * clean.shape[2] * clean.shape[3]
        return (area * 0.5**halvings).sqrt().round().long().clamp(1, min(clean.shape[2:]))

    def changed(self, state: SquareState) -> Tensor:
        """A candidate: one square of each image set anew."""
        side = self.side(state.query, state.clean)
        words = state.rng.words(state.index, 5 + state.clean.shape[1], draw=state.query + 2)
        if self.threat.is_box:
            return self.recoloured(state, side, words)
        return self.reshaped(state, int(side[0]), words)

    def recoloured(self, state: SquareState, side: Tensor, words: Tensor) -> Tensor:
        """Every channel of the square moves by plus or minus two eps, and back into the ball."""
        mask = window_mask(state.clean, words[:, 0], words[:, 1], side)
        signs = signs_of(words[:, 2 : 2 + state.clean.shape[1]], state.clean)
        return self.threat.project(state.current + 2 * self.threat.eps * signs * mask, state.clean)

    def reshaped(self, state: SquareState, side: int, words: Tensor) -> Tensor:
        """One window gets a new bump, with the budget of a second window that is cleared."""
        side = max(side, 3) + (max(side, 3) + 1) % 2  # odd
        side = min(side, min(state.clean.shape[2:]) - (min(state.clean.shape[2:]) + 1) % 2)
        delta = state.current - state.clean
        first = window_mask(state.clean, words[:, 0], words[:, 1], side)
        second = window_mask(state.clean, words[:, 2], words[:, 3], side)
        either = torch.maximum(first, second)
        spare = (self.threat.eps**2 - delta.flatten(1).square().sum(1)).clamp_min(0) / delta.shape[1]
        budget = rows_like(spare, delta) + (delta * either).square().sum(
            (2, 3), keepdim=True
        )  # of each channel
        old = (delta * first).square().sum((2, 3), keepdim=True).sqrt()
        shape = bump(state.clean, words[:, 0], words[:, 1], side, (words[:, 4] & 1).bool())
        fresh = signs_of(words[:, 5:], delta) * shape + delta * first / (1e-12 + old)
        fresh = fresh / (1e-12 + fresh.square().sum((2, 3), keepdim=True).sqrt())
        moved = delta * (1 - either) + fresh * first * budget.sqrt()
        return self.threat.project(state.clean + self.threat.eps * self.threat.steepest(moved), state.clean)

    def finish(self, oracle: Oracle, state: State) -> Tensor:
        return state.current

    def describe(self) -> dict[str, object]:
        return {
            "attack": "square",
            **vars(self.threat),
            "objective": "cw_margin",
            "steps": self.steps,
            "share": self.share,
            "restarts": self.restarts,
        }


def found_margin(oracle: Oracle, scores: Tensor, y: Tensor) -> Tensor:
    """The margin (B,); scores that are no numbers are a find, but in float16, where they may just be too large."""
    nothing = -torch.inf if oracle.format == "fp16" else torch.inf
    return margin(scores, y).nan_to_num(nan=nothing, posinf=torch.inf, neginf=-torch.inf)


def signs_of(words: Tensor, images: Tensor) -> Tensor:
    """A sign for each channel from a word for each (B, C, 1, 1)."""
    return (2 * (words & 1) - 1).to(images.dtype)[:, :, None, None]
