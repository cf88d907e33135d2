"""The one shape in which every image set is handed around."""

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]
CHANNELS = (1, 3)  # grey or colour


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Dataset:
    """Images with their labels, the names of the classes and where all of it came from."""

    name: str
    split: str
    images: Array
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    source: str

    def __post_init__(self) -> None:
        """Refuse anything that would silently distort a measurement."""
        _check_images(self.images)
        _check_labels(self.labels, len(self.images), len(self.classes))
        if self.images.dtype == np.float32:
            _check_pixels(self.images)

    def __repr__(self) -> str:
        """Say in one line what these images are."""
        size = " x ".join(map(str, self.images.shape[1:]))
        return f"Dataset({self.name}/{self.split}: {len(self)} images of {size}, {len(self.classes)} classes)"

    def __len__(self) -> int:
        """Count the images."""
        return len(self.labels)

    def first(self, n: int) -> "Dataset":
        """Keep the first n images, in their order."""
        if not 1 <= n <= len(self):
            raise ValueError(f"first(n) needs n from 1 to {len(self)}, the size of {self.name}; n is {n}.")
        return replace(self, images=self.images[:n], labels=self.labels[:n])

    def batch(self, start: int, stop: int) -> "tuple[torch.Tensor, torch.Tensor]":
        """Give images start to stop (cut at the end) as float32 in [0, 1], and their int64 labels."""
        import torch

        if not 0 <= start < min(stop, len(self)):
            raise ValueError(
                f"batch(start, stop) needs 0 <= start < stop and start below {len(self)}, "
                f"the size of {self.name}; it got start {start} and stop {stop}."
            )
        pixels = to_unit_floats(self.images[start:stop])
        return torch.from_numpy(pixels), torch.from_numpy(self.labels[start:stop].copy())

    def select(self, rows: NDArray[np.int64]) -> "tuple[torch.Tensor, torch.Tensor]":
        """Give the images of these rows as float32 in [0, 1], and their int64 labels."""
        import torch

        return torch.from_numpy(to_unit_floats(self.images[rows])), torch.from_numpy(self.labels[rows])

    def digest(self) -> str:
        """Give the sha256 of the bytes of the images followed by those of the labels."""
        state = hashlib.sha256(np.ascontiguousarray(self.images).data)
        state.update(np.ascontiguousarray(self.labels).data)
        return state.hexdigest()

    def shared_with(self, other: "Dataset") -> int:
        """Count the images that are in the other set, too, pixel by pixel."""
        alike = self.images.dtype == other.images.dtype
        own, theirs = (one.images if alike else to_unit_floats(one.images) for one in (self, other))
        known = {hashlib.sha256(image.tobytes()).digest() for image in theirs}
        return sum(hashlib.sha256(image.tobytes()).digest() in known for image in own)

    def describe(self) -> dict[str, object]:
        """Say of the images what a record keeps."""
        return {
            "name": self.name,
            "split": self.split,
            "count": len(self),
            "classes": list(self.classes),
            "sha256": self.digest(),
            "source": self.source,
        }


def to_unit_floats(images: Array) -> NDArray[np.float32]:
    """Copy images to float32 in [0, 1]; bytes are divided by 255 in float32."""
    if images.dtype == np.uint8:
        return np.divide(images, np.float32(255), dtype=np.float32, order="C")
    return np.array(images, dtype=np.float32, order="C")


def _check_images(images: Array) -> None:
    """Require a non-empty (N, 3, H, W) or (N, 1, H, W) array of uint8 or float32."""
    if not isinstance(images, np.ndarray):
        raise ValueError(f"images must be a numpy array; this is a {type(images).__name__}. Use np.asarray.")
    if images.dtype not in (np.uint8, np.float32):
        raise ValueError(
            f"images must be uint8 (0 to 255) or float32 (0 to 1); these are {images.dtype}. "
            "Convert them with .astype."
        )
    if images.ndim != 4 or images.shape[1] not in CHANNELS:
        raise ValueError(
            "images must have the shape (N, 3, height, width), or (N, 1, height, width) where they are grey; "
            f"this is {images.shape}. {shape_remedy(images.shape)}"
        )
    if images.size == 0:
        raise ValueError(f"images must hold at least one pixel; the shape is {images.shape}.")


def shape_remedy(shape: tuple[int, ...]) -> str:
    """Say what brings an array of another shape into (N, channels, height, width)."""
    if len(shape) == 4 and shape[3] in CHANNELS:
        return "Channels last: use .transpose(0, 3, 1, 2)."
    if len(shape) == 4 and shape[1] == 4:
        return "Four channels: leave the transparency out with images[:, :3]."
    if len(shape) == 4 and shape[3] == 4:
        return "Four channels: leave the transparency out with images[..., :3].transpose(0, 3, 1, 2)."
    if len(shape) == 3:
        return "Grey images without an axis of channels: use images[:, None]. A single image: images[None]."
    if len(shape) == 2:
        return "Flat rows: use .reshape(-1, channels, height, width)."
    return "Give images of 1 or 3 channels."


def _check_labels(labels: Array, images: int, classes: int) -> None:
    """Require one int64 label per image, each the number of a class."""
    if not isinstance(labels, np.ndarray) or labels.dtype != np.int64:
        kind = labels.dtype if isinstance(labels, np.ndarray) else type(labels).__name__
        raise ValueError(
            f"labels must be a numpy array of int64; this is {kind}. Use np.asarray(y, np.int64)."
        )
    if labels.ndim != 1:
        remedy = label_remedy(labels, ".reshape(-1)")
        raise ValueError(f"labels must have the shape (N,); this is {labels.shape}. Use {remedy}.")
    if len(labels) != images:
        raise ValueError(
            f"labels have another length than the images: {len(labels)} labels, {images} images. "
            "Give one label for each image."
        )
    _check_label_range(labels, classes)


def label_remedy(labels: Array, other: str) -> str:
    """What brings labels into shape: one-hot rows need something else than any other mistake."""
    return ".argmax(1), if they are one-hot" if labels.ndim == 2 and labels.shape[1] > 1 else other


def _check_label_range(labels: Array, classes: int) -> None:
    """Require labels from 0 to the number of classes minus one."""
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        index = int(outside.argmax())
        raise ValueError(
            f"labels must be from 0 to {classes - 1} for {classes} classes; "
            f"label {labels[index]} stands at index {index}. Renumber the labels or name all classes."
        )


def _check_pixels(images: Array) -> None:
    """Require every float pixel to be a finite number in [0, 1], looking at a few images at a time."""
    for start in range(0, len(images), 256):
        part = images[start : start + 256]
        inside = (part >= 0) & (part <= 1)
        if not inside.all():
            index = int((~inside).reshape(len(part), -1).any(axis=1).argmax())
            value = float(part[index][~inside[index]][0])
            _refuse_pixel(value, start + index)


def _refuse_pixel(value: float, index: int) -> None:
    """Say whether a pixel is no number or lies outside [0, 1]."""
    if not np.isfinite(value):
        raise ValueError(f"float pixels must be finite; image {index} holds {value}. Remove or repair it.")
    raise ValueError(
        f"float pixels must lie in [0, 1]; image {index} holds {value:g}. "
        "Divide by 255, or undo the normalisation, first."
    )
