"""A folded ResNet on a CUDA device, written out: cuDNN's fused convolutions forward, a backward for the input only.

Forward, each convolution takes its bias, its ReLU and, at the end of a block, the shortcut with it in one kernel.
Backward, no weight gradient is ever computed; what remains is one convolution and one mask a layer. The shortcut's
bias is added to that of the convolution it joins. A shortcut's gradient is a 1x1 convolution forward; one of stride 2
stays at half the size until it joins. The stem has kernels of its own: cuDNN is slow at three channels. Everything is
bf16 or float16, channels last; the features and the images' gradient are float32. float16 rounds as finely as TF32 at
the speed of bf16; its gradients are scaled row by row so as not to vanish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.models.preact import PreActResNet
from scaleproof.models.resnet import BasicBlock, Bottleneck, ResNet
from scaleproof.speed import kernels, stem_kernels

ROW_PEAK = 64.0  # of a row's gradient in the features, in float16: far from both ends of its range
STEM_WIDTHS = (16, 32, 64, 128)  # what the stem's kernels take


@dataclass(frozen=True)
class Convolution:
    """Frozen weights of one folded convolution."""

    weight: Tensor
    bias: Tensor
    stride: list[int]
    padding: list[int]

    def relu(self, x: Tensor) -> Tensor:
        return torch.cudnn_convolution_relu(x, self.weight, self.bias, self.stride, self.padding, [1, 1], 1)

    def add_relu(self, x: Tensor, shortcut: Tensor) -> Tensor:
        return torch.cudnn_convolution_add_relu(
            x, self.weight, shortcut, 1.0, self.bias, self.stride, self.padding, [1, 1], 1
        )

    def backward(self, gradient: Tensor, x: Tensor) -> Tensor:
        """The gradient in x, given that in the output before bias, shortcut and ReLU."""
        stride, padding, only_x = self.stride, self.padding, [True, False, False]
        result: Tensor = torch.ops.aten.convolution_backward(
            gradient, x, self.weight, None, stride, padding, [1, 1], False, [0, 0], 1, only_x
        )[0]
        return result.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Projection:
    """A shortcut's 1x1 convolution, without its bias, in both directions."""

    weight: Tensor
    turned: Tensor
    stride: int

    def forward(self, x: Tensor) -> Tensor:
        # cuDNN takes a 1x1 convolution of stride 2 through another layout: choosing the pixels first is faster
        used = x[:, :, :: self.stride, :: self.stride].contiguous(memory_format=torch.channels_last)
        return F.conv2d(used, self.weight)

    def backward(self, gradient: Tensor) -> Tensor:
        """The gradient in the pixels that were used: every one, or every second row and column."""
        return F.conv2d(gradient, self.turned)


