"""Triton kernels for what happens pixel by pixel between the convolutions of a network, and in a step of PGD.

Activations are bf16 or float16, channels last.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ELEMENTS = 2048  # a block


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


def activated(sums: Tensor, beside: Tensor | None, scale: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The stream of a pre-activation network after a block, and ReLU(scale stream + bias), channel by channel."""
    joins = beside is not None
    stream, result = torch.empty_like(sums) if joins else sums, torch.empty_like(sums)
    activated_kernel[(triton.cdiv(sums.numel(), ELEMENTS),)](
        sums,
        beside if joins else sums,
        scale,
        bias,
        stream,
        result,
        sums.numel(),
        sums.shape[1],
        joins,
        ELEMENTS,
    )
    return stream, result


def through_activation(
    main: Tensor, other: Tensor | None, activation: Tensor, scale: Tensor, *, beside: bool
) -> Tensor:
    """The gradient before ReLU(scale x + bias), given that behind it: scale main where the activation is positive.

    `other` comes on top: beside the activation (the stream's own gradient), or behind it together with main (that of a
    projection, which at stride 2 comes at half the size and belongs to the even rows and columns).
    """
    result = torch.empty_like(main)
    _, channels, height, width = main.shape
    there = other is not None
    through_activation_kernel[(triton.cdiv(main.numel(), ELEMENTS),)](
        main,
        other if there else main,
        activation,
        scale,
        result,
        main.numel(),
        channels,
        height,
        width,
        there,
        beside,
        other is not None and other.shape != main.shape,
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
def at_half_size(offsets, inside, channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr):
    """Where each element lies in a tensor of half the size, and whether it is there: even rows and columns are."""
    channel, pixel = offsets % channels, offsets // channels
    column, row, image = pixel % width, (pixel // width) % height, pixel // (width * height)
    half_row = image * ((height + 1) // 2) + row // 2
    source = (half_row * ((width + 1) // 2) + column // 2) * channels + channel
    return source, inside & (row % 2 == 0) & (column % 2 == 0)


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
        source, there = at_half_size(offsets, inside, channels, height, width)
    total = tl.load(main + offsets, inside).to(tl.float32) + tl.load(shortcut + source, there, other=0.0).to(
        tl.float32
    )
    positive = tl.load(activation + offsets, inside).to(tl.float32) > 0
    tl.store(result + offsets, tl.where(positive, total, 0.0).to(result.dtype.element_ty), inside)


@triton.jit
def activated_kernel(
    sums,
    beside,
    scale,
    bias,
    stream,
    result,
    count,
    channels: tl.constexpr,
    joins: tl.constexpr,
    block: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = offsets < count
    value = tl.load(sums + offsets, inside).to(tl.float32)
    if joins:
        value += tl.load(beside + offsets, inside).to(tl.float32)
        tl.store(stream + offsets, value.to(stream.dtype.element_ty), inside)
    channel = offsets % channels
    value = tl.maximum(value * tl.load(scale + channel) + tl.load(bias + channel), 0.0)
    tl.store(result + offsets, value.to(result.dtype.element_ty), inside)


@triton.jit
def through_activation_kernel(
    main,
    other,
    activation,
    scale,
    result,
    count,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    there: tl.constexpr,
    beside: tl.constexpr,
    halved: tl.constexpr,
    block: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = offsets < count
    channel = offsets % channels
    flow = tl.load(main + offsets, inside).to(tl.float32)
    more = tl.zeros((block,), dtype=tl.float32)
    if there:
        source, used = offsets, inside
        if halved:
            source, used = at_half_size(offsets, inside, channels, height, width)
        more = tl.load(other + source, used, other=0.0).to(tl.float32)
    if not beside:
        flow += more
    positive = tl.load(activation + offsets, inside).to(tl.float32) > 0
    flow = tl.where(positive, flow * tl.load(scale + channel), 0.0)
    if beside:
        flow += more
    tl.store(result + offsets, flow.to(result.dtype.element_ty), inside)
