"""Shapes that Square Attack puts into images: stripes, windows, bumps. Each sample has its own place and signs."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleproof.rng import Rng

TILES = 5  # along each side of the first grid under l2


def stripes(clean: Tensor, index: Tensor, rng: Rng) -> Tensor:
    """Columns of plus or minus one, each channel its own (B, C, H, W)."""
    _, channels, _, width = clean.shape
    words = rng.words(index, channels * width).view(len(index), channels, 1, width)
    return (2 * (words & 1) - 1).to(clean.dtype).expand_as(clean)


def places(word: Tensor, count: int | Tensor) -> Tensor:
    """A place from 0 to count - 1 for each sample, from a 32-bit word (B,)."""
    return (word * count) >> 32


def window_mask(clean: Tensor, row_word: Tensor, column_word: Tensor, side: int | Tensor) -> Tensor:
    """Ones inside a square window at a random place of each sample (B, 1, H, W); its side may be one a sample (B,)."""
    _, _, height, width = clean.shape
    top, left = places(row_word, height - side + 1)[:, None], places(column_word, width - side + 1)[:, None]
    down, across = (torch.arange(size, device=clean.device)[None] for size in (height, width))
    reach = side[:, None] if isinstance(side, Tensor) else side
    inside_rows = (down >= top) & (down < top + reach)
    inside = inside_rows[:, :, None] & ((across >= left) & (across < left + reach))[:, None]
    return inside[:, None].to(clean.dtype)


def mound(rows: int, columns: int) -> Tensor:
    """Nested rectangles around the middle, the k-th of height 1 / k^2 (rows, columns)."""
    values = torch.zeros(rows, columns)
    top, left = rows // 2, columns // 2
    for ring in range(max(rows // 2, columns // 2) + 1):
        first_row, first_column = max(top - ring, 0), max(left - ring, 0)
        values[first_row : top + ring + 1, first_column : left + ring + 1] += 1 / (ring + 1) ** 2
    return unit(values)


def profile(side: int) -> Tensor:
    """A mound above a valley, of length one (side, side)."""
    half = side // 2
    values = torch.cat([mound(half, side), -mound(side - half, side)])
    return unit(values)


def unit(values: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(values)
    return values / length


def bump(clean: Tensor, row_word: Tensor, column_word: Tensor, side: int, turned: Tensor) -> Tensor:
    """The profile at a random place of each sample, turned by a quarter where asked for (B, 1, H, W)."""
    _, _, height, width = clean.shape
    top, left = places(row_word, height - side + 1)[:, None], places(column_word, width - side + 1)[:, None]
    shapes = torch.stack([profile(side), profile(side).T]).to(clean)
    canvas = torch.zeros(2, height + side, width + side, dtype=clean.dtype, device=clean.device)
    canvas[:, :side, :side] = shapes
    down = torch.arange(height, device=clean.device)[None] - top
    across = torch.arange(width, device=clean.device)[None] - left
    down = torch.where(down < 0, side, down)
    across = torch.where(across < 0, side, across)
    return canvas[turned.long()[:, None, None], down[:, :, None], across[:, None, :]][:, None]


def tiles(clean: Tensor, index: Tensor, rng: Rng) -> Tensor:
    """A grid of bumps, each channel and tile with its own sign (B, C, H, W)."""
    batch, channels, height, width = clean.shape
    side = max(height // TILES, 2)
    rows, columns = height // side, width // side
    signs = (2 * (rng.words(index, channels * rows * columns) & 1) - 1).to(clean.dtype)
    grid = signs.view(batch, channels, rows, columns).repeat_interleave(side, 2).repeat_interleave(side, 3)
    pattern = grid * profile(side).to(clean).repeat(rows, columns)
    top, left = (height - rows * side) // 2, (width - columns * side) // 2
    result = torch.zeros_like(clean)
    result[:, :, top : top + rows * side, left : left + columns * side] = pattern
    return result
