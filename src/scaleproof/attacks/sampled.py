"""Attacks that look at some of the images alone, and the stages of an evaluation that follow from it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

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


@dataclass(frozen=True, kw_only=True)
class Left:
    """Rows of `total` images, and what the attacks so far did to all of them."""

    rows: NDArray[np.int64]
    margins: Mapping[
        str, NDArray[np.floating[Any]]
    ]  # by attack: of an image's best example, above zero where broken
    total: int
    seed: int


@dataclass(frozen=True)
class Partial(ABC):
    """`attack`, on some images."""

    attack: Attack

    def __post_init__(self) -> None:
        if isinstance(self.attack, type | str):
            raise ValueError(f"an attack must be made before it is given, as PGD(...), got {self.attack!r}")
        if isinstance(self.attack, Partial):
            raise ValueError(
                f"an attack on some images cannot be on some of them again, got {self.attack.name}"
            )

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def label(self) -> str: ...

    @abstractmethod
    def takes(self, left: Left) -> NDArray[np.bool_]:
        """Which of the rows that are left it looks at."""

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
    def targets(self) -> int | None:
        return getattr(self.attack, "targets", None)

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

    def for_classes(self, classes: int) -> tuple[Self, tuple[str, ...]]:
        fitted, notes = self.attack.for_classes(classes)
        return replace(self, attack=fitted), notes

    def init(self, oracle: Oracle, clean: Tensor, y: Tensor, index: Tensor, rng: Rng) -> State:
        return self.attack.init(oracle, clean, y, index, rng)

    def step(self, oracle: Oracle, state: State) -> State:
        return self.attack.step(oracle, state)

    def finish(self, oracle: Oracle, state: State) -> Tensor:
        return self.attack.finish(oracle, state)


@dataclass(frozen=True)
class Sampled(Partial):
    """An audit: `attack` on each of N images with probability count / N, by the seed and the image alone."""

    count: int = 600

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count < 1:
            raise ValueError(f"the count of an audit must be >= 1, got {self.count}")

    def takes(self, left: Left) -> NDArray[np.bool_]:
        chance = Rng(left.seed, KEY).uniform(torch.from_numpy(left.rows), (1,))[:, 0]
        chosen: NDArray[np.bool_] = (chance < self.count / left.total).numpy()
        return chosen

    @property
    def name(self) -> str:
        return f"{self.attack.name}-audit"

    @property
    def label(self) -> str:
        return f"{self.attack.label}{SUFFIX}"

    def describe(self) -> dict[str, object]:
        return {**self.attack.describe(), "audit": self.count}


@dataclass(frozen=True)
class Nearest(Partial):
    """`attack` on that share of the images left which the attack called `by` brought nearest to the boundary."""

    share: float = 0.1
    by: str = "scouting"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise ValueError(
                f"the share of the nearest images must be above 0 and at most 1, got {self.share}"
            )

    def takes(self, left: Left) -> NDArray[np.bool_]:
        order = np.argsort(-left.margins[self.by][left.rows], kind="stable")
        chosen = np.zeros(len(left.rows), np.bool_)
        chosen[order[: math.ceil(Fraction(str(self.share)) * len(order))]] = True
        return chosen

    @property
    def name(self) -> str:
        return f"{self.attack.name}-nearest"

    @property
    def label(self) -> str:
        return f"{self.attack.label} (nearest {100 * self.share:g}%)"

    def describe(self) -> dict[str, object]:
        return {**self.attack.describe(), "nearest": self.share, "by": self.by}


def taken(attack: Attack, left: Left) -> NDArray[np.int64]:
    """The rows that an attack looks at: most take all that are left."""
    return left.rows[attack.takes(left)] if isinstance(attack, Partial) else left.rows


def whole(attack: Attack) -> Attack:
    """The attack behind an audit: a run that goes on with it in full is the same run."""
    return attack.attack if isinstance(attack, Sampled) else attack


def stages(attacks: Sequence[Attack]) -> list[list[Attack]]:
    """First the attacks on all images, then each on the nearest ones, then the audits, which share one sample."""
    plain = [attack for attack in attacks if not isinstance(attack, Partial)]
    near: list[list[Attack]] = [[attack] for attack in attacks if isinstance(attack, Nearest)]
    audits: list[Attack] = [attack for attack in attacks if isinstance(attack, Sampled)]
    return [stage for stage in (plain, *near, audits) if stage]


def check_stages(attacks: Sequence[Attack], mode: str) -> None:
    near = [attack for attack in attacks if isinstance(attack, Nearest)]
    audits = [attack for attack in attacks if isinstance(attack, Sampled)]
    if (audits or near) and mode == "independent":
        which = f"{audits[0].name} is an audit" if audits else f"{near[0].name} takes the nearest"
        raise ValueError(f"{which} of what other attacks leave: give mode='cascade'")
    if near and audits:
        raise ValueError(
            f"{near[0].name} and the audit {audits[0].name} both come last: give one kind of them"
        )
    first = [attack.name for attack in attacks if not isinstance(attack, Partial)]
    if near and any(attack.name in first for attack in attacks[attacks.index(near[0]) :]):
        raise ValueError(f"{near[0].name} runs when all attacks on all images have: give it after them")
    for attack in near:
        if attack.by not in first:
            raise ValueError(
                f"{attack.name} takes the images that {attack.by!r} brought nearest: give that attack too, got "
                f"{', '.join(first) or 'none'}"
            )
    counts = dict.fromkeys(str(audit.count) for audit in audits)
    if len(counts) > 1:
        raise ValueError(f"audits share one sample, got counts {', '.join(counts)}")
