"""Sampled: an attack that looks at a random share of the images only, as an audit of those before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scaleproof.attacks.base import Attack, Format, State
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.threat import Threat

SUFFIX = " (audit)"  # of a label
KEY = "audit"  # one sample for all audits of a run


@dataclass(frozen=True)
class Sampled:
    """`attack` on each of N images with probability count / N; which ones depends on the seed and the image alone."""

    attack: Attack
    count: int = 600

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"the count of an audit must be >= 1, got {self.count}")

    def takes(self, rows: NDArray[np.int64], seed: int, total: int) -> NDArray[np.bool_]:
        """Which of these rows of `total` images are in the sample."""
        chance = Rng(seed, KEY).uniform(torch.from_numpy(rows), (1,))[:, 0]
        chosen: NDArray[np.bool_] = (chance < self.count / total).numpy()
        return chosen

    @property
    def name(self) -> str:
        return f"{self.attack.name}-audit"

    @property
    def label(self) -> str:
        return f"{self.attack.label}{SUFFIX}"

    @property
    def threat(self) -> Threat:
        return self.attack.threat

    @property
    def steps(self) -> int:
        return self.attack.steps

    @property
    def restarts(self) -> int:
        return self.attack.restarts

    @property
    def scale_invariant(self) -> bool:
        return self.attack.scale_invariant

    @property
    def needs_features(self) -> bool:
        return self.attack.needs_features

    @property
    def capturable(self) -> bool:
        return bool(getattr(self.attack, "capturable", False))

    @property
    def arrive(self) -> Any:
        return getattr(self.attack, "arrive", None)

    @property
    def pairs_over(self) -> float | None:
        return getattr(self.attack, "pairs_over", None)

    @property
    def coarsest(self) -> Format:
        return self.attack.coarsest

    def for_classes(self, classes: int) -> tuple[Sampled, tuple[str, ...]]:
        fitted, notes = self.attack.for_classes(classes)
        return replace(self, attack=fitted), notes

    def init(self, oracle: Oracle, clean: Tensor, y: Tensor, index: Tensor, rng: Rng) -> State:
        return self.attack.init(oracle, clean, y, index, rng)

    def step(self, oracle: Oracle, state: State) -> State:
        return self.attack.step(oracle, state)

    def finish(self, oracle: Oracle, state: State) -> Tensor:
        return self.attack.finish(oracle, state)

    def describe(self) -> dict[str, object]:
        return {**self.attack.describe(), "audit": self.count}


def whole(attack: Attack) -> Attack:
    """The attack behind an audit: a run that goes on with it in full is the same run."""
    return attack.attack if isinstance(attack, Sampled) else attack


def stages(attacks: Sequence[Attack]) -> list[list[Attack]]:
    """The attacks that come first, and the audits, which look at what is left; those of one sample together."""
    found: dict[int, list[Attack]] = {}
    for attack in attacks:
        found.setdefault(attack.count if isinstance(attack, Sampled) else 0, []).append(attack)
    return [found[size] for size in sorted(found)]


def check_audits(attacks: Sequence[Attack], mode: str) -> None:
    audits = [attack for attack in attacks if isinstance(attack, Sampled)]
    if audits and mode == "independent":
        raise ValueError(f"{audits[0].name} is an audit of what other attacks leave: give mode='cascade'")
    if len({audit.count for audit in audits}) > 1:
        raise ValueError(f"audits share one sample, got counts {', '.join(str(one.count) for one in audits)}")
