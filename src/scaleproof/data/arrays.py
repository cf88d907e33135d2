"""A user's own images in an .npz file."""

import io
import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError

import numpy as np

from scaleproof.data.dataset import CHANNELS, Array, Dataset, label_remedy, shape_remedy
from scaleproof.files import unread

MOST_CLASSES = 100_000
_BROKEN = (ValueError, EOFError, OSError, RuntimeError, TokenError, zipfile.BadZipFile, zlib.error)


def read_npz(path: Path, split: str) -> Dataset:
    """Read `images`, `labels` and, where given, `classes`; channels may come first or last."""
    content = _load(path)
    missing = [key for key in ("images", "labels") if key not in content]
    if missing:
        raise ValueError(
            f"{path} must hold the arrays images and labels; {missing[0]} is missing, it holds "
            f"{sorted(content)}. Write it with np.savez(path, images=..., labels=...)."
        )
    labels = _labels(content["labels"], path)
    return Dataset(
        name=path.stem,
        split=split,
        images=_pixels(channels_first(content["images"], str(path)), path),
        labels=labels,
        classes=_classes(content.get("classes"), labels, path),
        source=f"The user's own file {path.name}.",
    )


def channels_first(images: Array, label: str) -> Array:
    """Bring (N, H, W), (N, H, W, C) or (N, C, H, W) into the last, C being 1 or 3; refuse what is in doubt."""
    if images.ndim == 3:
        return images[:, None]
    first = images.ndim == 4 and images.shape[1] in CHANNELS
    last = images.ndim == 4 and images.shape[3] in CHANNELS
    if first == last:
        remedy = (
            "Pad the images, so that one of the two alone has the size 1 or 3."
            if first
            else shape_remedy(images.shape)
        )
        raise ValueError(
            f"{label}: images must have the shape (N, H, W, 3) or (N, 3, H, W), or where they are grey (N, H, W), "
            f"(N, H, W, 1) or (N, 1, H, W); the shape is {images.shape}, so "
            f"{'both the second and the last' if first else 'no'} axis may be that of the channels. {remedy}"
        )
    return images if first else np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _load(path: Path) -> dict[str, Array]:
    """Read every array of a file that holds plain numbers and text only."""
    if not path.is_file():
        raise ValueError(f"{path} is not there. Give the path to an .npz file.")
    data = io.BytesIO(path.read_bytes())
    try:
        stored = np.load(data, allow_pickle=False)
        if isinstance(stored, np.ndarray):
            raise ValueError("it holds a single array")
        return {key: stored[key] for key in stored.files}
    except _BROKEN as error:
        raise ValueError(
            f"{path} is not a readable .npz file of plain arrays ({unread(error)}). "
            "Write it with np.savez(path, images=..., labels=...)."
        ) from error


def _pixels(images: Array, path: Path) -> Array:
    """Keep bytes, and bring floats to float32."""
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f":
        raise ValueError(
            f"{path}: images must be uint8 (0 to 255) or floats in [0, 1]; these are {images.dtype}. "
            "Convert them with .astype(np.uint8)."
        )
    return images.astype(np.float32)


def _labels(labels: Array, path: Path) -> Array:
    """Bring whole numbers of any width to int64."""
    if labels.dtype.kind not in "iu":
        remedy = label_remedy(labels, ".astype(np.int64)")
        raise ValueError(f"{path}: labels must be whole numbers; these are {labels.dtype}. Use {remedy}.")
    return labels.astype(np.int64)


def _classes(names: Array | None, labels: Array, path: Path) -> tuple[str, ...]:
    """Take the names of the classes, or number them up to the highest label."""
    if names is None:
        highest = int(labels.max(initial=0))
        if highest >= MOST_CLASSES:
            raise ValueError(f"{path}: labels must be below {MOST_CLASSES}; {highest} is among them.")
        return tuple(str(number) for number in range(highest + 1))
    if names.ndim != 1 or names.dtype.kind != "U":
        raise ValueError(
            f"{path}: classes must be a list of texts; these are {names.dtype} of shape {names.shape}. "
            "Write np.array(['cat', 'dog'])."
        )
    return tuple(str(name) for name in names)
