"""A folded pre-activation network (PreActResNet, WideResNet) on a CUDA device, written out like `fused.py`.

The stream of sums runs beside the activations. Forward, a block's first convolution takes the BatchNorm behind it, its
bias and its ReLU with it; one kernel then adds the second convolution to the stream and activates the result for the
next block. Backward, one kernel carries the gradient of the activation over to that of the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.models.preact import PreActBlock, PreActResNet
from scaleproof.speed import kernels, stem_kernels
from scaleproof.speed.fused import (
    Body,
    Convolution,
    Projection,
    affine,
    channels_last,
    folded,
    mask,
    rounded,
    spread_out,
)


@dataclass(frozen=True)
class Activation:
    """ReLU behind a BatchNorm in eval mode: a scale and a bias a channel, in float32."""

    scale: Tensor
    bias: Tensor


@dataclass(frozen=True)
class PreActParts:
    """One block: how its input is activated, its two convolutions, and the projection of its shortcut if it has one."""

    activation: Activation
    first: Convolution
    second: Convolution
    projection: Projection | None

    def forward(self, stream: Tensor, active: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The inner activation, what is added to the stream, and the stream that it is added to."""
        inner = self.first.relu(active)
        second = self.second
        added = channels_last(F.conv2d(inner, second.weight, None, second.stride, second.padding))
        if self.projection is None:
            return inner, added, stream
        return inner, added, channels_last(self.projection.forward(active))

    def backward(self, flow: Tensor, active: Tensor, inner: Tensor) -> Tensor:
        """The gradient in the stream before the block, given that behind it."""
        main = self.first.backward(mask(self.second.backward(flow, inner), inner), active)
        if self.projection is None:
            return kernels.through_activation(main, flow, active, self.activation.scale, beside=True)
        other = channels_last(self.projection.backward(flow))
        return kernels.through_activation(main, other, active, self.activation.scale, beside=False)


class FusedPreAct:
    """Images to features through a pre-activation network in eval mode; differentiable in the images."""

    def __init__(self, net: PreActResNet, dtype: torch.dtype = torch.bfloat16) -> None:
        blocks = list(net.blocks.named_children())
        norms = [net.get_submodule(f"blocks.{name}.bn1") for name, _ in blocks]
        activations = [Activation(*pair) for pair in zip(*affine([*norms, net.bn]), strict=True)]
        firsts = folded(net, dtype)
        self.stem_rows = stem_kernels.stem_rows(net.conv1.weight.detach().to(dtype))
        self.last = activations[-1]
        self.blocks = tuple(
            parts(block, activation, rounded(firsts[f"blocks.{name}.conv1"]), dtype)
            for (name, block), activation in zip(blocks, activations[:-1], strict=True)
        )

    def __call__(self, x: Tensor) -> Tensor:
        features: Tensor = Body.apply(x, self)  # type: ignore[no-untyped-call]
        return features

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Features in float32; each block's activated input and inner activation, and the last activation."""
        stream = stem_kernels.stem_sums(x, self.stem_rows)
        first = self.blocks[0].activation
        stream, active = kernels.activated(stream, None, first.scale, first.bias)
        kept: list[Tensor] = []
        following = [*(block.activation for block in self.blocks[1:]), self.last]
        for block, after in zip(self.blocks, following, strict=True):
            inner, added, beside = block.forward(stream, active)
            kept += [active, inner]
            stream, active = kernels.activated(added, beside, after.scale, after.bias)
        return active.mean((2, 3), dtype=torch.float32), [*kept, active]

    def backward(self, gradient: Tensor, activations: list[Tensor]) -> Tensor:
        """The gradient in the images, given that in the features."""
        last = activations[-1]
        flow, peak = spread_out(gradient, last)
        flow = kernels.through_activation(flow, None, last, self.last.scale, beside=False)
        pairs: Sequence[tuple[Tensor, Tensor]] = list(zip(activations[:-1:2], activations[1::2], strict=True))
        for block, (active, inner) in zip(reversed(self.blocks), reversed(pairs), strict=True):
            flow = block.backward(flow, active, inner)
        result = stem_kernels.stem_transposed(flow, self.stem_rows)
        return result if peak is None else result * peak


def parts(block: nn.Module, activation: Activation, first: Convolution, dtype: torch.dtype) -> PreActParts:
    assert isinstance(block, PreActBlock)
    second = block.conv2
    stride, padding = ([int(value) for value in pair] for pair in (second.stride, second.padding))
    plain = Convolution(in_format(second, dtype), first.bias, stride, padding)  # its bias is not used
    if block.shortcut is None:
        return PreActParts(activation, first, plain, None)
    weight = in_format(block.shortcut, dtype)
    turned = channels_last(weight.transpose(0, 1))
    return PreActParts(activation, first, plain, Projection(weight, turned, int(block.shortcut.stride[0])))


def in_format(convolution: nn.Conv2d, dtype: torch.dtype) -> Tensor:
    return convolution.weight.detach().to(dtype, memory_format=torch.channels_last)
