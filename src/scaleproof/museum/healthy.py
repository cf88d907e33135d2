"""Healthy networks, which no check may accuse: several architectures after a short training, and the package's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.checks import Check, examine, failed
from scaleproof.data import load
from scaleproof.images import Images
from scaleproof.models.classifier import Classifier
from scaleproof.models.preact import PreActResNet
from scaleproof.models.resnet import Bottleneck, ResNet
from scaleproof.models.specs import OWN, load_model

IMAGES, BATCH, STEPS = 512, 64, 48  # of the short training
EXAMINED = 256  # images among which a network that has learned little knows its way


class WithoutNorm(nn.Module):
    """Two convolutions and a head: no BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x).mean((2, 3)))
        return logits


class Attentive(nn.Module):
    """Patches, one layer of attention, a head: no convolution, no BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Linear(3 * 8 * 8, 32)
        self.places = nn.Parameter(0.1 * torch.randn(16, 32))
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        cut = x.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        tokens = self.patches(cut) + self.places
        mixed, _ = self.attention(tokens, tokens, tokens)
        logits: Tensor = self.head(self.norm(tokens + mixed).mean(1))
        return logits


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 64), nn.Tanh(), nn.Linear(64, 10))


NETWORKS: Mapping[str, Callable[[], nn.Module]] = {
    "without BatchNorm": WithoutNorm,
    "pre-activation": lambda: PreActResNet((8, 16), 1, stem=8),
    "bottlenecks": lambda: ResNet(Bottleneck, (1, 1), width=8),
    "perceptron": perceptron,
    "attention": Attentive,
}
HEALTHY = (*OWN, *NETWORKS)


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What the checks say about one healthy network."""

    network: str
    checks: tuple[Check, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "network": self.network,
            "failed": list(failed(self.checks)),
            "checks": [check.as_json() for check in self.checks],
        }


def examined(name: str, seed: int = 0) -> Examined:
    """One healthy network, examined on images that it has learned something about."""
    own = name in OWN
    network = load_model(name).classifier if own else Classifier(trained(name, seed))
    images: Images = load("sample") if own else load("sample-train").first(EXAMINED)
    surrogate = load_model("undefended").classifier
    return Examined(network=name, checks=examine(network, images, surrogate=surrogate, seed=seed))


def trained(name: str, seed: int = 0) -> nn.Module:
    """A network of some architecture after a short training on the sample."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = NETWORKS[name]()
    x, y = load("sample-train").batch(0, IMAGES)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for rows in batches():
        optimizer.zero_grad()
        F.cross_entropy(net(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return net.eval()


def batches() -> Iterator[slice]:
    for step in range(STEPS):
        first = BATCH * step % IMAGES
        yield slice(first, first + BATCH)
