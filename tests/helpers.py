"""Models whose worst case is known in closed form, and attacks that a test must catch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from scaleproof.attacks import PGD
from scaleproof.attacks.base import State
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.threat import Threat

SHAPE = (3, 4, 4)


class LinearNet(nn.Module):
    """Logits = W x + b on flattened pixels: features are the pixels themselves."""

    def __init__(self, classes: int = 2, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.Size(shape).numel()
        self.head = nn.Linear(inputs, classes)
        with torch.no_grad():
            self.head.weight.copy_(torch.randn(classes, inputs, generator=generator))
            middle = self.head.weight.sum(1) / 2
            self.head.bias.copy_(-middle)  # the grey image is undecided

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return logits


class SmallConvNet(nn.Module):
    """Two convolutions and a head: a real, if small, non-linear network."""

    def __init__(self, classes: int = 10, seed: int = 0, channels: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, channels, 3, 1, 1), nn.ReLU(), nn.Conv2d(channels, 2 * channels, 3, 2, 1), nn.ReLU()
        )
        self.head = nn.Linear(2 * channels, classes)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                spread = parameter.shape[1:].numel() ** -0.5 if parameter.dim() > 1 else 0.1
                parameter.copy_(spread * 3 * torch.randn(parameter.shape, generator=generator))
            self.head.bias -= self(images(64, (3, 8, 8), seed=99)).mean(0)  # all classes are met

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x).mean((2, 3)))
        return logits


def images(
    count: int, shape: tuple[int, ...] = SHAPE, seed: int = 1, low: float = 0.2, high: float = 0.8
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(count, *shape, generator=generator)


def decisions(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return net(x).argmax(1)


def worst_margin(net: LinearNet, x: Tensor, y: Tensor, threat: Threat) -> Tensor:
    """Smallest true-minus-other logit of a two-class linear model over the ball: exact, in float64.

    Linf with the pixel range is separable; l2 is exact where the ball does not touch the pixel range.
    """
    weight, bias = net.head.weight.double().detach(), net.head.bias.double().detach()
    direction = weight[y] - weight[1 - y]  # (B, D)
    flat = x.flatten(1).double()
    margin = (direction * flat).sum(1) + bias[y] - bias[1 - y]
    if threat.norm == "l2":
        return margin - threat.eps * direction.norm(dim=1)
    room = torch.where(direction > 0, flat, 1 - flat).clamp(max=threat.eps)
    return margin - (direction.abs() * room).sum(1)


@dataclass(frozen=True, kw_only=True)
class DoesNothing(PGD):
    """Returns the clean image."""

    name: str = "does-nothing"

    def step(self, oracle: Oracle, state: State) -> State:  # type: ignore[override]
        return state

    def finish(self, oracle: Oracle, state: State) -> Tensor:
        return state.clean


@dataclass(frozen=True, kw_only=True)
class Oversteps(PGD):
    """Leaves the ball by `excess`."""

    name: str = "oversteps"
    excess: float = 1e-6

    def finish(self, oracle: Oracle, state: State) -> Tensor:
        wider = replace(self.threat, eps=self.threat.eps + self.excess)
        return wider.project(state.clean + 1.0, state.clean)


@dataclass(frozen=True, kw_only=True)
class IgnoresSeed(PGD):
    """Starts from the global random state."""

    name: str = "ignores-seed"

    def init(self, oracle: Oracle, clean: Tensor, y: Tensor, index: Tensor, rng: Rng) -> State:  # type: ignore[override]
        other = Rng(int(torch.randint(1 << 30, ())), rng.attack, rng.restart)
        return super().init(oracle, clean, y, index, other)
