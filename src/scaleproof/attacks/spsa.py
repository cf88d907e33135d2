"""SPSA (Uesato et al. 2018): gradients from differences of logits along random signs, followed by Adam. Black box."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from torch import Tensor

from scaleproof.attacks.base import Format, State, at_least
from scaleproof.losses import margin
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.threat import DEFAULT_THREAT, Threat

FIRST_DECAY, SECOND_DECAY, TINY = 0.9, 0.999, 1e-8  # of Adam
BITS = 32  # signs from one random word


@dataclass(frozen=True, kw_only=True)
class SPSAState(State):
    first: Tensor  # (B, ...) Adam's mean of the gradient
    second: Tensor  # (B, ...) and of its square
    rng: Rng
    iteration: int = 0


@dataclass(frozen=True, kw_only=True)
class SPSA:
    """`steps` iterations of `samples` random directions, two queries each, on the margin of the logits."""

    threat: Threat = DEFAULT_THREAT
    steps: int = 100
    samples: int = 128
    difference: float = 0.001  # delta in the paper
    rate: float = 0.01
    most_images: int = 4096  # of one forward pass
    restarts: int = 1
    name: str = "spsa"
    label: str = "SPSA"
    scale_invariant = False
    needs_features = False
    coarsest: ClassVar[Format] = "float32"  # differences over a thousandth of the pixel range

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, samples=self.samples, most_images=self.most_images)
        for name, number in (("difference", self.difference), ("rate", self.rate)):
            if not 0 < number < float("inf"):
                raise ValueError(f"{name} must be finite and > 0, got {number}")

    @property
    def pairs_over(self) -> float:
        return self.difference

    def for_classes(self, classes: int) -> tuple[SPSA, tuple[str, ...]]:
        return self, ()

    def init(self, oracle: Oracle, clean: Tensor, y: Tensor, index: Tensor, rng: Rng) -> SPSAState:
        nothing = torch.zeros_like(clean)
        return SPSAState(
            index=index, clean=clean, y=y, current=clean, visited=clean, logits=oracle.logits(clean),
            first=nothing, second=nothing, rng=rng,
        )  # fmt: skip

    def step(self, oracle: Oracle, state: State) -> SPSAState:
        state = cast(SPSAState, state)
        slope = self.estimate(oracle, state)
        count = state.iteration + 1
        first = FIRST_DECAY * state.first + (1 - FIRST_DECAY) * slope
        second = SECOND_DECAY * state.second + (1 - SECOND_DECAY) * slope.square()
        size = (second / (1 - SECOND_DECAY**count)).sqrt() + TINY
        moved = state.current + self.rate * first / (1 - FIRST_DECAY**count) / size
        moved = self.threat.project(moved, state.clean)
        logits = oracle.logits(moved)
        return replace(
            state, current=moved, visited=moved, logits=logits, first=first, second=second, iteration=count
        )

    def estimate(self, oracle: Oracle, state: SPSAState) -> Tensor:
        """The mean over random signs v of (f(x + delta v) - f(x - delta v)) / (2 delta) v, f being the margin."""
        total, done = torch.zeros_like(state.current), 0
        group = max(1, self.most_images // (2 * len(state.current)))
        while done < self.samples:
            count = min(group, self.samples - done)
            signs = self.signs(state, done, count)  # (B, count, ...)
            labels = state.y.repeat_interleave(count)
            sides = oracle.both_sides(state.current, signs, self.difference)
            ahead, behind = (margin(logits, labels) for logits in sides)
            slopes = (ahead - behind) / (2 * self.difference)
            weights = (
                slopes.nan_to_num(0.0, 0.0, 0.0).view(-1, count).to(signs.dtype)
            )  # those that are numbers
            total += torch.einsum("bs,bs...->b...", weights, signs)
            done += count
        return total / self.samples

    def signs(self, state: SPSAState, first: int, count: int) -> Tensor:
        """Random signs for samples `first` on; each sample of an image has its own draw, however they are grouped."""
        pixels, batch = state.current[0].numel(), len(state.index)
        samples = torch.arange(first, first + count, device=state.index.device)
        draws = (state.iteration * self.samples + samples).repeat(batch)
        words = state.rng.words(state.index.repeat_interleave(count), -(-pixels // BITS), draw=draws)
        bits = (words[:, :, None] >> torch.arange(BITS, device=words.device)) & 1
        signs = (2 * bits - 1).to(state.current.dtype).flatten(1)[:, :pixels]
        return signs.reshape(batch, count, *state.current.shape[1:])

    def finish(self, oracle: Oracle, state: State) -> Tensor:
        return state.current

    def describe(self) -> dict[str, object]:
        return {
            "attack": "spsa",
            **vars(self.threat),
            "objective": "cw_margin",
            "steps": self.steps,
            "samples": self.samples,
            "difference": self.difference,
            "rate": self.rate,
            "restarts": self.restarts,
        }
