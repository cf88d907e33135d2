"""Lossless WebP mosaics: 32x32 images in a grid 100 wide, at most 10,000 to a file."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scaleproof.data.dataset import Array, Dataset
from scaleproof.files import unread

SIDE = 32
COLUMNS = 100
PER_PART = 10_000

Progress = Callable[[int, int], None]


def encode_part(images: Array, *, method: int = 4, quality: int = 60) -> bytes:
    """Write up to 10,000 uint8 images of shape (N, 3, 32, 32) as one lossless WebP file."""
    if images.dtype != np.uint8 or images.shape[1:] != (3, SIDE, SIDE):
        raise ValueError(
            f"a mosaic holds uint8 images of shape (N, 3, {SIDE}, {SIDE}); "
            f"these are {images.dtype} of shape {images.shape}. Keep them as an .npz file."
        )
    rows = -(-len(images) // COLUMNS)
    squares = np.zeros((rows * COLUMNS, 3, SIDE, SIDE), np.uint8)
    squares[: len(images)] = images
    grid = squares.reshape(rows, COLUMNS, 3, SIDE, SIDE).transpose(0, 3, 1, 4, 2)
    picture = Image.fromarray(grid.reshape(rows * SIDE, COLUMNS * SIDE, 3))
    stream = io.BytesIO()
    picture.save(stream, "WEBP", lossless=True, quality=quality, method=method)
    return stream.getvalue()


def decode_part(data: bytes, label: str) -> NDArray[np.uint8]:
    """Read all squares of one mosaic file, blank ones too, as (N, 3, 32, 32)."""
    try:
        with Image.open(io.BytesIO(data), formats=("WEBP",)) as picture:
            _check_size(picture.size, label)
            grid = np.asarray(picture.convert("RGB"))
    except (OSError, struct.error, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise ValueError(f"{label} is not a readable WebP picture ({error}). Get the file again.") from error
    squares = grid.reshape(-1, SIDE, COLUMNS, SIDE, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(squares).reshape(-1, 3, SIDE, SIDE)


def join_parts(parts: list[NDArray[np.uint8]], count: int, label: str) -> NDArray[np.uint8]:
    """Join the squares of all parts and drop the blank ones that fill the last row."""
    squares = np.concatenate(parts)
    if any(len(part) != PER_PART for part in parts[:-1]) or not 0 <= len(squares) - count < COLUMNS:
        raise ValueError(
            f"{label} must hold one square for each of {count} labels, {PER_PART} to a part and rows of "
            f"{COLUMNS}; its parts hold {[len(part) for part in parts]}. Is a part or are labels missing?"
        )
    if squares[count:].any():
        raise ValueError(
            f"{label} must be blank after its {count} labels; it holds more images. Check labels."
        )
    return squares[:count]


def read_folder(folder: Path, split: str, *, name: str, classes: tuple[str, ...] | None = None) -> Dataset:
    """Read `folder/split/part_*.webp` with its labels, class names and statement of origin."""
    labels = _read_labels(folder, split)
    parts = [decode_part(path.read_bytes(), str(path)) for path in _part_paths(folder / split)]
    dataset = Dataset(
        name=name,
        split=split,
        images=join_parts(parts, len(labels), str(folder / split)),
        labels=labels,
        classes=_read_classes(folder, classes, int(labels.max())),
        source=_read_source(folder, split),
    )
    _check_digest(dataset, folder / f"{split}_sha256.txt")
    return dataset


def write_parts(
    images: Array, folder: Path, *, method: int = 4, quality: int = 60, progress: Progress | None = None
) -> None:
    """Write images into the files part_0.webp, part_1.webp, ... of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, len(images), PER_PART)):
        part = images[start : start + PER_PART]
        (folder / f"part_{number}.webp").write_bytes(encode_part(part, method=method, quality=quality))
        if progress is not None:
            progress(start + len(part), len(images))


