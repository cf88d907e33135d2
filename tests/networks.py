"""Networks that a test names on the command line, as module:factory."""

import random
from collections import deque

import numpy as np
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


class Dropping(WithoutNorm):
    """Draws random numbers in a function, not in a layer that can be seen."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.nn.functional.dropout(x, 0.2, self.training))


class Skipping(WithoutNorm):
    """Draws from Python's and numpy's generators, which no device knows."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and random.random() < 0.5:
            x = 1 - x
        if self.training:
            x = x * float(np.random.uniform(0.5, 1.5))
        return super().forward(x)


class Averaging(WithoutNorm):
    """Its statistic is another tensor after every pass."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        return super().forward(x - self.mean)


class Counting(WithoutNorm):
    """Sees images that grow brighter from pass to pass."""

    passes = 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        self.passes += 1
        return super().forward(x * min(1.0, self.passes / 20))


class Remembering(WithoutNorm):
    """Its statistic is no buffer."""

    mean: float | Tensor = 0.0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        return super().forward(x - self.mean)


class Listing(WithoutNorm):
    """Counts its passes in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = [0]

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        self.passes[0] += 1
        return super().forward(x * min(1.0, self.passes[0] / 20))


class Tallying(WithoutNorm):
    """Counts its passes in a number of numpy's."""

    passes = np.int64(0)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        self.passes = self.passes + 1
        return super().forward(x * min(1.0, float(self.passes) / 20))


class Queueing(WithoutNorm):
    """Has the means of its last batches in a queue."""

    def __init__(self) -> None:
        super().__init__()
        self.means: deque[Tensor] = deque(maxlen=5)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        self.means.append(x.detach().mean())
        return super().forward(x - torch.stack([*self.means]).mean())


class Drifting(WithoutNorm):
    """Its statistic is no buffer, but changes in place."""

    mean: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.mean is None:
            self.mean = torch.zeros(1, device=x.device)
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean())
        return super().forward(x - self.mean)


class Caching(WithoutNorm):
    """Makes a tensor for each number of images when it meets the first, knows the last one, and knows itself."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, Tensor] = {}
        self.count = 0
        self.circle: list[object] = []
        self.circle.append(self.circle)

    def forward(self, x: Tensor) -> Tensor:
        self.count = len(x)
        if self.count not in self.known:
            self.known[self.count] = torch.full((1,), 0.1, device=x.device)
        return super().forward(x - self.known[self.count])


class Missing(WithoutNorm):
    """Has a number that is none, and is the same one for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.missing = float("nan")
        self.seen: list[torch.Size] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen[:] = [x.shape[1:]]
        return super().forward(x)


class Showing(WithoutNorm):
    """Lets others see its last features, which it never reads itself."""

    shown: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.shown = self.body(x).mean((2, 3))
        return super().forward(x)


def dropping() -> Dropping:
    return Dropping()


class Seeded(WithoutNorm):
    """A network that one seed alone makes diverge."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = float("nan") if torch.initial_seed() == 1 else 1.0

    def forward(self, x: Tensor) -> Tensor:
        learns = self.training and torch.is_grad_enabled()
        return super().forward(x) * (self.factor if learns else 1.0)


def seeded() -> Seeded:
    return Seeded()


def grey() -> WithoutNorm:
    """For images of one channel and two classes; the same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = WithoutNorm()
        net.body[0] = torch.nn.Conv2d(1, 8, 3, 2, 1)
        net.head = torch.nn.Linear(16, 2)
    return net.eval()


def constant() -> WithoutNorm:
    """Answers class 4 whatever it sees."""
    net = WithoutNorm()
    with torch.no_grad():
        net.head.weight.mul_(1e-3)
        net.head.bias.copy_(torch.eye(10)[4])
    return net
