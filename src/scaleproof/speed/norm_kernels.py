"""Triton kernels for BatchNorm in train mode with what follows it (a shortcut's sum, ReLU), forwards, backwards and
backwards through the backward pass.

Activations are bf16, channels last, seen as rows (pixels) of channels; statistics and parameters are float32. Sums are
taken in two stages, parts and then their total, so that a run repeats bit for bit.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 32  # rows at a time
PARTS = 512  # partial sums of a channel, at most
COLUMNS = 16  # partial sums of as many channels are added up together
ELEMENTS = 2048


def width_of(channels: int) -> int:
    """Channels of one block: the largest power of two up to 64 that divides them."""
    return min(64, channels & -channels)


def parts_of(rows: int) -> tuple[int, int]:
    """How many parts, and rows of each."""
    each = max(TILE, triton.cdiv(triton.cdiv(rows, PARTS), TILE) * TILE)
    return triton.cdiv(rows, each), each


def partial_sums(kernel: Any, sums: int, x: Tensor, *arguments: Any) -> Tensor:
    """What `kernel` adds up over the parts of the rows (parts, sums, C)."""
    channels = x.shape[1]
    rows = x.numel() // channels
    parts, each = parts_of(rows)
    width = width_of(channels)
    partial = torch.empty((parts, sums, channels), dtype=torch.float32, device=x.device)
    kernel[(parts, channels // width)](x, *arguments, partial, rows, each, channels, width, TILE)
    return partial


def totals(partial: Tensor) -> Tensor:
    parts, sums, channels = partial.shape
    result = torch.empty((sums, channels), dtype=torch.float32, device=partial.device)
    columns = sums * channels
    total_kernel[(columns // COLUMNS,)](
        partial, result, parts, columns, COLUMNS, triton.next_power_of_2(parts)
    )
    return result


def moments(
    x: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float, track: bool
) -> Tensor:
    """Mean and inverse deviation of each channel (2, C), and the running statistics moved where `track`."""
    partial = partial_sums(sums_kernel, 2, x, running_mean)
    parts, _, channels = partial.shape
    result = torch.empty((2, channels), dtype=torch.float32, device=x.device)
    moments_kernel[(channels // COLUMNS,)](
        partial, running_mean, running_var, result, parts, x.numel() // channels, momentum, eps, track,
        channels, COLUMNS, triton.next_power_of_2(parts),
    )  # fmt: skip
    return result


def normalised(
    x: Tensor, residual: Tensor | None, found: Tensor, weight: Tensor, bias: Tensor, relu: bool
) -> Tensor:
    result = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), ELEMENTS),)
    normalise_kernel[grid](
        x, x if residual is None else residual, found, weight, bias, result, x.numel(), x.shape[1],
        residual is not None, relu, ELEMENTS,
    )  # fmt: skip
    return result


def backward(
    gradient: Tensor, x: Tensor, y: Tensor, found: Tensor, weight: Tensor, relu: bool, joins: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in x, in what was added before the ReLU (where something `joins`), and in weight and bias (2, C)."""
    channels = x.shape[1]
    sums = totals(partial_sums(gradient_sums_kernel, 2, x, gradient, y, found, relu))
    result = torch.empty_like(x)
    other = torch.empty_like(x) if joins else result
    gradient_kernel[(triton.cdiv(x.numel(), ELEMENTS),)](
        gradient, x, y, found, weight, sums, result, other, x.numel(), x.numel() // channels, channels,
        relu, joins, ELEMENTS,
    )  # fmt: skip
    return result, other, sums