def labels_bytes(labels: Array) -> bytes:
    """Write labels as a .npy file, one byte each where that is enough."""
    stream = io.BytesIO()
    np.save(stream, labels.astype(np.uint8) if labels.max() < 256 else labels)
    return stream.getvalue()


def is_there(folder: Path, split: str) -> bool:
    """Say whether a folder holds mosaics of a split."""
    return (folder / split / "part_0.webp").is_file()


def _check_size(size: tuple[int, int], label: str) -> None:
    """Refuse a picture that is no grid before its pixels are decoded."""
    width, height = size
    if width != COLUMNS * SIDE or height % SIDE or not 0 < height <= PER_PART // COLUMNS * SIDE:
        raise ValueError(
            f"{label} must be {COLUMNS * SIDE} pixels wide and a multiple of {SIDE} high, at most "
            f"{PER_PART // COLUMNS * SIDE}; it is {width} by {height}. Is it a mosaic?"
        )


def _part_paths(folder: Path) -> list[Path]:
    """List part_0.webp, part_1.webp, ... and refuse a gap."""
    count = len(list(folder.glob("part_*.webp")))
    paths = [folder / f"part_{number}.webp" for number in range(count)]
    missing = [path.name for path in paths if not path.is_file()]
    if missing or not paths:
        raise ValueError(f"{folder} must hold {missing[0] if missing else 'part_0.webp'}; it does not.")
    return paths


def _read_labels(folder: Path, split: str) -> NDArray[np.int64]:
    """Read the labels beside the folder of a split, or within it."""
    places = (folder / f"{split}_labels.npy", folder / split / "labels.npy")
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise ValueError(f"mosaics need their labels: neither {places[0]} nor {places[1]} is there.")
    return parse_labels(path.read_bytes(), str(path))


def parse_labels(data: bytes, label: str) -> NDArray[np.int64]:
    """Read a .npy file of whole numbers as int64 labels."""
    try:
        labels = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except (ValueError, TokenError) as error:
        raise ValueError(f"{label} is not a readable .npy file of numbers ({unread(error)}).") from error
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.size == 0:
        raise ValueError(
            f"{label} must hold whole numbers in the shape (N,), N at least 1; "
            f"it holds {labels.dtype} in the shape {labels.shape}."
        )
    return np.asarray(labels, np.int64)


def _read_classes(folder: Path, expected: tuple[str, ...] | None, highest: int) -> tuple[str, ...]:
    """Take the class names from classes.txt, and refuse those of another set."""
    path = folder / "classes.txt"
    if not path.is_file():
        return expected or tuple(str(number) for number in range(highest + 1))
    lines = path.read_text(encoding="utf-8").splitlines()
    named = tuple(line.strip() for line in lines if line.strip())
    if expected is not None and named != expected:
        raise ValueError(
            f"{path} must name the {len(expected)} classes from {expected[0]} to {expected[-1]}; "
            f"it names {len(named)}: {', '.join(named[:3])}... Is it another set?"
        )
    return named


def _check_digest(dataset: Dataset, path: Path) -> None:
    """Compare a set with the digest beside it, where there is one: WebP has no checksum of its own."""
    expected = path.read_text(encoding="utf-8").strip() if path.is_file() else None
    if expected is not None and dataset.digest() != expected:
        raise ValueError(
            f"{path} must state the sha256 of the pixels and labels beside it; it states {expected[:16]}..., "
            f"they have {dataset.digest()[:16]}.... A file was altered or damaged: get or import it again."
        )


def _read_source(folder: Path, split: str) -> str:
    """Give the stated origin of the mosaics of a split, or say that none is stated."""
    path = folder / f"{split}_source.txt"
    if path.is_file():
        return " ".join(path.read_text(encoding="utf-8").split())
    return (
        f"Lossless mosaics in the folder {folder.name}, {split} split, without a statement of their origin."
    )
