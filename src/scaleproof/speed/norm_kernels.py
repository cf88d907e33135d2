"""Triton kernels for BatchNorm in train mode with what follows it (a shortcut's sum, ReLU), forwards and backwards.

Activations are bf16, channels last, seen as rows (pixels) of channels; statistics and parameters are float32. Sums are
taken in two stages, parts and then their total, so that a run repeats bit for bit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 32  # rows at a time
PARTS = 256  # partial sums a channel block, at most
ELEMENTS = 2048


def width_of(channels: int) -> int:
    """Channels of one block: the largest power of two up to 64 that divides them."""
    return min(64, channels & -channels)


def parts_of(rows: int) -> tuple[int, int]:
    """How many parts, and rows of each."""
    each = max(TILE, triton.cdiv(triton.cdiv(rows, PARTS), TILE) * TILE)
    return triton.cdiv(rows, each), each


def moments(
    x: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float, track: bool
) -> Tensor:
    """Mean and inverse deviation of each channel (2, C), and the running statistics moved where `track`."""
    channels = x.shape[1]
    rows = x.numel() // channels
    parts, each = parts_of(rows)
    width = width_of(channels)
    partial = torch.empty((parts, 2, channels), dtype=torch.float32, device=x.device)
    result = torch.empty((2, channels), dtype=torch.float32, device=x.device)
    sums_kernel[(parts, channels // width)](x, running_mean, partial, rows, each, channels, width, TILE)
    moments_kernel[(channels // width,)](
        partial, running_mean, running_var, result, parts, rows, momentum, eps, track, channels, width, TILE
    )
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
    rows = x.numel() // channels
    parts, each = parts_of(rows)
    width = width_of(channels)
    partial = torch.empty((parts, 2, channels), dtype=torch.float32, device=x.device)
    sums = torch.empty((2, channels), dtype=torch.float32, device=x.device)
    gradient_sums_kernel[(parts, channels // width)](
        gradient, x, y, found, partial, rows, each, channels, width, TILE, relu
    )
    total_kernel[(channels // width,)](partial, sums, parts, channels, width, TILE)
    result = torch.empty_like(x)
    other = torch.empty_like(x) if joins else result
    gradient_kernel[(triton.cdiv(x.numel(), ELEMENTS),)](
        gradient, x, y, found, weight, sums, result, other, x.numel(), rows, channels, relu, joins, ELEMENTS
    )
    return result, other, sums


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
def moments_kernel(
    partial, running_mean, running_var, result, parts, rows, momentum, eps, track: tl.constexpr,
    channels: tl.constexpr, width: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(0) * width + tl.arange(0, width)
    first, second = tl.zeros((tile, width), tl.float32), tl.zeros((tile, width), tl.float32)
    for start in range(0, parts, tile):
        part = start + tl.arange(0, tile)
        inside = (part < parts)[:, None]
        where = (part * 2)[:, None] * channels + channel[None, :]
        first += tl.load(partial + where, inside, other=0.0)
        second += tl.load(partial + where + channels, inside, other=0.0)
    shift = tl.sum(first, 0) / rows
    variance = tl.maximum(tl.sum(second, 0) / rows - shift * shift, 0.0)
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
        value = tl.maximum(value, 0.0)
    tl.store(result + offsets, value.to(result.dtype.element_ty), inside)


@triton.jit
def gradient_sums_kernel(
    gradient, x, y, found, partial, rows, each, channels: tl.constexpr, width: tl.constexpr, tile: tl.constexpr,
    relu: tl.constexpr,
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
def total_kernel(partial, sums, parts, channels: tl.constexpr, width: tl.constexpr, tile: tl.constexpr):
    channel = tl.program_id(0) * width + tl.arange(0, width)
    first, second = tl.zeros((tile, width), tl.float32), tl.zeros((tile, width), tl.float32)
    for start in range(0, parts, tile):
        part = start + tl.arange(0, tile)
        inside = (part < parts)[:, None]
        where = (part * 2)[:, None] * channels + channel[None, :]
        first += tl.load(partial + where, inside, other=0.0)
        second += tl.load(partial + where + channels, inside, other=0.0)
    tl.store(sums + channel, tl.sum(first, 0))
    tl.store(sums + channels + channel, tl.sum(second, 0))


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
