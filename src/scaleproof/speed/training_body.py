"""Features of a ResNet or PreActResNet in train mode on a CUDA device: bf16, BatchNorm, sum and ReLU in one kernel.

The outer pass of training. Differentiable once, in images and weights; running statistics move as the modules say.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.models.preact import PreActBlock, PreActResNet
from scaleproof.models.resnet import BasicBlock, Bottleneck, ResNet
from scaleproof.speed import norm_kernels

FORMAT = torch.bfloat16


class Norm(torch.autograd.Function):
    """BatchNorm in train mode, a sum with a shortcut, ReLU."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        shortcut: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        norm: nn.BatchNorm2d,
        relu: bool,
    ) -> Tensor:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.momentum is not None
        found = norm_kernels.moments(
            x, norm.running_mean, norm.running_var, norm.momentum, norm.eps, norm.track_running_stats
        )
        y = norm_kernels.normalised(x, shortcut, found, weight, bias, relu)
        ctx.relu, ctx.joins = relu, shortcut is not None
        ctx.save_for_backward(x, y, found, weight)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, y, found, weight = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        inner, outer, sums = norm_kernels.backward(gradient, x, y, found, weight, ctx.relu, ctx.joins)
        return inner, outer if ctx.joins else None, sums[0], sums[1], None, None


def normed(x: Tensor, norm: nn.Module, shortcut: Tensor | None = None, *, relu: bool = True) -> Tensor:
    assert isinstance(norm, nn.BatchNorm2d)
    result: Tensor = Norm.apply(x, shortcut, norm.weight, norm.bias, norm, relu)  # type: ignore[no-untyped-call]
    return result


def convolved(x: Tensor, layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.Conv2d)
    return F.conv2d(x, layer.weight.to(FORMAT), None, layer.stride, layer.padding)


def train_features(net: ResNet | PreActResNet, x: Tensor) -> Tensor:
    """What `net.features` gives in train mode, in float32 (B, D)."""
    counters: list[Any] = [m.num_batches_tracked for m in net.modules() if tracks(m)]
    if counters:
        torch._foreach_add_(counters, 1)
    out = x.to(FORMAT, memory_format=torch.channels_last)
    if isinstance(net, ResNet):
        out = normed(convolved(out, net.conv1), net.bn1)
        for block in net.blocks:
            out = residual(out, block)
    else:
        out = convolved(out, net.conv1)
        for block in net.blocks:
            out = preactivated(out, block)
        out = normed(out, net.bn)
    return out.mean((2, 3), dtype=torch.float32)


def tracks(module: nn.Module) -> TypeGuard[nn.BatchNorm2d]:
    return isinstance(module, nn.BatchNorm2d) and module.track_running_stats


def residual(x: Tensor, block: nn.Module) -> Tensor:
    """A block of a ResNet."""
    assert isinstance(block, BasicBlock | Bottleneck)
    shortcut = x
    if isinstance(block.shortcut, nn.Sequential):
        shortcut = normed(convolved(x, block.shortcut[0]), block.shortcut[1], relu=False)
    out = normed(convolved(x, block.conv1), block.bn1)
    if isinstance(block, BasicBlock):
        return normed(convolved(out, block.conv2), block.bn2, shortcut)
    out = normed(convolved(out, block.conv2), block.bn2)
    return normed(convolved(out, block.conv3), block.bn3, shortcut)


def preactivated(x: Tensor, block: nn.Module) -> Tensor:
    """A block of a PreActResNet or WideResNet."""
    assert isinstance(block, PreActBlock)
    active = normed(x, block.bn1)
    out = convolved(normed(convolved(active, block.conv1), block.bn2), block.conv2)
    return out + (x if block.shortcut is None else convolved(active, block.shortcut))
