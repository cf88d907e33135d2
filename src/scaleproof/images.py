"""Images as an evaluation wants them: a few rows at a time, in [0, 1], with labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Rows = NDArray[np.int64]


class Images(Protocol):
    """Labelled images that come a few at a time."""

    def __len__(self) -> int: ...

    def select(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Float images in [0, 1] and int64 labels of these rows."""


@dataclass(frozen=True)
class TensorImages:
    """Images that are tensors already."""

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"images and labels must be equally many, got {len(self.x)} and {len(self.y)}")
        if self.y.dim() != 1 or self.y.is_floating_point():
            raise ValueError(
                f"labels must be whole numbers of shape (N,), got {self.y.dtype} {tuple(self.y.shape)}"
            )

    def __len__(self) -> int:
        return len(self.y)

    def select(self, rows: Rows) -> tuple[Tensor, Tensor]:
        positions = torch.from_numpy(rows).to(self.x.device)
        return self.x[positions], self.y[positions].long()


def as_images(images: Images | tuple[Tensor, Tensor]) -> Images:
    """Images as they are, or a pair of tensors made into such."""
    return TensorImages(*images) if isinstance(images, tuple) else images


def spans(count: int, size: int) -> Iterator[Rows]:
    for start in range(0, count, size):
        yield np.arange(start, min(start + size, count), dtype=np.int64)


def even_chunks(rows: Rows, most: int) -> list[Rows]:
    """As few chunks of at most `most` rows as will do, as even as can be: the first is the largest."""
    return list(np.array_split(rows, -(-len(rows) // most))) if len(rows) else []