@dataclass(frozen=True)
class Block:
    """The convolutions of a residual block in order, and the projection of its shortcut if it has one."""

    convolutions: tuple[Convolution, ...]
    projection: Projection | None

    def forward(self, x: Tensor) -> list[Tensor]:
        """Every activation of the block after its input, its output last."""
        activations = [x]
        for convolution in self.convolutions[:-1]:
            activations.append(convolution.relu(activations[-1]))
        shortcut = x if self.projection is None else self.projection.forward(x)
        return [*activations[1:], self.convolutions[-1].add_relu(activations[-1], shortcut)]

    def backward(self, gradient: Tensor, activations: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The main path's and the shortcut's gradient in the block's input, given that before the last ReLU."""
        shortcut = gradient if self.projection is None else self.projection.backward(gradient)
        for convolution, before in zip(self.convolutions[:0:-1], activations[-2:0:-1], strict=True):
            gradient = mask(convolution.backward(gradient, before), before)
        return self.convolutions[0].backward(gradient, activations[0]), shortcut


def mask(gradient: Tensor, activation: Tensor) -> Tensor:
    """The gradient before a ReLU, given the one after it and what the ReLU gave."""
    return torch.ops.aten.threshold_backward(gradient, activation, 0)  # type: ignore[no-any-return]


def channels_last(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous(memory_format=torch.channels_last)


def affine(norms: Sequence[Any]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """What each BatchNorm does in eval mode, as a scale and a bias a channel; in training this runs each step."""
    with torch.no_grad():
        deviations = torch._foreach_sqrt([norm.running_var + norm.eps for norm in norms])
        scales = torch._foreach_div([norm.weight.detach() for norm in norms], deviations)
        shifts = torch._foreach_mul([norm.running_mean for norm in norms], scales)
        return scales, torch._foreach_sub([norm.bias.detach() for norm in norms], shifts)


def folded(net: ResNet | PreActResNet, dtype: torch.dtype) -> dict[str, Convolution]:
    """Every convolution joined with the BatchNorm behind it, by name."""
    names = [name for name, _ in net.foldable()]
    scales, biases = affine([net.get_submodule(name) for _, name in net.foldable()])
    with torch.no_grad():
        return {
            name: scaled(net.get_submodule(name), scale, bias, dtype)
            for name, scale, bias in zip(names, scales, biases, strict=True)
        }


def scaled(convolution: nn.Module, scale: Tensor, bias: Tensor, dtype: torch.dtype) -> Convolution:
    """Weights times a scale an output channel, rounded by the same kernel; the bias stays float32 for now."""
    assert isinstance(convolution, nn.Conv2d)
    source = convolution.weight.detach()
    weight = torch.empty_like(source, dtype=dtype, memory_format=torch.channels_last)
    torch.mul(source, scale[:, None, None, None], out=weight)
    stride, padding = ([int(value) for value in pair] for pair in (convolution.stride, convolution.padding))
    return Convolution(weight, bias, stride, padding)


def rounded(convolution: Convolution, extra_bias: Tensor | None = None) -> Convolution:
    bias = convolution.bias if extra_bias is None else convolution.bias + extra_bias
    return replace(convolution, bias=bias.to(convolution.weight.dtype))


def frozen_block(block: nn.Module, path: str, layers: dict[str, Convolution]) -> Block:
    assert isinstance(block, BasicBlock | Bottleneck)
    count = 3 if isinstance(block, Bottleneck) else 2
    own = [layers[f"{path}.conv{number}"] for number in range(1, count + 1)]
    inner = tuple(rounded(layer) for layer in own[:-1])
    if not isinstance(block.shortcut, nn.Sequential):
        return Block((*inner, rounded(own[-1])), None)
    shortcut = layers[f"{path}.shortcut.0"]
    turned = channels_last(shortcut.weight.transpose(0, 1))
    projection = Projection(shortcut.weight, turned, shortcut.stride[0])
    return Block((*inner, rounded(own[-1], shortcut.bias)), projection)


class TwoPasses(Protocol):
    """A body with both passes written out."""

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Features in float32, and every tensor that the way back needs."""

    def backward(self, gradient: Tensor, activations: list[Tensor]) -> Tensor:
        """The gradient in the images, given that in the features."""


class FusedBody:
    """Images to features through a ResNet in eval mode, folded as it is taken in; differentiable in the images."""

    def __init__(self, net: ResNet, dtype: torch.dtype = torch.bfloat16) -> None:
        layers = folded(net, dtype)
        self.dtype = dtype
        stem = rounded(layers["conv1"])
        self.stem_rows, self.stem_bias = stem_kernels.stem_rows(stem.weight), stem.bias
        self.blocks = tuple(
            frozen_block(block, f"blocks.{name}", layers) for name, block in net.blocks.named_children()
        )

    def __call__(self, x: Tensor) -> Tensor:
        features: Tensor = Body.apply(x, self)  # type: ignore[no-untyped-call]
        return features

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Features in float32, and every activation from the stem's on."""
        activations = [stem_kernels.stem_forward(x, self.stem_rows, self.stem_bias)]
        for block in self.blocks:
            activations += block.forward(activations[-1])
        return activations[-1].mean((2, 3), dtype=torch.float32), activations

    def backward(self, gradient: Tensor, activations: list[Tensor]) -> Tensor:
        """The gradient in the images, given that in the features."""
        flow, peak = spread_out(gradient, activations[-1])
        flow, end = mask(flow, activations[-1]), len(activations)
        for block in reversed(self.blocks):
            first = end - len(block.convolutions) - 1
            main, shortcut = block.backward(flow, activations[first:end])
            if first > 0:
                flow, end = kernels.add_and_mask(main, shortcut, activations[first]), first + 1
        result = stem_kernels.stem_backward(main, shortcut, activations[0], self.stem_rows)
        return result if peak is None else result * peak


def spread_out(gradient: Tensor, last: Tensor) -> tuple[Tensor, Tensor | None]:
    """The gradient in the last activation, given that in its mean; and what each row was divided by, in float16."""
    peak = None
    if last.dtype == torch.float16:
        peak = gradient.abs().amax(1, keepdim=True) / ROW_PEAK
        peak = torch.where(peak > 0, peak, 1.0)
        gradient = gradient / peak
    spread = (gradient / last[0, 0].numel()).to(last.dtype)[:, :, None, None].expand_as(last)
    return channels_last(spread), None if peak is None else peak[:, :, None, None]


class Body(torch.autograd.Function):
    """Ties the two passes together for autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, body: TwoPasses) -> Tensor:
        features, activations = body.forward(x)
        ctx.body = body
        ctx.save_for_backward(*activations)
        return features

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.body.backward(gradient, list(ctx.saved_tensors)), None
