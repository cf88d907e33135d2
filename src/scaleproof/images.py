"""Images as an evaluation wants them: a few rows at a time, in [0, 1], with labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import DataLoader

Rows = NDArray[np.int64]
FORMS = "a pair (images, labels) of tensors or arrays, a Dataset as load(...) gives it, or a DataLoader"


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
        if self.y.dim() != 1 or self.y.is_floating_point():
            raise ValueError(
                f"labels must be whole numbers of shape (N,), got {self.y.dtype} {tuple(self.y.shape)}"
            )
        if self.x.dim() < 2:
            raise ValueError(f"images must be rows of pixels, got the shape {tuple(self.x.shape)}")
        if len(self.x) != len(self.y):
            raise ValueError(f"images and labels must be equally many, got {len(self.x)} and {len(self.y)}")

    def __len__(self) -> int:
        return len(self.y)

    def select(self, rows: Rows) -> tuple[Tensor, Tensor]:
        positions = torch.from_numpy(rows)  # labels may lie elsewhere than images, as those from a list do
        return self.x[positions.to(self.x.device)], self.y[positions.to(self.y.device)].long()


Pair = tuple[Tensor | NDArray[Any], Tensor | ArrayLike]
AnyImages = Images | Pair | DataLoader[Any]


def as_images(images: AnyImages) -> Images:
    """Images as they are, or a pair or the batches of a loader made into such."""
    if isinstance(images, DataLoader):
        return gathered_batches(images)
    if isinstance(images, tuple | list):
        if len(images) != 2:
            raise ValueError(f"images must be {FORMS}, got {len(images)} things in a {type(images).__name__}")
        return TensorImages(image_tensor(images[0]), label_tensor(images[1]))
    if isinstance(images, Tensor) or not hasattr(images, "select"):
        raise ValueError(f"images must be {FORMS}, got {unusable(images)}")
    return images


def unusable(images: object) -> str:
    """What was given in place of labelled images, and what to give."""
    kind = type(images).__name__
    if isinstance(images, Tensor | np.ndarray):
        return f"a {kind} alone: give its labels too, as (images, labels)"
    if isinstance(images, str | PurePath):
        return f"the text {str(images)!r}: load it first, with load({str(images)!r})"
    if hasattr(images, "__getitem__"):
        return f"a {kind}: for a dataset of torch give DataLoader(dataset, batch_size=256)"
    return f"a {kind}"


def image_tensor(images: Tensor | NDArray[Any]) -> Tensor:
    """Floats as float32, as verdicts are; the bytes of an array divided by 255, as a Dataset takes them."""
    from scaleproof.data.dataset import to_unit_floats  # its package loads Pillow

    if isinstance(images, Tensor):
        return images.float() if images.is_floating_point() else images
    if not isinstance(images, np.ndarray):
        raise ValueError(f"images must be a tensor or a numpy array, got {type(images).__name__}: stack them")
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise ValueError(f"images must be bytes or floats in [0, 1], got an array of {images.dtype}")
    return torch.from_numpy(to_unit_floats(images))


def label_tensor(labels: Tensor | ArrayLike) -> Tensor:
    """Tensors as they are, whole numbers of any width as int64."""
    if isinstance(labels, Tensor):
        return labels
    found = np.asarray(labels)
    if found.dtype.kind not in "iu":
        raise ValueError(f"labels must be whole numbers of shape (N,), got {found.dtype} {found.shape}")
    return torch.from_numpy(found.astype(np.int64))


def gathered_batches(loader: DataLoader[Any]) -> TensorImages:
    """Every batch (images, labels) of a loader, in the order in which it gives them; draws no global random numbers."""
    with torch.random.fork_rng(devices=[]):
        pairs = [labelled_batch(batch) for batch in loader]
    if not pairs:
        raise ValueError("a DataLoader must give at least one batch, got none")
    x, y = zip(*pairs, strict=True)
    shapes = dict.fromkeys(tuple(part.shape[1:]) for part in x)
    if len(shapes) > 1 or any(part.dim() == 0 for part in y):
        raise ValueError(
            f"a DataLoader must give batches of images of one size and of labels (N,), got images "
            f"{' and '.join(map(str, shapes))}, labels {tuple(y[0].shape)}: resize them, or give batch_size=256"
        )
    return TensorImages(image_tensor(torch.cat(x)), torch.cat(y))


def labelled_batch(batch: object) -> tuple[Tensor, Tensor]:
    parts = tuple(batch) if isinstance(batch, tuple | list) else ()
    if len(parts) == 2 and all(isinstance(part, Tensor) for part in parts):
        return parts
    got = ", ".join(type(part).__name__ for part in parts) or type(batch).__name__
    raise ValueError(
        f"a DataLoader must give batches (images, labels) of two tensors, got {got}: pick them, with collate_fn"
    )


def spans(count: int, size: int) -> Iterator[Rows]:
    for start in range(0, count, size):
        yield np.arange(start, min(start + size, count), dtype=np.int64)


def even_chunks(rows: Rows, most: int) -> list[Rows]:
    """As few chunks of at most `most` rows as will do, as even as can be: the first is the largest."""
    return list(np.array_split(rows, -(-len(rows) // most))) if len(rows) else []
