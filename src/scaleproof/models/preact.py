"""Pre-activation networks: PreActResNet-18 (He et al. 2016b) and WideResNet (Zagoruyko and Komodakis 2016)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PreActBlock(nn.Module):
    """BatchNorm, ReLU, convolution, twice; a projecting shortcut starts from the activated input."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        same = stride == 1 and inputs == width
        self.shortcut = None if same else nn.Conv2d(inputs, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x))
        out = self.conv2(F.relu(self.bn2(self.conv1(active))))
        joined: Tensor = out + (x if self.shortcut is None else self.shortcut(active))
        return joined


class PreActResNet(nn.Module):
    """`features` maps images to one vector each; `head` is the last linear layer."""

    def __init__(self, widths: Sequence[int], depth: int, *, stem: int, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, stem, 3, 1, 1, bias=False)
        blocks: list[nn.Module] = []
        inputs = stem
        for stage, width in enumerate(widths):
            for position in range(depth):
                blocks.append(PreActBlock(inputs, width, 2 if stage > 0 and position == 0 else 1))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.bn = nn.BatchNorm2d(inputs)
        self.head = nn.Linear(inputs, classes)

    def features(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn(self.blocks(self.conv1(x))))
        return torch.mean(out, dim=(2, 3))  # (B, D)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits

    def foldable(self) -> Iterator[tuple[str, str]]:
        """The inner BatchNorm of each block; the first one of a block follows a sum and stays."""
        for name, _ in self.blocks.named_children():
            yield f"blocks.{name}.conv1", f"blocks.{name}.bn2"


def preact_resnet18(*, classes: int = 10) -> PreActResNet:
    return PreActResNet((64, 128, 256, 512), 2, stem=64, classes=classes)


def wide_resnet(depth: int, factor: int, *, classes: int = 10) -> PreActResNet:
    if (depth - 4) % 6:
        raise ValueError(f"the depth of a WideResNet must be 6 n + 4, got {depth}")
    widths = [16 * factor, 32 * factor, 64 * factor]
    return PreActResNet(widths, (depth - 4) // 6, stem=16, classes=classes)
