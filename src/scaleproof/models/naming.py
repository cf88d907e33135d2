"""What other people call the weights of our networks, and back.

Their names are those of the code that most robust models share: WideResNet as TRADES has it (block1.layer.0.bn1),
ResNet and PreActResNet as pytorch-cifar has them (layer1.0.conv1); those with Swish are in `swish.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scaleproof.models.architectures import renamed, shortened
from scaleproof.models.classifier import Classifier
from scaleproof.models.preact import PreActResNet, wide_resnet
from scaleproof.models.resnet import BasicBlock, Bottleneck, ResNet
from scaleproof.models.swish import STATED, SwishNet, swish_named, their_swish_state

HEADS = ("linear", "fc", "classifier", "head", "last_linear")
BLOCK = re.compile(r"(?:block(\d)\.layer|layer(\d))\.(\d+)\.(\w+)\.(.+)")


def recognised(tensors: Mapping[str, Tensor], path: Path) -> tuple[nn.Module, str, dict[str, Tensor]]:
    """A network of ours with fresh weights, its name, and the file's tensors under our names."""
    swish = swish_named(tensors, path)
    if swish is not None:
        return swish[0], swish[1], counted(swish[2])
    places = sorted({(stage, number) for stage, number, *_ in map(block_of, tensors) if stage})
    shape = [
        sum(stage == wanted for stage, _ in places)
        for wanted in range(1, 1 + max([s for s, _ in places] + [0]))
    ]
    wide = any(name.startswith("block1.layer.") for name in tensors)
    early = wide or not any(name.startswith("bn1.") for name in tensors)  # normalises before it convolves
    stem, head = tensors.get("conv1.weight"), head_of(tensors)
    fits = stem is not None and head is not None and stem.shape[1:] == (3, 3, 3) and min(shape, default=0) > 0
    last = "bn1." if wide else "bn."
    if not fits or (early and not any(name.startswith(last) for name in tensors)):
        raise ValueError(
            f"{path} is none of our architectures (WideResNet, ResNet, PreActResNet with BatchNorm before its head, "
            f"for small images): its names are {shortened(list(tensors))}"
        )
    assert stem is not None
    assert head is not None
    names = {name: our_name(name, places, early, wide) for name in tensors}
    ours = counted(renamed(tensors, names, path))
    if not early:
        return *residual(ours, tuple(shape), len(stem), len(head)), ours
    return *preactivated(ours, shape, len(stem), len(head), path, wide), ours


