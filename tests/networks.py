"""Networks that a test names on the command line, as module:factory."""

import torch
from torch import Tensor

from helpers import SmallConvNet
from scaleproof.museum.healthy import WithoutNorm


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
