"""Attacks that a test names on the command line, as module:function."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof import PGD, Threat


def their_pgd(model: nn.Module, x: Tensor, y: Tensor, eps: float = 8 / 255, steps: int = 10) -> Tensor:
    """PGD as people write it: with backward(), a random start and gradients left in the parameters."""
    found = (x + torch.empty_like(x).uniform_(-eps, eps)).clamp(0, 1)
    for _ in range(steps):
        found = found.detach().requires_grad_()
        F.cross_entropy(model(found), y).backward()
        assert found.grad is not None
        moved = found.detach() + eps / 4 * found.grad.sign()
        found = (x + (moved - x).clamp(-eps, eps)).clamp(0, 1)
    return found


def far(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return (x + 0.5).clamp(0, 1)


NOT_A_FUNCTION = 3
READY = PGD(steps=3, name="ready", label="Ready")


@dataclass(frozen=True, kw_only=True)
class Own(PGD):
    steps: int = 4
    name: str = "own"
    label: str = "Own"


class HandsOn(Own):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given, restarts=2)


class TellsLittle(Own):
    def describe(self) -> dict[str, object]:
        return {"attack": "little", "eps": self.threat.eps}


def made_of(threat: Threat, steps: int = 6) -> Own:
    return Own(threat=threat, steps=steps, name="made", label="Made")


def makes_none(threat: Threat) -> int:
    return 3


def breaks(threat: Threat) -> Own:
    raise KeyError("weights")


def with_threat(model: nn.Module, x: Tensor, y: Tensor, threat: Threat) -> Tensor:
    return x


class Needy(Own):
    def __init__(self, *, threat: Threat, strength: float) -> None:
        raise AssertionError("never made")
