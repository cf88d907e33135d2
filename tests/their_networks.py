"""Networks as the repositories behind RobustBench's models name their parts, written apart from ours."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class WideBlock(nn.Module):
    """TRADES style: a shortcut from the activated input, called convShortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.convShortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        start = torch.relu(self.bn1(x))
        kept = x if self.convShortcut is None else self.convShortcut(start)
        out: Tensor = kept + self.conv2(torch.relu(self.bn2(self.conv1(start))))
        return out


class OwnSwish(torch.autograd.Function):
    """x sigmoid(x), with a way back of its own."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(context: Any, *given: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        share = torch.sigmoid(x)
        return given[0] * share * (1 + x * (1 - share))


class OwnActivation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = OwnSwish.apply(x)  # type: ignore[no-untyped-call]
        return found


def padded_same(x: Tensor, size: int, stride: int) -> Tensor:
    """What TensorFlow's SAME adds: enough for ceil(n / stride) places, the larger half at the end."""
    total = max((-(-x.shape[-1] // stride) - 1) * stride + size - x.shape[-1], 0)
    before, after = total // 2, total - total // 2
    return F.pad(x, (before, after, before, after))


class SwishBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, *, wide: bool) -> None:
        super().__init__()
        self.wide, self.stride, self.size = wide, stride, 1 if wide else 3
        self.names = ("conv_0", "conv_1") if wide else ("conv_2d_1", "conv_2d_2")
        self.batchnorm_0, self.batchnorm_1 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.relu = OwnActivation()
        self.add_module(self.names[0], nn.Conv2d(inputs, outputs, 3, stride, bias=False))
        self.add_module(self.names[1], nn.Conv2d(outputs, outputs, 3, bias=False))
        if inputs != outputs or (stride != 1 and not wide):
            self.shortcut = nn.Conv2d(inputs, outputs, self.size, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        first, second = (self.get_submodule(name) for name in self.names)
        active = self.relu(self.batchnorm_0(x))
        out = self.relu(self.batchnorm_1(first(padded_same(active, 3, self.stride))))
        kept = x
        if hasattr(self, "shortcut"):
            kept = self.shortcut(padded_same(active if self.wide else x, self.size, self.stride))
        joined: Tensor = kept + second(padded_same(out, 3, 1))
        return joined


class TheirSwish(nn.Module):
    """The WideResNet, or the PreActResNet, of Gowal et al. 2020, by the names of their tensors."""

    def __init__(self, factor: int, depths: tuple[int, ...], classes: int = 10, *, wide: bool) -> None:
        super().__init__()
        stem, widths = (16, [16 * factor * 2**stage for stage in range(len(depths))])
        first = nn.Conv2d(3, stem, 3, padding=1, bias=False)
        self.add_module("init_conv" if wide else "conv_2d", first)
        inputs, stages = stem, []
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            blocks = [
                SwishBlock(inputs if k == 0 else width, width, 2 if stage and k == 0 else 1, wide=wide)
                for k in range(depth)
            ]
            inputs = width
            stages.append(nn.Sequential(*blocks))
        if wide:
            self.layer = nn.Sequential(*(nn.Sequential(OrderedDict(block=stage)) for stage in stages))
        else:
            for number, blocks_of in enumerate(stages):
                self.add_module(f"layer_{number}", blocks_of)
        self.order = [first, *stages]
        self.batchnorm, self.relu = nn.BatchNorm2d(inputs), OwnActivation()
        self.logits = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.order:
            x = part(x)
        logits: Tensor = self.logits(self.relu(self.batchnorm(x)).mean((2, 3)))
        return logits


class WideStage(nn.Module):
    def __init__(self, count: int, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        blocks = [
            WideBlock(inputs if i == 0 else outputs, outputs, stride if i == 0 else 1) for i in range(count)
        ]
        self.layer = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


class TheirWide(nn.Module):
    """TRADES' WideResNet; with `extra`, the part that its code builds and never runs."""

    def __init__(self, depth: int, factor: int, classes: int = 10, *, extra: bool = False) -> None:
        super().__init__()
        count = (depth - 4) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.block1 = WideStage(count, 16, 16 * factor, 1)
        if extra:
            self.sub_block1 = WideStage(count, 16, 16 * factor, 1)
        self.block2 = WideStage(count, 16 * factor, 32 * factor, 2)
        self.block3 = WideStage(count, 32 * factor, 64 * factor, 2)
        self.bn1 = nn.BatchNorm2d(64 * factor)
        self.fc = nn.Linear(64 * factor, classes)

    def forward(self, x: Tensor) -> Tensor:
        out = self.block3(self.block2(self.block1(self.conv1(x))))
        out = F.avg_pool2d(torch.relu(self.bn1(out)), 8).flatten(1)
        logits: Tensor = self.fc(out)
        return logits


class TheirBlock(nn.Module):
    """pytorch-cifar style; `wide` makes it a bottleneck, `shortcut` is what the projection is called."""

    def __init__(self, inputs: int, width: int, stride: int, wide: bool, shortcut: str) -> None:
        super().__init__()
        self.wide, self.called, outputs = wide, shortcut, 4 * width if wide else width
        self.conv1 = nn.Conv2d(
            inputs, width, 1 if wide else 3, 1 if wide else stride, 0 if wide else 1, bias=False
        )
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride if wide else 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        if wide:
            self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(outputs)
        parts: list[nn.Module] = []
        if stride != 1 or inputs != outputs:
            parts = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.add_module(shortcut, nn.Sequential(*parts))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        if self.wide:
            out = self.bn3(self.conv3(torch.relu(out)))
        return torch.relu(out + self.get_submodule(self.called)(x))


class TheirResNet(nn.Module):
    def __init__(
        self,
        counts: tuple[int, ...] = (2, 2, 2, 2),
        width: int = 64,
        classes: int = 10,
        *,
        wide: bool = False,
        head: str = "linear",
        shortcut: str = "shortcut",
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        inputs = width
        for stage, count in enumerate(counts):
            blocks: list[nn.Module] = []
            for i in range(count):
                channels = width * 2**stage
                blocks.append(TheirBlock(inputs, channels, 2 if stage and i == 0 else 1, wide, shortcut))
                inputs = 4 * channels if wide else channels
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.called = head
        self.add_module(head, nn.Linear(inputs, classes))

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.bn1(self.conv1(x)))
        for stage in range(1, 5):
            out = self.get_submodule(f"layer{stage}")(out)
        logits: Tensor = self.get_submodule(self.called)(F.avg_pool2d(out, 4).flatten(1))
        return logits


class TheirPreActBlock(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.projects = stride != 1 or inputs != width
        if self.projects:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.bn1(x))
        kept = self.shortcut(out) if self.projects else x
        joined: Tensor = self.conv2(torch.relu(self.bn2(self.conv1(out)))) + kept
        return joined


class TheirPreAct(nn.Module):
    """PreActResNet-18 as MART and AWP have it; `norm=False` leaves out the BatchNorm before the head."""

    def __init__(self, width: int = 64, classes: int = 10, *, norm: bool = True) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        inputs = width
        for stage in range(4):
            channels = width * 2**stage
            first = TheirPreActBlock(inputs, channels, 2 if stage else 1)
            self.add_module(
                f"layer{stage + 1}", nn.Sequential(first, TheirPreActBlock(channels, channels, 1))
            )
            inputs = channels
        self.norm = norm
        if norm:
            self.bn = nn.BatchNorm2d(inputs)
        self.linear = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(x)
        for stage in range(1, 5):
            out = self.get_submodule(f"layer{stage}")(out)
        out = torch.relu(self.bn(out)) if self.norm else out
        logits: Tensor = self.linear(F.avg_pool2d(out, 4).flatten(1))
        return logits


class Normalised(nn.Module):
    """A normalising layer before a network: its numbers are buffers with two names to choose."""

    def __init__(self, net: nn.Module, mean: str, std: str) -> None:
        super().__init__()
        self.model, self.names = net, (mean, std)
        self.register_buffer(mean, torch.tensor([0.4914, 0.4822, 0.4465]).view(1, 3, 1, 1))
        self.register_buffer(std, torch.tensor([0.2471, 0.2435, 0.2616]).view(1, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        mean, std = (self.get_buffer(name) for name in self.names)
        logits: Tensor = self.model((x - mean) / std)
        return logits


def shaken(net: nn.Module, seed: int = 0) -> nn.Module:
    """Random weights and statistics, so that no part of a network can be left out unnoticed."""
    generator = torch.Generator().manual_seed(seed)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.running_var):
                tensor.data.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
            for tensor in (module.bias, module.running_mean):
                tensor.data.copy_(0.2 * torch.randn(tensor.shape, generator=generator))
        elif isinstance(module, nn.Conv2d | nn.Linear):
            spread = module.weight[0].numel() ** -0.5
            module.weight.data.copy_(spread * torch.randn(module.weight.shape, generator=generator))
    return net.eval()
