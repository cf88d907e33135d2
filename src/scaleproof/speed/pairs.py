"""Two points on either side of a third, through a folded ResNet together: what lies between them is not rounded away.

A difference quotient (f(x + h v) - f(x - h v)) / 2h with a small h drowns in the rounding of half precision, because
both values carry an error as large as their difference. Here every layer holds the middle of its two activations and
their half difference over h instead. A convolution takes each to its own image; at a ReLU the two activations are put
together, cut off, and taken apart again in float32. The quotient then is that of a network with rounded weights
(`benchmarks/differences.py` measures how near it is), at the speed of float16 and with the same number of convolutions
as two passes. Numbers beyond float16's range are not caught here: `attacks/oracles.py` looks first.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from scaleproof.speed import kernels, stem_kernels
from scaleproof.speed.fused import Block, Convolution, FusedBody, channels_last


class PairedBody:
    """Images and directions to the features on both sides."""

    def __init__(self, body: FusedBody) -> None:
        self.body = body

    def __call__(self, x: Tensor, directions: Tensor, difference: float) -> tuple[Tensor, Tensor]:
        """Features (B S, D) at x + h v and at x - h v, for images (B, ...) and S directions of each (B, S, ...)."""
        rows, body = directions.flatten(0, 1), self.body
        middles, slopes = (
            stem_kernels.stem_sums(images, body.stem_rows).permute(0, 2, 3, 1) for images in (x, rows)
        )
        sums = torch.cat([middles.repeat_interleave(directions.shape[1], 0), slopes]).permute(0, 3, 1, 2)
        pair = kernels.pair_relu(channels_last(sums), body.stem_bias, None, difference)
        for block in body.blocks:
            pair = through(block, pair, difference)
        middle, slope = pair.mean((2, 3), dtype=torch.float32).chunk(2)
        return middle + difference * slope, middle - difference * slope


def through(block: Block, pair: Tensor, difference: float) -> Tensor:
    """The block's output; the first half of the rows are middles, the second half slopes."""
    inner = pair
    for convolution in block.convolutions[:-1]:
        inner = kernels.pair_relu(sums_of(convolution, inner), convolution.bias, None, difference)
    shortcut = pair if block.projection is None else channels_last(block.projection.forward(pair))
    last = block.convolutions[-1]
    return kernels.pair_relu(sums_of(last, inner), last.bias, shortcut, difference)


def sums_of(convolution: Convolution, pair: Tensor) -> Tensor:
    """Without the bias, which is the middles' alone."""
    return channels_last(F.conv2d(pair, convolution.weight, None, convolution.stride, convolution.padding))