def counted(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """With the counts of batches that old files lack."""
    norms = (name for name in tensors if name.endswith(".running_var"))
    return {name.replace("running_var", "num_batches_tracked"): torch.tensor(0) for name in norms} | {
        **tensors
    }


def residual(
    ours: Mapping[str, Tensor], depths: tuple[int, ...], width: int, classes: int
) -> tuple[nn.Module, str]:
    """ResNet of any depth and width."""
    block: type[BasicBlock] | type[Bottleneck] = Bottleneck if "blocks.0.conv3.weight" in ours else BasicBlock
    layers = sum(depths) * (3 if block is Bottleneck else 2) + 2
    name = {64: f"resnet{layers}"}.get(width, f"resnet{layers}-{width}")
    small = (layers, width) == (18, 16)
    return ResNet(block, depths, width=width, classes=classes), "resnet-small" if small else name


def preactivated(
    ours: Mapping[str, Tensor], depths: list[int], stem: int, classes: int, path: Path, wide: bool
) -> tuple[nn.Module, str]:
    """WideResNet of any depth and width, or PreActResNet."""
    firsts = [sum(depths[:stage]) for stage in range(len(depths))]
    widths = [len(ours[f"blocks.{first}.conv1.weight"]) for first in firsts]
    if len(set(depths)) != 1 or "blocks.0.conv3.weight" in ours:
        raise ValueError(
            f"{path} is none of our architectures: stages of {depths} blocks with {widths} channels"
        )
    if wide:
        depth, factor = 6 * depths[0] + 4, widths[0] // 16
        return wide_resnet(depth, factor, classes=classes), f"wrn-{depth}-{factor}"
    layers, usual = 2 * sum(depths) + 2, (64, 128, 256, 512)
    name = f"preact-resnet{layers}" + ("" if tuple(widths) == usual else f"-{widths[0]}")
    return PreActResNet(widths, depths[0], stem=stem, classes=classes), name


def block_of(name: str) -> tuple[int, int, str, str]:
    """Stage from 1, position from 0, part and rest of a name inside a block; stage 0 for any other name."""
    match = BLOCK.fullmatch(name)
    if match is None:
        return 0, 0, "", name
    return int(match[1] or match[2]), int(match[3]), match[4], match[5]


def head_of(tensors: Mapping[str, Tensor]) -> Tensor | None:
    return next((tensors[f"{name}.weight"] for name in HEADS if f"{name}.weight" in tensors), None)


def our_name(name: str, places: list[tuple[int, int]], early: bool, wide: bool) -> str:
    """What we call the tensor that they call so."""
    stage, number, part, rest = block_of(name)
    if stage:
        if part in ("convShortcut", "downsample", "shortcut"):
            part, rest = "shortcut", rest.removeprefix("0.") if early else rest
        return f"blocks.{places.index((stage, number))}.{part}.{rest}"
    first, _, rest = name.partition(".")
    if first in HEADS:
        return f"head.{rest}"
    return f"bn.{rest}" if wide and first == "bn1" else name


def their_state(classifier: Classifier) -> dict[str, Tensor]:
    """A classifier's weights as RobustBench's architectures call them, with mu and sigma where they do not go without.

    A network that is none of ours keeps its own names.
    """
    net = classifier.unwrapped
    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in net.state_dict().items()}
    if isinstance(net, ResNet | PreActResNet) and isinstance(net.head, nn.Linear):
        state = {
            their_name(name, stages_of(net), isinstance(net, PreActResNet)): state[name] for name in state
        }
    taken = None  # for its normalisation, by who reads a file that names none
    if isinstance(net, SwishNet):
        state, taken = their_swish_state(net, state), STATED.get(net.head.out_features)
    if classifier.mean is None or classifier.std is None:
        named = None if taken is None else (torch.zeros(3), torch.ones(3))
    else:
        named = None if taken == normalisation(classifier) else (classifier.mean, classifier.std)
    if named is not None:
        state["mu"], state["sigma"] = (value.cpu().clone().view(1, -1, 1, 1) for value in named)
    return state


def normalisation(classifier: Classifier) -> tuple[tuple[float, ...], ...]:
    """Mean and deviation as they were given, without float32's digits."""
    given = (classifier.mean, classifier.std)
    return tuple(tuple(round(value, 6) for value in part.tolist()) for part in given if part is not None)


def stages_of(net: ResNet | PreActResNet) -> list[int]:
    """The stage of every block, from 1: each doubles the channels of the one before."""
    blocks: Any = net.blocks
    widths = [len(block.conv1.weight) for block in blocks]
    return [round(math.log2(width / widths[0])) + 1 for width in widths]


def their_name(name: str, stages: list[int], early: bool) -> str:
    """What RobustBench's architectures call the tensor that we call so."""
    wide = early and max(stages) == 3
    first, _, rest = name.partition(".")
    if first == "head":
        return f"{'fc' if wide else 'linear'}.{rest}"
    if first != "blocks":
        return f"bn1.{rest}" if wide and first == "bn" else name
    number, _, rest = rest.partition(".")
    stage = stages[int(number)]
    position = int(number) - stages.index(stage)
    if early and rest.startswith("shortcut."):
        rest = rest.replace("shortcut.", "convShortcut." if wide else "shortcut.0.")
    return f"block{stage}.layer.{position}.{rest}" if wide else f"layer{stage}.{position}.{rest}"
