"""Small networks of every kind that a Classifier must understand, and of kinds it must refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.models.architectures import build
from scaleproof.models.specs import import_timm


class Plain(nn.Module):
    """A convolution, pooling and a linear head; `change` is what happens to the head's output."""

    def __init__(self, classes: int = 10, change: Callable[[Tensor, Tensor], Any] | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 3, 2, 1)
        self.norm = nn.BatchNorm2d(12)
        self.fc = nn.Linear(12, classes)
        self.change = change

    def forward(self, x: Tensor) -> Any:
        features = F.relu(self.norm(self.conv(x))).mean(dim=(2, 3))
        logits = self.fc(features)
        return logits if self.change is None else self.change(logits, features)


class Normalise(nn.Module):
    """Normalisation as its own layer."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - 0.45) / 0.25


class Wrapper(nn.Module):
    """A network inside another that normalises, with dropout of its own that reads its mode."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        return self.inner(F.dropout((x - 0.45) / 0.25, 0.5, self.training))


class Temperature(nn.Module):
    """A learned positive temperature after the head."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Plain()
        self.log_temperature = nn.Parameter(torch.tensor(-1.3))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) / self.log_temperature.exp()


class ConvolutionHead(nn.Module):
    """A 1x1 convolution as the head, before or after the pooling."""

    def __init__(self, pooled: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 3, 2, 1)
        self.classify = nn.Conv2d(12, 10, 1)
        self.pooled = pooled

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.conv(x))
        out = out.mean(dim=(2, 3), keepdim=True) if self.pooled else out
        return self.classify(out).mean(dim=(2, 3)) if not self.pooled else self.classify(out).flatten(1)


class Tokens(nn.Module):
    """The head sees every token, and the mean of its answers is the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 12, 8, 8)
        self.head = nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x).flatten(2).transpose(1, 2)).mean(dim=1)


class TwoHeads(nn.Module):
    """Two linear layers of the same shape; the first gives the logits and the second runs last."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3 * 16 * 16, 12)
        self.main = nn.Linear(12, 10)
        self.auxiliary = nn.Linear(12, 10)
        self.seen: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        features = F.relu(self.body(x.flatten(1)))
        logits = self.main(features)
        self.seen = self.auxiliary(features).detach()
        return logits


class HeadTwice(TwoHeads):
    """The head runs on the features and again on their negative."""

    def forward(self, x: Tensor) -> Tensor:
        features = F.relu(self.body(x.flatten(1)))
        self.seen = self.main(-features).detach()
        return self.main(features)


class HeadNever(TwoHeads):
    """The head's weight is used by hand; the module never runs."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.relu(self.body(x.flatten(1))), self.main.weight, self.main.bias)


class Stumbling(Plain):
    """A network that raises after its head has run."""

    def forward(self, x: Tensor) -> Any:
        super().forward(x)
        raise RuntimeError("stumbled")


def settled(net: nn.Module) -> nn.Module:
    """Give BatchNorm statistics and biases values that are not the trivial ones."""
    generator = torch.Generator().manual_seed(5)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
            module.running_mean.normal_(0, 0.1, generator=generator)
    return net.eval()


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """A network whose weights depend on nothing else."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return settled(make())


def images(rows: int = 5, size: int = 16) -> Tensor:
    """A batch of random images in [0, 1]."""
    return torch.rand(rows, 3, size, size, generator=torch.Generator().manual_seed(7))


def timm_model(name: str, **options: Any) -> nn.Module:
    """A timm model with random weights, or a skipped test where timm is not installed."""
    try:
        timm = import_timm()
    except ValueError:
        pytest.skip("timm is not installed")
    net: nn.Module = timm.create_model(name, pretrained=False, num_classes=10, **options)
    return net


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network, the name of its head and the size of its images."""

    make: Callable[[], nn.Module]
    head: str
    size: int = 16


CASES = {
    "plain": Case(make=Plain, head="fc"),
    "sequential": Case(
        make=lambda: nn.Sequential(nn.Flatten(), nn.Linear(768, 12), nn.ReLU(), nn.Linear(12, 10)), head="3"
    ),
    "linear itself": Case(make=lambda: nn.Sequential(nn.Flatten(), nn.Linear(768, 10)), head="1"),
    "two classes": Case(make=lambda: Plain(classes=2), head="fc"),
    "normalising wrapper": Case(make=lambda: Wrapper(Plain()), head="inner.fc"),
    "constant scale": Case(make=lambda: Plain(change=lambda logits, _: 30 * logits), head="fc"),
    "two classes, constant scale": Case(make=lambda: Plain(2, lambda logits, _: 30 * logits), head="fc"),
    "in-place scale": Case(make=lambda: Plain(change=lambda logits, _: logits.mul_(0.1)), head="fc"),
    "learned temperature": Case(make=Temperature, head="inner.fc"),
    "per-sample norm": Case(
        make=lambda: Plain(change=lambda logits, z: logits / z.norm(dim=1, keepdim=True)), head="fc"
    ),
    "log-softmax": Case(make=lambda: Plain(change=lambda logits, _: logits.log_softmax(dim=1)), head="fc"),
    "1x1 convolution": Case(make=ConvolutionHead, head="classify"),
    "two heads": Case(make=TwoHeads, head="main"),
    "timm resnet18": Case(make=lambda: timm_model("resnet18"), head="fc", size=32),
    "timm vit": Case(
        make=lambda: timm_model("vit_tiny_patch16_224", img_size=32, patch_size=8), head="head", size=32
    ),
    "timm convnext": Case(make=lambda: timm_model("convnext_atto"), head="head.fc", size=32),
    "timm efficientnet": Case(make=lambda: timm_model("efficientnet_b0"), head="classifier", size=32),
    "timm mobilenet": Case(make=lambda: timm_model("mobilenetv3_small_050"), head="classifier", size=32),
    "resnet18": Case(make=lambda: build("resnet18"), head="head"),
    "resnet50": Case(make=lambda: build("resnet50"), head="head"),
    "preact-resnet18": Case(make=lambda: build("preact-resnet18"), head="head"),
    "resnet-small": Case(make=lambda: build("resnet-small"), head="head"),
}
LONG_CASES = {
    "wrn-28-10": Case(make=lambda: build("wrn-28-10"), head="head"),
    "wrn-34-10": Case(make=lambda: build("wrn-34-10"), head="head"),
}
