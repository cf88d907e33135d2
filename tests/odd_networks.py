"""Small networks that do something out of the ordinary before their first convolution."""

import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from their_networks import TheirResNet


class Normalised(nn.Module):
    """Mean and deviation as buffers, as most code has them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.5, 0.4, 0.3]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.2, 0.3, 0.4]).view(1, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = (x - self.mean) / self.std
        return result


class Around(nn.Module):
    """A small network of convolutions, with something done before it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.Linear(8, 4)
        self.table = [1.0, 1.0]

    def before(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(F.relu(self.bn(self.conv(self.before(x)))).mean((2, 3)))
        return out


class Rounded(Around):
    def before(self, x: Tensor) -> Tensor:
        return torch.round(x * 8) / 8


class Detached(Around):
    def before(self, x: Tensor) -> Tensor:
        return x.detach()


class WithoutGradient(Around):
    def before(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            blurred = F.avg_pool2d(x, 3, 1, 1)
        return 0.5 * x + 0.5 * blurred


class Noisy(Around):
    def before(self, x: Tensor) -> Tensor:
        return x + 0.01 * torch.randn_like(x)


class OwnTensor(Around):
    def before(self, x: Tensor) -> Tensor:
        return x + 0.01 * torch.randn(1, 3, 1, 1)


class PythonChance(Around):
    def before(self, x: Tensor) -> Tensor:
        return x * (1 + 0.01 * random.random())


class Looking(Around):
    def before(self, x: Tensor) -> Tensor:
        return 1 - x if x.mean() > 0.9 else x


class TwoAnswers(Around):
    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return (logits, logits)[0] if type(x) is Tensor else (logits, logits)  # type: ignore[return-value]


class Straight(torch.autograd.Function):
    """A function with a gradient that is not its own."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x + 0

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return -gradient


class OwnGradient(Around):
    def before(self, x: Tensor) -> Tensor:
        out: Tensor = Straight.apply(x)  # type: ignore[no-untyped-call]
        return out


class Curved(TheirResNet):
    """Named like a network of ours, and bent otherwise."""

    def forward(self, x: Tensor) -> Tensor:
        out = F.silu(self.bn1(self.conv1(x)))
        for stage in range(1, 5):
            out = self.get_submodule(f"layer{stage}")(out)
        logits: Tensor = self.get_submodule(self.called)(F.avg_pool2d(out, 4).flatten(1))
        return logits


class Halved(TheirResNet):
    """Named like a network of ours, of ReLUs alone, and another function."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x / 2)
