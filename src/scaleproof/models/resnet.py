"""ResNet with the CIFAR stem (He et al. 2016): a 3x3 convolution, no max pooling, four stages."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 convolutions, and a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.shortcut = shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        return F.relu(self.bn3(self.conv3(out)) + self.shortcut(x))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The identity where shapes agree, a projection (1x1 convolution and BatchNorm) where they do not."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """`features` maps images to one vector each; `head` is the last linear layer."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, ...],
        *,
        width: int = 64,
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        inputs = width
        for stage, depth in enumerate(depths):
            for position in range(depth):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(block(inputs, width * 2**stage, stride))
                inputs = width * 2**stage * block.expansion
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def features(self, x: Tensor) -> Tensor:
        out = self.blocks(F.relu(self.bn1(self.conv1(x))))
        return torch.mean(out, dim=(2, 3))  # (B, D)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits

    def foldable(self) -> Iterator[tuple[str, str]]:
        """Names of each convolution and of the BatchNorm that follows it at once."""
        yield "conv1", "bn1"
        for name, module in self.blocks.named_children():
            path = f"blocks.{name}"
            for number in (1, 2, 3) if isinstance(module, Bottleneck) else (1, 2):
                yield f"{path}.conv{number}", f"{path}.bn{number}"
            if isinstance(module.shortcut, nn.Sequential):
                yield f"{path}.shortcut.0", f"{path}.shortcut.1"


def resnet18(*, classes: int = 10, width: int = 64) -> ResNet:
    return ResNet(BasicBlock, (2, 2, 2, 2), width=width, classes=classes)


def resnet50(*, classes: int = 10) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), classes=classes)


def resnet_small(*, classes: int = 10) -> ResNet:
    """ResNet-18 a quarter as wide (0.7 million parameters): the network of the demo."""
    return resnet18(classes=classes, width=16)


def resnet_tiny(*, classes: int = 10) -> ResNet:
    """Three blocks of 8, 16 and 32 channels (20 thousand parameters): trained in minutes on a CPU."""
    return ResNet(BasicBlock, (1, 1, 1), width=8, classes=classes)
