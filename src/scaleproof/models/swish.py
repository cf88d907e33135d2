"""Networks as Gowal et al. 2020 and many after them have trained: pre-activation, Swish, padding as TensorFlow's.

A convolution of stride 2 looks at one row and one column beyond the right and lower edge, at none beyond the others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.models.architectures import renamed

WIDE = {
    "batchnorm_0": "bn1",
    "conv_0": "conv1",
    "batchnorm_1": "bn2",
    "conv_1": "conv2",
    "shortcut": "shortcut",
}
PREACT = {
    "batchnorm_0": "bn1", "conv_2d_1": "conv1", "batchnorm_1": "bn2", "conv_2d_2": "conv2", "shortcut": "shortcut",
}  # fmt: skip
IN_WIDE = re.compile(r"layer\.(\d+)\.block\.(\d+)\.(\w+)\.(\w+)")
IN_PREACT = re.compile(r"layer_(\d+)\.(\d+)\.(\w+)\.(\w+)")
OUTER = {"init_conv": "conv1", "conv_2d": "conv1", "batchnorm": "bn", "logits": "head"}


STATED = {  # what all of them do to images first, by the number of classes; their files do not say it
    10: ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
    100: ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


class SwishBlock(nn.Module):
    """BatchNorm, Swish, convolution, twice; a wide one's shortcut starts from the activated input."""

    def __init__(self, inputs: int, width: int, stride: int, *, wide: bool) -> None:
        super().__init__()
        self.wide, self.stride = wide, stride
        edge = 1 if stride == 1 else 0
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, edge, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        same = inputs == width and (wide or stride == 1)
        size, border = (1, 0) if wide else (3, edge)
        self.shortcut = None if same else nn.Conv2d(inputs, width, size, stride, border, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.silu(self.bn1(x))
        out = self.conv2(F.silu(self.bn2(self.conv1(self.padded(active)))))
        start = active if self.wide else self.padded(x)
        kept = x if self.shortcut is None else self.shortcut(start)
        joined: Tensor = kept + out
        return joined

    def padded(self, x: Tensor) -> Tensor:
        return x if self.stride == 1 else F.pad(x, (0, 1, 0, 1))


class SwishNet(nn.Module):
    """`features` maps images to one vector each; `head` is the last linear layer."""

    def __init__(
        self, widths: Sequence[int], depths: Sequence[int], *, stem: int, wide: bool, classes: int = 10
    ) -> None:
        super().__init__()
        self.wide, self.depths = wide, tuple(depths)
        self.conv1 = nn.Conv2d(3, stem, 3, 1, 1, bias=False)
        blocks: list[nn.Module] = []
        inputs = stem
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            for position in range(depth):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(SwishBlock(inputs, width, stride, wide=wide))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.bn = nn.BatchNorm2d(inputs)
        self.head = nn.Linear(inputs, classes)

    def features(self, x: Tensor) -> Tensor:
        out = F.silu(self.bn(self.blocks(self.conv1(x))))
        return torch.mean(out, dim=(2, 3))  # (B, D)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def swish_named(tensors: Mapping[str, Tensor], path: Path) -> tuple[SwishNet, str, dict[str, Tensor]] | None:
    """A network with fresh weights, its name, and these tensors under our names; None where the names are others."""
    wide = "init_conv.weight" in tensors and "layer.0.block.0.conv_0.weight" in tensors
    if not wide and not ("conv_2d.weight" in tensors and "layer_0.0.conv_2d_1.weight" in tensors):
        return None
    found = {name: place(name, wide) for name in tensors}
    stages = sorted({(stage, number) for stage, number, _ in found.values() if number >= 0})
    depths = list(Counter(stage for stage, _ in stages).values())
    if stages != [(stage, number) for stage, depth in enumerate(depths) for number in range(depth)]:
        told = ", ".join(f"{stage}.{number}" for stage, number in stages)
        raise ValueError(f"{path} is none of our architectures: between its blocks {told} some are missing")
    names = {
        name: rest if number < 0 else f"blocks.{stages.index((stage, number))}.{rest}"
        for name, (stage, number, rest) in found.items()
    }
    ours = renamed(tensors, names, path)
    firsts = [f"blocks.{sum(depths[:stage])}.conv1.weight" for stage in range(len(depths))]
    if not all(name in ours for name in (*firsts, "head.weight")):
        return None
    widths, stem = [len(ours[name]) for name in firsts], len(ours["conv1.weight"])
    depth, factor = 2 * sum(depths) + (4 if wide else 2), widths[0] // 16
    name = f"wrn-{depth}-{factor}-swish" if wide else f"preact-resnet{depth}-swish"
    return SwishNet(widths, depths, stem=stem, wide=wide, classes=len(ours["head.weight"])), name, ours


def place(name: str, wide: bool) -> tuple[int, int, str]:
    """Stage and number of a tensor's block, and our name for it there; outside of blocks the number is -1."""
    match = (IN_WIDE if wide else IN_PREACT).fullmatch(name)
    if match is not None and match[3] in (WIDE if wide else PREACT):
        return int(match[1]), int(match[2]), f"{(WIDE if wide else PREACT)[match[3]]}.{match[4]}"
    first, _, rest = name.partition(".")
    return 0, -1, f"{OUTER.get(first, first)}.{rest}"


def their_swish_state(net: SwishNet, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """These tensors under the names that `place` reads."""
    wide = net.wide
    inner = {ours: theirs for theirs, ours in (WIDE if wide else PREACT).items()}
    outer = {"conv1": "init_conv" if wide else "conv_2d", "bn": "batchnorm", "head": "logits"}
    found = {}
    for name, value in state.items():
        first, _, rest = name.partition(".")
        if first != "blocks":
            found[f"{outer[first]}.{rest}"] = value
            continue
        number, part, rest = rest.split(".", 2)
        stage = sum(int(number) >= sum(net.depths[: upto + 1]) for upto in range(len(net.depths)))
        position = int(number) - sum(net.depths[:stage])
        start = f"layer.{stage}.block.{position}" if wide else f"layer_{stage}.{position}"
        found[f"{start}.{inner[part]}.{rest}"] = value
    return found
