"""SVHN's cropped digits as their authors publish them: one MATLAB file for each split."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from scaleproof.data import classes
from scaleproof.data.dataset import Array, Dataset

_BROKEN = (
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    NotImplementedError,
    OSError,
    MemoryError,
    zlib.error,
)


def file_name(split: str) -> str:
    """Name the file of a split."""
    return f"{split}_32x32.mat"


def read_mat(path: Path, split: str) -> Dataset:
    """Read a split of a trusted file; its X is (32, 32, 3, N) and its label 10 means the digit 0."""
    content = _load(path)
    return Dataset(
        name="svhn",
        split=split,
        images=_images(content, path),
        labels=_labels(content, path),
        classes=classes.DIGITS,
        source=f"The cropped digits of SVHN, {split} split, read from {path.name}.",
    )


def _load(path: Path) -> dict[str, Any]:
    """Open a MATLAB file with scipy, which is needed for nothing else."""
    try:
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError
    except ImportError as error:
        raise ValueError(
            f"{path.name} is a MATLAB file, and reading it needs scipy, which is not installed. "
            "Install it with: pip install -e '.[svhn]' in the folder of scaleproof"
        ) from error
    try:
        content: dict[str, Any] = loadmat(path, variable_names=("X", "y"))
    except (MatReadError, *_BROKEN) as error:
        raise ValueError(f"{path} is not a readable MATLAB file ({error}). Get it again.") from error
    return content


def _images(content: dict[str, Any], path: Path) -> Array:
    """Bring X into the shape (N, 3, 32, 32)."""
    images = content.get("X")
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[:3] != (32, 32, 3):
        seen = f"{images.dtype} {images.shape}" if isinstance(images, np.ndarray) else "none"
        raise ValueError(f"{path} must hold X, uint8 of shape (32, 32, 3, N); it holds {seen}.")
    return np.ascontiguousarray(images.reshape(32, 32, 3, -1).transpose(3, 2, 0, 1))


def _labels(content: dict[str, Any], path: Path) -> Array:
    """Bring y from 1 to 10 into the digits 1 to 9 and 0."""
    labels = content.get("y")
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iuf":
        raise ValueError(f"{path} must hold y, the labels; it does not. Is it another file?")
    flat = labels.reshape(-1)
    outside = ~np.isin(flat, np.arange(1, 11))
    if outside.any():
        index = int(outside.argmax())
        raise ValueError(
            f"{path}: labels of SVHN must be 1 to 10, where 10 means the digit 0; "
            f"label {flat[index]} stands at index {index}. Get the file again."
        )
    return flat.astype(np.int64) % 10
