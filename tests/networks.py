"""Networks that a test names on the command line, as module:factory."""

import torch
from torch import Tensor, nn

from helpers import SmallConvNet


class WithoutNorm(nn.Module):
    """No BatchNorm: what happens to an image does not depend on its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x).mean((2, 3)))
        return logits


def without_norm() -> WithoutNorm:
    return WithoutNorm()


class Noisy(WithoutNorm):
    """Answers differently each time."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 0.1 * torch.randn_like(x))


def noisy() -> Noisy:
    return Noisy().eval()


def small() -> SmallConvNet:
    """The same weights every time."""
    net = SmallConvNet()
    net.eval()
    return net


def other() -> SmallConvNet:
    """As small, with other weights."""
    return SmallConvNet(seed=1).eval()
