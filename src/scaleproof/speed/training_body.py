"""Features of a ResNet or PreActResNet in train mode on a CUDA device: bf16, BatchNorm, sum and ReLU in one kernel.

The outer pass of training. Differentiable in images and weights; with `twice`, the images' gradient is so once more.
Running statistics move as the modules say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, y, found, weight = ctx.saved_tensors
        inner, outer, sums = NormBackward.apply(gradient, x, weight, y.detach(), found, ctx.relu, ctx.joins)  # type: ignore[no-untyped-call]
        return inner, outer if ctx.joins else None, sums[0], sums[1], None, None


class NormBackward(torch.autograd.Function):
    """The backward pass of Norm; differentiable in turn, as far as the gradients of activations go."""

    @staticmethod
    def forward(
        ctx: Any,
        gradient: Tensor,
        x: Tensor,
        weight: Tensor,
        y: Tensor,
        found: Tensor,
        relu: bool,
        joins: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        gradient = channels_last(gradient)
        ctx.relu, ctx.joins = relu, joins
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gradient, x, weight, y, found)
        inner, outer, sums = norm_kernels.backward(gradient, x, y, found, weight, relu, joins)
        return inner, outer if joins else inner.new_empty(0), sums

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, inner: Tensor | None, outer: Tensor | None, sums: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        assert sums is None, "the gradients of BatchNorm's parameters cannot be differentiated"
        gradient, x, weight, y, found = ctx.saved_tensors
        flow = torch.zeros_like(x) if inner is None else channels_last(inner)
        other = channels_last(outer) if ctx.joins and outer is not None else None
        moved = norm_kernels.second_backward(flow, other, gradient, x, y, found, weight, ctx.relu)
        return *moved, None, None, None, None


class TwiceConvolution(torch.autograd.Function):
    """A convolution whose image gradient is differentiated by ordinary convolutions; torch's own way is slow."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.geometry = stride, padding
        return F.conv2d(x, weight, None, stride, padding)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        to_x = None
        if ctx.needs_input_grad[0]:
            to_x = ImageGradient.apply(gradient, weight, x.detach(), *ctx.geometry)  # type: ignore[no-untyped-call]
        with torch.no_grad():  # nobody differentiates the weights' gradient
            to_weight = gradients(gradient, x, weight, *ctx.geometry, weights=True)
        return to_x, to_weight, None, None


class ImageGradient(torch.autograd.Function):
    """The gradient of a convolution in its image."""

    @staticmethod
    def forward(
        ctx: Any, gradient: Tensor, weight: Tensor, x: Tensor, stride: Sequence[int], padding: Sequence[int]
    ) -> Tensor:
        ctx.save_for_backward(gradient, weight)
        ctx.geometry = stride, padding
        return gradients(gradient, x, weight, stride, padding, weights=False)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, flow: Tensor) -> tuple[Tensor | None, ...]:
        gradient, weight = ctx.saved_tensors
        stride, padding = ctx.geometry
        to_weight = gradients(gradient, flow, weight, stride, padding, weights=True)
        return F.conv2d(flow, weight, None, stride, padding), to_weight, None, None, None


def gradients(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    *,
    weights: bool,
) -> Tensor:
    """The gradient of a convolution in its weights, or in its image."""
    mask = [not weights, weights, False]
    found: list[Tensor] = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, stride, padding, [1, 1], False, [0, 0], 1, mask
    )
    return found[1 if weights else 0]


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def normed(x: Tensor, norm: nn.Module, shortcut: Tensor | None = None, *, relu: bool = True) -> Tensor:
    assert isinstance(norm, nn.BatchNorm2d)
    result: Tensor = Norm.apply(x, shortcut, norm.weight, norm.bias, norm, relu)  # type: ignore[no-untyped-call]
    return result


def once(x: Tensor, layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.Conv2d)
    return F.conv2d(x, layer.weight.to(FORMAT), None, layer.stride, layer.padding)


def twice(x: Tensor, layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.Conv2d)
    result: Tensor = TwiceConvolution.apply(x, layer.weight.to(FORMAT), layer.stride, layer.padding)  # type: ignore[no-untyped-call]
    return result


Convolved = Callable[[Tensor, nn.Module], Tensor]  # once or twice differentiable


def train_features(net: ResNet | PreActResNet, x: Tensor, convolved: Convolved = once) -> Tensor:
    """What `net.features` gives in train mode, in float32 (B, D)."""
    counters: list[Any] = [m.num_batches_tracked for m in net.modules() if tracks(m)]
    if counters:
        torch._foreach_add_(counters, 1)
    out = x.to(FORMAT, memory_format=torch.channels_last)
    if isinstance(net, ResNet):
        out = normed(convolved(out, net.conv1), net.bn1)
        for block in net.blocks:
            out = residual(out, block, convolved)
    else:
        out = convolved(out, net.conv1)
        for block in net.blocks:
            out = preactivated(out, block, convolved)
        out = normed(out, net.bn)
    return out.mean((2, 3), dtype=torch.float32)


def tracks(module: nn.Module) -> TypeGuard[nn.BatchNorm2d]:
    return isinstance(module, nn.BatchNorm2d) and module.track_running_stats


def residual(x: Tensor, block: nn.Module, convolved: Convolved) -> Tensor:
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


def preactivated(x: Tensor, block: nn.Module, convolved: Convolved) -> Tensor:
    """A block of a PreActResNet or WideResNet."""
    assert isinstance(block, PreActBlock)
    active = normed(x, block.bn1)
    out = convolved(normed(convolved(active, block.conv1), block.bn2), block.conv2)
    return out + (x if block.shortcut is None else convolved(active, block.shortcut))