def second_backward(
    flow: Tensor, other: Tensor | None, gradient: Tensor, x: Tensor, y: Tensor, found: Tensor, weight: Tensor,
    relu: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients in `gradient`, x and weight of what `backward` gave, given those in its first result and its second.

    With h the normalised x, s the inverse deviation, n rows, f the gradient behind the ReLU and
    P(a) = a - mean(a) - h mean(a h), the first result is w s P(f). So its gradient v gives w s P(v) in f, s Q in w and
    -(w s^2 / n) (Q h + <f, h> P(v) + <v, h> P(f)) in x, where Q = <P(v), f>.
    """
    channels = x.shape[1]
    sums = totals(partial_sums(second_sums_kernel, 5, x, flow, gradient, y, found, relu))
    to_gradient, to_x = torch.empty_like(x), torch.empty_like(x)
    to_weight = torch.empty_like(weight)
    second_kernel[(triton.cdiv(x.numel(), ELEMENTS),)](
        flow, flow if other is None else other, gradient, x, y, found, weight, sums, to_gradient, to_x, to_weight,
        x.numel(), x.numel() // channels, channels, relu, other is not None, ELEMENTS,
    )  # fmt: skip
    return to_gradient, to_x, to_weight


@triton.jit
def sums_kernel(
    x, shift, partial, rows, each, channels: tl.constexpr, width: tl.constexpr, tile: tl.constexpr
):
    part, block = tl.program_id(0), tl.program_id(1)
    channel = block * width + tl.arange(0, width)
    centre = tl.load(shift + channel)
    first, second = tl.zeros((tile, width), tl.float32), tl.zeros((tile, width), tl.float32)
    for start in range(0, each, tile):
        row = part * each + start + tl.arange(0, tile)
        inside = (row < rows)[:, None]
        value = tl.load(x + row.to(tl.int64)[:, None] * channels + channel[None, :], inside, other=0.0).to(
            tl.float32
        )
        value = tl.where(inside, value - centre[None, :], 0.0)
        first += value
        second += value * value
    tl.store(partial + (part * 2) * channels + channel, tl.sum(first, 0))
    tl.store(partial + (part * 2 + 1) * channels + channel, tl.sum(second, 0))


@triton.jit
def column_totals(partial, parts, columns, column, size: tl.constexpr):
    """Sums over the parts of some columns."""
    part = tl.arange(0, size)
    inside = (part < parts)[:, None]
    return tl.sum(tl.load(partial + part[:, None] * columns + column[None, :], inside, other=0.0), 0)


@triton.jit
def total_kernel(partial, sums, parts, columns, width: tl.constexpr, size: tl.constexpr):
    column = tl.program_id(0) * width + tl.arange(0, width)
    tl.store(sums + column, column_totals(partial, parts, columns, column, size))


@triton.jit
def moments_kernel(
    partial, running_mean, running_var, result, parts, rows, momentum, eps, track: tl.constexpr,
    channels: tl.constexpr, width: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(0) * width + tl.arange(0, width)
    shift = column_totals(partial, parts, 2 * channels, channel, size) / rows
    square = column_totals(partial, parts, 2 * channels, channels + channel, size) / rows
    variance = tl.maximum(square - shift * shift, 0.0)
    before = tl.load(running_mean + channel)
    mean = before + shift
    tl.store(result + channel, mean)
    tl.store(result + channels + channel, 1.0 / tl.sqrt(variance + eps))
    if track:
        spread = tl.load(running_var + channel)
        unbiased = variance * (rows / (rows - 1.0))
        tl.store(running_mean + channel, (1 - momentum) * before + momentum * mean)
        tl.store(running_var + channel, (1 - momentum) * spread + momentum * unbiased)


@triton.jit
def normalise_kernel(
    x, residual, found, weight, bias, result, count, channels: tl.constexpr, joins: tl.constexpr,
    relu: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = offsets < count
    channel = (offsets % channels).to(tl.int32)
    scale = tl.load(found + channels + channel) * tl.load(weight + channel)
    value = (tl.load(x + offsets, inside).to(tl.float32) - tl.load(found + channel)) * scale + tl.load(
        bias + channel
    )
    if joins:
        value += tl.load(residual + offsets, inside).to(tl.float32)
    if relu:
        value = tl.where(value < 0.0, 0.0, value)  # what is not a number stays so
    tl.store(result + offsets, value.to(result.dtype.element_ty), inside)


@triton.jit
def gradient_sums_kernel(
    x, gradient, y, found, relu: tl.constexpr, partial, rows, each, channels: tl.constexpr, width: tl.constexpr,
    tile: tl.constexpr,
):  # fmt: skip
    part, block = tl.program_id(0), tl.program_id(1)
    channel = block * width + tl.arange(0, width)
    mean, scale = tl.load(found + channel)[None, :], tl.load(found + channels + channel)[None, :]
    first, second = tl.zeros((tile, width), tl.float32), tl.zeros((tile, width), tl.float32)
    for start in range(0, each, tile):
        row = part * each + start + tl.arange(0, tile)
        inside = (row < rows)[:, None]
        where = row.to(tl.int64)[:, None] * channels + channel[None, :]
        flow = tl.load(gradient + where, inside, other=0.0).to(tl.float32)
        if relu:
            flow = tl.where(tl.load(y + where, inside, other=0.0).to(tl.float32) > 0, flow, 0.0)
        value = (tl.load(x + where, inside, other=0.0).to(tl.float32) - mean) * scale
        first += flow * value
        second += flow
    tl.store(partial + (part * 2) * channels + channel, tl.sum(first, 0))
    tl.store(partial + (part * 2 + 1) * channels + channel, tl.sum(second, 0))


@triton.jit
def gradient_kernel(
    gradient, x, y, found, weight, sums, result, other, count, rows, channels: tl.constexpr, relu: tl.constexpr,
    joins: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = offsets < count
    channel = (offsets % channels).to(tl.int32)
    flow = tl.load(gradient + offsets, inside).to(tl.float32)
    if relu:
        flow = tl.where(tl.load(y + offsets, inside).to(tl.float32) > 0, flow, 0.0)
    if joins:
        tl.store(other + offsets, flow.to(other.dtype.element_ty), inside)
    scale = tl.load(found + channels + channel)
    value = (tl.load(x + offsets, inside).to(tl.float32) - tl.load(found + channel)) * scale
    pull = tl.load(sums + channels + channel) + value * tl.load(sums + channel)
    moved = tl.load(weight + channel) * scale * (flow - pull / rows)
    tl.store(result + offsets, moved.to(result.dtype.element_ty), inside)


@triton.jit
def second_sums_kernel(
    x, flow, gradient, y, found, relu: tl.constexpr, partial, rows, each, channels: tl.constexpr,
    width: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    part, block = tl.program_id(0), tl.program_id(1)
    channel = block * width + tl.arange(0, width)
    mean, scale = tl.load(found + channel)[None, :], tl.load(found + channels + channel)[None, :]
    v_sum, f_sum = tl.zeros((tile, width), tl.float32), tl.zeros((tile, width), tl.float32)
    vf_sum, vh_sum = tl.zeros((tile, width), tl.float32), tl.zeros((tile, width), tl.float32)
    fh_sum = tl.zeros((tile, width), tl.float32)
    for start in range(0, each, tile):
        row = part * each + start + tl.arange(0, tile)
        inside = (row < rows)[:, None]
        where = row.to(tl.int64)[:, None] * channels + channel[None, :]
        v = tl.load(flow + where, inside, other=0.0).to(tl.float32)
        f = tl.load(gradient + where, inside, other=0.0).to(tl.float32)
        if relu:
            f = tl.where(tl.load(y + where, inside, other=0.0).to(tl.float32) > 0, f, 0.0)
        h = (tl.load(x + where, inside, other=0.0).to(tl.float32) - mean) * scale
        v_sum += v
        f_sum += f
        vf_sum += v * f
        vh_sum += v * h
        fh_sum += f * h
    place = partial + part * 5 * channels + channel
    tl.store(place, tl.sum(v_sum, 0))
    tl.store(place + channels, tl.sum(f_sum, 0))
    tl.store(place + 2 * channels, tl.sum(vf_sum, 0))
    tl.store(place + 3 * channels, tl.sum(vh_sum, 0))
    tl.store(place + 4 * channels, tl.sum(fh_sum, 0))


@triton.jit
def second_kernel(
    flow, other, gradient, x, y, found, weight, sums, to_gradient, to_x, to_weight, count, rows,
    channels: tl.constexpr, relu: tl.constexpr, joins: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = offsets < count
    channel = (offsets % channels).to(tl.int32)
    v, f = tl.load(flow + offsets, inside).to(tl.float32), tl.load(gradient + offsets, inside).to(tl.float32)
    if relu:
        open_ = tl.load(y + offsets, inside).to(tl.float32) > 0
        f = tl.where(open_, f, 0.0)
    scale = tl.load(found + channels + channel)
    h = (tl.load(x + offsets, inside).to(tl.float32) - tl.load(found + channel)) * scale
    v_sum, f_sum = tl.load(sums + channel), tl.load(sums + channels + channel)
    vh_sum, fh_sum = tl.load(sums + 3 * channels + channel), tl.load(sums + 4 * channels + channel)
    product = tl.load(sums + 2 * channels + channel) - (v_sum * f_sum + vh_sum * fh_sum) / rows
    v = v - (v_sum + h * vh_sum) / rows
    f = f - (f_sum + h * fh_sum) / rows
    factor = tl.load(weight + channel) * scale
    moved = factor * v
    if joins:
        moved += tl.load(other + offsets, inside).to(tl.float32)
    if relu:
        moved = tl.where(open_, moved, 0.0)
    tl.store(to_gradient + offsets, moved.to(to_gradient.dtype.element_ty), inside)
    bent = -(factor * scale / rows) * (product * h + fh_sum * v + vh_sum * f)
    tl.store(to_x + offsets, bent.to(to_x.dtype.element_ty), inside)
    tl.store(
        to_weight + channel, scale * product, offsets < channels
    )  # the first row of pixels says it for all
