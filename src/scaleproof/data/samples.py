"""The packaged samples: 1000 real images of CIFAR-10 from each split, and how they were chosen."""

import io
from dataclasses import replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scaleproof.data import classes, mosaic
from scaleproof.data.dataset import Dataset

PER_CLASS = 100
NAMES = ("sample", "sample-train")


def read(split: str) -> Dataset:
    """Read the packaged sample of a split."""
    assets = _assets()
    labels = mosaic.parse_labels((assets / f"{split}_labels.npy").read_bytes(), f"{split}_labels.npy")
    squares = mosaic.decode_part((assets / split / "part_0.webp").read_bytes(), f"{split}/part_0.webp")
    return Dataset(
        name=_name(split),
        split=split,
        images=mosaic.join_parts([squares], len(labels), f"the packaged sample, {split} split,"),
        labels=labels,
        classes=classes.CIFAR10,
        source=_source(split),
    )


def indices(split: str) -> NDArray[np.int64]:
    """Give the place that each image of a packaged sample has in its split of CIFAR-10."""
    data = (_assets() / f"{split}_indices.npy").read_bytes()
    return np.asarray(np.load(io.BytesIO(data), allow_pickle=False), np.int64)


def choose(labels: NDArray[np.int64], per_class: int = PER_CLASS) -> NDArray[np.int64]:
    """Choose the first images of each class, and keep them in their order."""
    first = [np.flatnonzero(labels == label)[:per_class] for label in np.unique(labels)]
    return np.sort(np.concatenate(first)).astype(np.int64)


def build(dataset: Dataset, per_class: int = PER_CLASS) -> tuple[Dataset, NDArray[np.int64]]:
    """Cut the sample out of a split of CIFAR-10, with the indices of its images."""
    chosen = choose(dataset.labels, per_class)
    sample = replace(
        dataset,
        name=_name(dataset.split),
        images=dataset.images[chosen],
        labels=dataset.labels[chosen],
        source=_source(dataset.split),
    )
    return sample, chosen


def write(dataset: Dataset, folder: Path) -> None:
    """Write the sample of a split of CIFAR-10 in the form in which it is packaged."""
    sample, chosen = build(dataset)
    mosaic.write_parts(sample.images, folder / dataset.split, method=6, quality=100)
    (folder / f"{dataset.split}_labels.npy").write_bytes(mosaic.labels_bytes(sample.labels))
    np.save(folder / f"{dataset.split}_indices.npy", chosen.astype(np.uint16))


def _assets() -> Traversable:
    """Give the folder of the packaged files."""
    return files("scaleproof.data") / "assets"


def _name(split: str) -> str:
    """Name the sample of a split."""
    return "sample" if split == "test" else "sample-train"


def _source(split: str) -> str:
    """Say what the sample of a split is."""
    return f"The first {PER_CLASS} images of each class of CIFAR-10's {split} split, in the original order."
