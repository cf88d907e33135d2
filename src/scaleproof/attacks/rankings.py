"""Rankings: which of the wrong classes a targeted attack should try first.

The clean logits, by which targets are usually ranked, say how near a class is, not how fast one gets there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from scaleproof.attacks.base import likeliest_wrong
from scaleproof.losses import cw_margin, logit_gap, targeted
from scaleproof.oracle import Oracle
from scaleproof.threat import Threat

TOWARDS = targeted(cw_margin)
MOST = 9


class Ranking(Protocol):
    """An order of the likeliest wrong classes, of which it looks at so many."""

    @property
    def among(self) -> int: ...

    @property
    def name(self) -> str: ...

    def promise(self, oracle: Oracle, threat: Threat, clean: Tensor, y: Tensor, target: Tensor) -> Tensor:
        """A number a row that is larger where the target is the better one to try (B,)."""


@dataclass(frozen=True)
class Scouts:
    """How far one step of size eps towards the class gets: the margin of the best wrong class there."""

    among: int = MOST
    name = "scouts"

    def __post_init__(self) -> None:
        check_count(self.among)

    def promise(self, oracle: Oracle, threat: Threat, clean: Tensor, y: Tensor, target: Tensor) -> Tensor:
        at = oracle.value_and_grad(TOWARDS, clean, torch.stack([y, target], dim=1))
        ahead = threat.project(clean + threat.eps * threat.steepest(at.gradient), clean)
        return oracle.value(cw_margin, ahead, y)[0]


@dataclass(frozen=True)
class Slopes:
    """How near the class is for a network that is linear around the image: MALT (Melamed et al. 2024)."""

    among: int = MOST
    name = "slopes"

    def __post_init__(self) -> None:
        check_count(self.among)

    def promise(self, oracle: Oracle, threat: Threat, clean: Tensor, y: Tensor, target: Tensor) -> Tensor:
        at = oracle.value_and_grad(logit_gap, clean, torch.stack([y, target], dim=1))
        steepness = threat.dual_size(at.gradient)
        return at.value / steepness.clamp_min(torch.finfo(steepness.dtype).tiny)


def check_count(among: int) -> None:
    if among < 1:
        raise ValueError(f"a ranking must be among >= 1 classes, got {among}")


def likeliest(logits: Tensor, y: Tensor, count: int) -> Tensor:
    """So many of the wrong classes, the likeliest first (B, N); all of them where there are no more."""
    places = range(1, min(count, logits.shape[1] - 1) + 1)
    return torch.stack([likeliest_wrong(logits, y, place) for place in places], dim=1)


def ordered(ranking: Ranking, oracle: Oracle, threat: Threat, clean: Tensor, y: Tensor) -> Tensor:
    """The classes that a ranking looks at, the best one to try first (B, N)."""
    classes = likeliest(oracle.logits(clean), y, ranking.among)
    found = [ranking.promise(oracle, threat, clean, y, target) for target in classes.unbind(1)]
    return classes.gather(1, torch.stack(found, dim=1).argsort(dim=1, descending=True, stable=True))
