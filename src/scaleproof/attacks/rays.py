"""RayS (Chen and Gu 2020): the nearest decision boundary along rays of signs, from decisions alone. Black box, linf.

A ray is a sign for each pixel. Blocks of signs are flipped: all, then halves, quarters, and so on; a flip that is still
misclassified at the best radius is kept where bisection finds a smaller one. One step is one query of each image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from torch import Tensor

from scaleproof.attacks.base import Format, State, at_least
from scaleproof.losses import misclassified
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.threat import DEFAULT_THREAT, Threat, rows_like

TOLERANCE = 1e-3  # of the bisection, as a length under l2: a ray of N signs is sqrt(N) long
OUTWARDS = 10  # steps from where a coarse search ends to where float32 agrees, each twice the one before
OUTWARDS_SHARE = 1e-4  # of the radius that the first of them is longer than the bisection's tolerance


@dataclass(frozen=True, kw_only=True)
class RaySState(State):
    signs: Tensor  # (B, N) the best ray
    radius: Tensor  # (B,) where it meets the boundary; one beyond which nothing was found
    hit: Tensor  # (B,) whether anything was found
    low: Tensor  # (B,) bisection: correctly classified here
    high: Tensor  # (B,) and misclassified here
    searching: Tensor  # (B,) whether a bisection is under way
    level: Tensor  # (B,) blocks are N / 2^level pixels long; -1 before the first try, which flips nothing
    block: Tensor  # (B,) which of them is tried


@dataclass(frozen=True, kw_only=True)
class RayS:
    """`steps` queries; under `Threat(eps=1)` the sizes found are distances to the boundary (ADBD is their mean)."""

    threat: Threat = DEFAULT_THREAT
    steps: int = 10_000
    name: str = "rays"
    label: str = "RayS"
    restarts = 1  # it draws nothing: a second run would be the first
    scale_invariant = True
    needs_features = False
    coarsest: ClassVar[Format] = "fp16"
    capturable = True

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps)
        if not self.threat.is_box:
            raise ValueError(f"RayS is an attack under linf, got {self.threat.norm}")

    def for_classes(self, classes: int) -> tuple[RayS, tuple[str, ...]]:
        return self, ()

    def init(self, oracle: Oracle, clean: Tensor, y: Tensor, index: Tensor, rng: Rng) -> RaySState:
        ones = torch.ones_like(index, dtype=clean.dtype)
        nothing = torch.zeros_like(index)
        return RaySState(
            index=index, clean=clean, y=y, current=clean, visited=clean, logits=oracle.logits(clean),
            signs=torch.ones_like(clean).flatten(1), radius=ones, hit=nothing.bool(), low=torch.zeros_like(ones),
            high=ones, searching=nothing.bool(), level=nothing - 1, block=nothing,
        )  # fmt: skip

    def step(self, oracle: Oracle, state: State) -> RaySState:
        state = cast(RaySState, state)
        ray = torch.where(flipped(state), -state.signs, state.signs)
        radius = torch.where(state.searching, (state.low + state.high) / 2, state.radius)
        point = along(state.clean, ray, radius)
        logits = oracle.logits(point)
        state = answered(state, ray, radius, misclassified(logits, state.true_class))
        inside = radius <= self.threat.eps
        return replace(
            state,
            visited=torch.where(rows_like(inside, point).bool(), point, state.clean),
            logits=torch.where(inside[:, None], logits, clean_like(logits, state.true_class)),
        )

    def finish(self, oracle: Oracle, state: State) -> Tensor:
        state = settled(cast(RaySState, state))
        radius = convincing(oracle, state)
        found = state.hit & (radius <= self.threat.eps)
        example = along(state.clean, state.signs, radius)
        return torch.where(rows_like(found, example).bool(), example, state.clean)

    def describe(self) -> dict[str, object]:
        return {
            "attack": "rays",
            **vars(self.threat),
            "objective": "decision",
            "steps": self.steps,
            "restarts": self.restarts,
        }


def along(clean: Tensor, signs: Tensor, radius: Tensor) -> Tensor:
    """The image at a radius along a ray."""
    return (clean + rows_like(radius, clean) * signs.view_as(clean)).clamp(0, 1)


def settled(state: RaySState) -> RaySState:
    """With what a bisection that was cut short had found so far."""
    better = state.searching & ((state.high < state.radius) | ~state.hit)
    ray = torch.where(flipped(state), -state.signs, state.signs)
    return replace(
        state,
        signs=torch.where(better[:, None], ray, state.signs),
        radius=torch.where(better, state.high, state.radius),
        hit=state.hit | better,
    )


def convincing(oracle: Oracle, state: RaySState) -> Tensor:
    """The radius, a little larger where the search's rounding ended a hair short of the boundary in float32 (B,)."""
    radius = state.radius
    first = tolerance(state) + OUTWARDS_SHARE * radius
    for doubling in range(OUTWARDS):
        logits = oracle.judge(along(state.clean, state.signs, radius))
        short = state.hit & (~misclassified(logits, state.true_class))
        if not bool(short.any()):
            break
        radius = torch.where(short, radius + first * 2**doubling, radius)
    return radius


def tolerance(state: RaySState) -> float:
    return TOLERANCE / math.sqrt(state.signs.shape[1])


def flipped(state: RaySState) -> Tensor:
    """Which signs of each row the current try flips (B, N); none in the very first."""
    pixels = state.signs.shape[1]
    blocks = 2 ** state.level.clamp_min(0)
    length = -(-pixels // blocks)
    start = state.block * length
    place = torch.arange(pixels, device=state.signs.device)[None]
    inside = (place >= start[:, None]) & (place < (start + length)[:, None])
    return inside & (state.level >= 0)[:, None]


def answered(state: RaySState, ray: Tensor, radius: Tensor, wrong: Tensor) -> RaySState:
    """What an answer changes: a bisection narrows or ends, a try starts one or the next block comes."""
    starts = ~state.searching & wrong
    low = torch.where(
        starts, torch.zeros_like(radius), torch.where(state.searching & ~wrong, radius, state.low)
    )
    high = torch.where(starts | (state.searching & wrong), radius, state.high)
    ends = (state.searching | starts) & (high - low < tolerance(state))
    given_up = ~state.searching & ~wrong
    better = ends & ((high < state.radius) | ~state.hit)
    level, block = advanced(state, ends | given_up)
    return replace(
        state,
        signs=torch.where(better[:, None], ray, state.signs),
        radius=torch.where(better, high, state.radius),
        hit=state.hit | better,
        low=low,
        high=high,
        searching=(state.searching | starts) & ~ends,
        level=level,
        block=block,
    )


def advanced(state: RaySState, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The next block of these rows, and the next level after the last one; from the finest it starts over."""
    pixels, block = state.signs.shape[1], state.block + 1
    blocks = 2 ** state.level.clamp_min(0)
    full = (block >= blocks) | (block * -(-pixels // blocks) >= pixels)  # where they do not divide evenly
    finest = math.ceil(math.log2(pixels))
    level = torch.where(full, (state.level + 1) % (finest + 1), state.level)
    block = torch.where(full, torch.zeros_like(block), block)
    return torch.where(rows, level, state.level), torch.where(rows, block, state.block)


def clean_like(logits: Tensor, y: Tensor) -> Tensor:
    """Logits that say the true class, for points that do not count."""
    return torch.zeros_like(logits).scatter(1, y[:, None], 1.0)
