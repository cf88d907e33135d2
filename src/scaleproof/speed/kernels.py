"""Triton kernels for what cuDNN does badly or not at all in the backward pass of a ResNet.

Activations are bf16 or float16, channels last; images are float32, channels first, three channels. The stem is a 3x3
convolution of stride 1 with one pixel of padding; its taps are laid out as rows k = 3 (3 i + j) + channel, 27 of 32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TAPS = 27
ROWS = 32  # the taps, padded to what a matrix product of tensor cores takes
PIXELS = 128  # a block of the stem kernels
ELEMENTS = 2048  # a block of the pointwise kernel


def add_and_mask(main: Tensor, shortcut: Tensor, activation: Tensor) -> Tensor:
    """(main + shortcut) where the activation is positive, zero elsewhere: the join of a residual block, backwards.

    The gradient of a shortcut of stride 2 comes at half the size: it belongs to the even rows and columns.
    """
    result = torch.empty_like(main)
    _, channels, height, width = main.shape
    add_and_mask_kernel[(triton.cdiv(main.numel(), ELEMENTS),)](
        main,
        shortcut,
        activation,
        result,
        main.numel(),
        channels,
        height,
        width,
        shortcut.shape != main.shape,
        ELEMENTS,
    )
    return result


def box_step(current: Tensor, gradient: Tensor, clean: Tensor, stride: float, eps: float) -> Tensor:
    """current + stride sign(gradient), within eps of clean and in [0, 1]: a step of PGD under linf, in float32."""
    result = torch.empty_like(current)
    count = current.numel()
    box_step_kernel[(triton.cdiv(count, ELEMENTS),)](
        current, gradient, clean, result, stride, eps, count, ELEMENTS
    )
    return result


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
    batch, channels, height, width = first.shape
    count = batch * height * width
    products = torch.empty((TAPS, count), dtype=rows.dtype, device=first.device)
    grid = (triton.cdiv(count, PIXELS),)
    stem_products_kernel[grid](first, second, activation, rows, products, count, channels, PIXELS)
    result = torch.empty((batch, 3, height, width), dtype=torch.float32, device=first.device)
    stem_gather_kernel[(triton.cdiv(count, ELEMENTS), 3)](products, result, count, height, width, ELEMENTS)
    return result


def pair_relu(sums: Tensor, bias: Tensor, shortcut: Tensor | None, difference: float) -> Tensor:
    """ReLU of middle + h slope and of middle - h slope, as a middle and a slope again.

    The first half of the rows are middles, which take the bias; the second half are the slopes that belong to them.
    """
    result, count = torch.empty_like(sums), sums.numel() // 2
    joins = shortcut is not None
    pair_relu_kernel[(triton.cdiv(count, ELEMENTS),)](
        sums,
        bias,
        shortcut if joins else sums,
        result,
        difference,
        count,
        sums.shape[1],
        joins,
        ELEMENTS,
    )
    return result


@triton.jit
def pair_relu_kernel(
    sums,
    bias,
    shortcut,
    result,
    difference,
    count,
    channels: tl.constexpr,
    joins: tl.constexpr,
    block: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = offsets < count
    middle = tl.load(sums + offsets, inside).to(tl.float32) + tl.load(bias + offsets % channels).to(
        tl.float32
    )
    slope = tl.load(sums + count + offsets, inside).to(tl.float32)
    if joins:
        middle += tl.load(shortcut + offsets, inside).to(tl.float32)
        slope += tl.load(shortcut + count + offsets, inside).to(tl.float32)
    ahead = tl.maximum(middle + difference * slope, 0.0)
    behind = tl.maximum(middle - difference * slope, 0.0)
    middle = (ahead + behind) / 2
    slope = tl.where((ahead > 0) & (behind > 0), slope, (ahead - behind) / (2 * difference))
    tl.store(result + offsets, middle.to(result.dtype.element_ty), inside)
    tl.store(result + count + offsets, slope.to(result.dtype.element_ty), inside)


@triton.jit
def box_step_kernel(current, gradient, clean, result, stride, eps, count, block: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = offsets < count
    slope, middle = tl.load(gradient + offsets, inside), tl.load(clean + offsets, inside)
    direction = tl.where(slope > 0, 1.0, tl.where(slope < 0, -1.0, 0.0))
    moved = tl.load(current + offsets, inside) + stride * direction
    moved = tl.minimum(tl.maximum(moved, middle - eps), middle + eps)
    tl.store(result + offsets, tl.minimum(tl.maximum(moved, 0.0), 1.0), inside)


@triton.jit
def add_and_mask_kernel(
    main,
    shortcut,
    activation,
    result,
    count,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    halved: tl.constexpr,
    block: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = offsets < count
    source, there = offsets, inside
    if halved:
        channel, pixel = offsets % channels, offsets // channels
        column, row, image = pixel % width, (pixel // width) % height, pixel // (width * height)
        half_row = image * ((height + 1) // 2) + row // 2
        source = (half_row * ((width + 1) // 2) + column // 2) * channels + channel
        there = inside & (row % 2 == 0) & (column % 2 == 0)
    total = tl.load(main + offsets, inside).to(tl.float32) + tl.load(shortcut + source, there, other=0.0).to(
        tl.float32
    )
    positive = tl.load(activation + offsets, inside).to(tl.float32) > 0
    tl.store(result + offsets, tl.where(positive, total, 0.0).to(result.dtype.element_ty), inside)


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
    first, second, activation, rows, products, count, channels: tl.constexpr, block: tl.constexpr
):
    pixel = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    n, k = tl.arange(0, channels), tl.arange(0, 32)
    where, inside = pixel[:, None] * channels + n[None, :], (pixel < count)[:, None]
    total = tl.load(first + where, inside).to(tl.float32) + tl.load(second + where, inside).to(tl.float32)
    positive = (tl.load(activation + where, inside).to(tl.float32) > 0) & inside
    flow = tl.where(positive, total, 0.0).to(rows.dtype.element_ty)  # (block, channels)
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
