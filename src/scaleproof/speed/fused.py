"""A folded ResNet on a CUDA device, written out: cuDNN's fused convolutions forward, a backward for the input only.

Forward, each convolution takes its bias, its ReLU and, at the end of a block, the shortcut with it in one kernel.
Backward, no weight gradient is ever computed; what remains is one convolution and one mask a layer. The shortcut's
bias is added to that of the convolution it joins. Everything is bf16, channels last; features leave in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.models.resnet import BasicBlock, Bottleneck, ResNet
from scaleproof.speed.kernels import add_and_mask

STEM_CHANNELS = 8  # three input channels padded to what tensor cores like


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

    def plain(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, None, self.stride, self.padding)

    def backward(self, gradient: Tensor, x: Tensor) -> Tensor:
        """The gradient in x, given the one in the output before bias, shortcut and ReLU."""
        (result, _, _) = torch.ops.aten.convolution_backward(
            gradient,
            x,
            self.weight,
            None,
            self.stride,
            self.padding,
            [1, 1],
            False,
            [0, 0],
            1,
            [True, False, False],
        )
        return result  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Block:
    """The convolutions of a residual block in order, and the projection of its shortcut if it has one."""

    convolutions: tuple[Convolution, ...]
    projection: Convolution | None

    def forward(self, x: Tensor) -> list[Tensor]:
        """Every activation of the block: its input, those between, its output."""
        activations = [x]
        for convolution in self.convolutions[:-1]:
            activations.append(convolution.relu(activations[-1]))
        shortcut = x if self.projection is None else self.projection.plain(x)
        return [*activations, self.convolutions[-1].add_relu(activations[-1], shortcut)]

    def backward(self, gradient: Tensor, activations: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Two gradients in the block's input, the main path's and the shortcut's, given that before the last ReLU."""
        x = activations[0]
        shortcut = gradient if self.projection is None else self.projection.backward(gradient, x)
        for convolution, before in zip(self.convolutions[:0:-1], activations[-2:0:-1], strict=True):
            gradient = mask(convolution.backward(gradient, before), before)
        return self.convolutions[0].backward(gradient, x), shortcut


def mask(gradient: Tensor, activation: Tensor) -> Tensor:
    """The gradient before a ReLU, given the one after it and what the ReLU gave."""
    return torch.ops.aten.threshold_backward(gradient, activation, 0)  # type: ignore[no-any-return]


def frozen(
    convolution: nn.Conv2d, *, extra_bias: Tensor | None = None, channels: int | None = None
) -> Convolution:
    weight, bias = convolution.weight.detach(), convolution.bias
    assert bias is not None
    if channels is not None:
        weight = F.pad(weight, (0, 0, 0, 0, 0, channels - weight.shape[1]))
    total = bias.detach() if extra_bias is None else bias.detach() + extra_bias.detach()
    return Convolution(
        weight.to(torch.bfloat16, memory_format=torch.channels_last),
        total.to(torch.bfloat16),
        [int(value) for value in convolution.stride],
        [int(value) for value in convolution.padding],
    )


def frozen_block(block: nn.Module) -> Block:
    assert isinstance(block, BasicBlock | Bottleneck)
    layers = [block.conv1, block.conv2] + ([block.conv3] if isinstance(block, Bottleneck) else [])
    projection = block.shortcut[0] if isinstance(block.shortcut, nn.Sequential) else None
    assert projection is None or isinstance(projection, nn.Conv2d)
    last = frozen(layers[-1], extra_bias=None if projection is None else projection.bias)
    return Block(
        (*[frozen(layer) for layer in layers[:-1]], last), None if projection is None else frozen(projection)
    )


class FusedBody:
    """Images to features through a folded ResNet, differentiable in the images."""

    def __init__(self, net: ResNet) -> None:
        self.stem = frozen(net.conv1, channels=STEM_CHANNELS)
        self.blocks = tuple(frozen_block(block) for block in net.blocks)

    def __call__(self, x: Tensor) -> Tensor:
        features: Tensor = Body.apply(x, self)  # type: ignore[no-untyped-call]
        return features

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Features in float32, and every activation from the stem's on."""
        padded = pad_channels(x)
        activations = [padded, self.stem.relu(padded)]
        for block in self.blocks:
            activations += block.forward(activations[-1])[1:]
        return activations[-1].mean((2, 3), dtype=torch.float32), activations

    def backward(self, gradient: Tensor, activations: list[Tensor]) -> Tensor:
        """The gradient in the images, given that in the features."""
        last = activations[-1]
        area = last.shape[2] * last.shape[3]
        spread = (gradient / area).to(torch.bfloat16)[:, :, None, None].expand_as(last)
        flow = mask(spread.contiguous(memory_format=torch.channels_last), last)
        end = len(activations)
        for block in reversed(self.blocks):
            first = end - len(block.convolutions) - 1
            main, shortcut = block.backward(flow, activations[first:end])
            flow = add_and_mask(main, shortcut, activations[first])
            end = first + 1
        return self.stem.backward(flow, activations[0])[:, :3].float()


def pad_channels(x: Tensor) -> Tensor:
    """Images as bf16, channels last, with zero channels behind the three."""
    return F.pad(x.to(torch.bfloat16), (0, 0, 0, 0, 0, STEM_CHANNELS - x.shape[1])).contiguous(
        memory_format=torch.channels_last
    )


class Body(torch.autograd.Function):
    """Ties the two passes together for autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, body: FusedBody) -> Tensor:
        features, activations = body.forward(x)
        ctx.body = body
        ctx.save_for_backward(*activations)
        return features

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.body.backward(gradient, list(ctx.saved_tensors)), None
