"""Networks whose analysis is known or quick, for the tests of analysis."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from helpers import LinearNet, SmallConvNet, decisions, images
from scaleproof.analysis import Subject
from scaleproof.threat import Threat

EPS = 0.03
THREAT = Threat(eps=EPS)


def linear_case() -> tuple[LinearNet, Tensor, Tensor]:
    """A linear network, images, and its decisions on them."""
    net = LinearNet().eval()
    x = images(24)
    return net, x, decisions(net, x)


def conv_subject(eps: float = EPS) -> tuple[SmallConvNet, Subject]:
    """A small network, and it with images and its decisions on them as the subject of an analysis."""
    net = SmallConvNet().eval()
    x = images(12, (3, 8, 8))
    return net, Subject.of(net, (x, decisions(net, x)), threat=Threat(eps=eps))


class Normed(nn.Module):
    """A network with every kind of parameter that must stay, and one that must move."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.layer = nn.LayerNorm((4, 6, 6))
        self.head = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(self.norm(self.conv(x))).mean((2, 3)))
        return logits


def without_seconds(value: Any) -> Any:
    """The document without what a clock said."""
    if isinstance(value, Mapping):
        return {name: without_seconds(one) for name, one in value.items() if name != "seconds"}
    return [without_seconds(one) for one in value] if isinstance(value, list | tuple) else value
