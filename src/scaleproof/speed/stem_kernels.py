"""Triton kernels for a stem of three input channels, which cuDNN is slow at.

Activations are bf16 or float16, channels last; images are float32, channels first. The stem is a 3x3 convolution of
stride 1 with one pixel of padding; its taps are laid out as rows k = 3 (3 i + j) + channel, 27 of 32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TAPS = 27
ROWS = 32  # the taps, padded to what a matrix product of tensor cores takes
PIXELS = 128  # a block
ELEMENTS = 2048  # a block of the kernel that gathers


def stem_rows(weight: Tensor) -> Tensor:
    """The stem's weight (N, 3, 3, 3) as rows (32, N), one a tap."""
    rows = weight.permute(2, 3, 1, 0).reshape(TAPS, -1)
    return torch.nn.functional.pad(rows, (0, 0, 0, ROWS - TAPS)).contiguous()


def stem_forward(x: Tensor, rows: Tensor, bias: Tensor) -> Tensor:
    """ReLU of the stem's convolution: images (B, 3, H, W) to activations (B, N, H, W), channels last."""
    return stem(x, rows, bias, activates=True)


def stem_sums(x: Tensor, rows: Tensor) -> Tensor:
    """The stem's convolution alone, without bias and ReLU."""
    return stem(x, rows, rows, activates=False)


def stem(x: Tensor, rows: Tensor, bias: Tensor, *, activates: bool) -> Tensor:
    batch, _, height, width = x.shape
    outputs = rows.shape[1]
    result = torch.empty(
        (batch, outputs, height, width),
        dtype=rows.dtype,
        device=x.device,
        memory_format=torch.channels_last,
    )
    count = batch * height * width
    stem_forward_kernel[(triton.cdiv(count, PIXELS),)](
        x.contiguous(), rows, bias, result, count, height, width, outputs, PIXELS, activates
    )
    return result


def stem_backward(first: Tensor, second: Tensor, activation: Tensor, rows: Tensor) -> Tensor:
    """The gradient in the images, given the two gradients that meet behind the stem's ReLU: float32 (B, 3, H, W)."""
    return transposed(first, second, activation, rows, masked=True)


def stem_transposed(flow: Tensor, rows: Tensor) -> Tensor:
    """The gradient in the images, given that in the stem's sums: float32 (B, 3, H, W)."""
    return transposed(flow, flow, flow, rows, masked=False)


def transposed(first: Tensor, second: Tensor, activation: Tensor, rows: Tensor, *, masked: bool) -> Tensor:
    batch, channels, height, width = first.shape
    count = batch * height * width
    products = torch.empty((TAPS, count), dtype=rows.dtype, device=first.device)
    grid = (triton.cdiv(count, PIXELS),)
    stem_products_kernel[grid](first, second, activation, rows, products, count, channels, PIXELS, masked)
    result = torch.empty((batch, 3, height, width), dtype=torch.float32, device=first.device)
    stem_gather_kernel[(triton.cdiv(count, ELEMENTS), 3)](products, result, count, height, width, ELEMENTS)
    return result


@triton.jit
def stem_forward_kernel(
    x,
    rows,
    bias,
    result,
    count,
    height,
    width,
    outputs: tl.constexpr,
    block: tl.constexpr,
    activates: tl.constexpr,
):
    pixel = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    column, row, image = pixel % width, (pixel // width) % height, pixel // (width * height)
    k = tl.arange(0, 32)
    up, left, channel = (k // 9) - 1, (k // 3) % 3 - 1, k % 3
    y, z = row[None, :] + up[:, None], column[None, :] + left[:, None]
    inside = (y >= 0) & (y < height) & (z >= 0) & (z < width) & (k < 27)[:, None] & (pixel < count)[None, :]
    where = ((image * 3)[None, :] + channel[:, None]) * height * width + y * width + z
    patches = tl.load(x + where, inside, other=0.0).to(rows.dtype.element_ty)  # (32, block)
    n = tl.arange(0, outputs)
    weight = tl.load(rows + k[None, :] * outputs + n[:, None])  # (outputs, 32)
    total = tl.dot(weight, patches)
    if activates:
        total = tl.maximum(total + tl.load(bias + n).to(tl.float32)[:, None], 0.0)
    value = tl.trans(total.to(result.dtype.element_ty))  # (block, outputs)
    tl.store(result + pixel[:, None] * outputs + n[None, :], value, (pixel < count)[:, None])


@triton.jit
def stem_products_kernel(
    first,
    second,
    activation,
    rows,
    products,
    count,
    channels: tl.constexpr,
    block: tl.constexpr,
    masked: tl.constexpr,
):
    pixel = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    n, k = tl.arange(0, channels), tl.arange(0, 32)
    where, inside = pixel[:, None] * channels + n[None, :], (pixel < count)[:, None]
    flow = tl.load(first + where, inside, other=0.0).to(tl.float32)
    if masked:
        total = flow + tl.load(second + where, inside, other=0.0).to(tl.float32)
        flow = tl.where(tl.load(activation + where, inside, other=0.0).to(tl.float32) > 0, total, 0.0)
    flow = flow.to(rows.dtype.element_ty)  # (block, channels)
    weight = tl.load(rows + k[None, :] * channels + n[:, None])  # (channels, 32)
    value = tl.trans(tl.dot(flow, weight)).to(products.dtype.element_ty)  # (32, block)
    stored = (k < 27)[:, None] & (pixel < count)[None, :]
    tl.store(products + k.to(tl.int64)[:, None] * count + pixel[None, :], value, stored)


@triton.jit
def stem_gather_kernel(products, result, count, height, width, block: tl.constexpr):
    pixel = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    channel = tl.program_id(1).to(tl.int64)
    column, row, image = pixel % width, (pixel // width) % height, pixel // (width * height)
    total = tl.zeros((block,), dtype=tl.float32)
    for tap in tl.static_range(9):
        y, z = row - (tap // 3 - 1), column - (tap % 3 - 1)
        inside = (pixel < count) & (y >= 0) & (y < height) & (z >= 0) & (z < width)
        source = (image * height + y) * width + z
        total += tl.load(products + (3 * tap + channel) * count + source, inside, other=0.0).to(tl.float32)
    target = ((image * 3 + channel) * height + row) * width + column
    tl.store(result + target, total, pixel < count)
