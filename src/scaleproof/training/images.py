"""Training images on the device: all of them at once, cropped and flipped by one gather a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from scaleproof.data import Dataset
from scaleproof.rng import key_of

PADDING = 4
SPLIT_KEY = 20220130  # of the held-out images: the same for every run, so that runs can be compared
SMALL = 10_000  # images; in a larger set chance is balance enough


def split(labels: NDArray[np.int64], held_out: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on and rows held out, both in order; the same ones for every seed.

    Of a small set each class gives its share: else a network that names one class only may do best on them.
    """
    count = len(labels)
    if held_out >= count:
        raise ValueError(
            f"validation must be smaller than the training set of {count} images, got {held_out}"
        )
    order = np.random.default_rng(SPLIT_KEY).permutation(count)
    if count < SMALL:
        order = order[np.argsort(places_in_class(labels[order]), kind="stable")]
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def places_in_class(labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """How far into its own class each row stands, from 0 to 1."""
    places = np.empty(len(labels))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        places[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return places


def generator(device: torch.device, *key: object) -> torch.Generator:
    """Random numbers that depend on nothing but a key."""
    made = torch.Generator(device)
    made.manual_seed(key_of(*key))
    return made


@dataclass(frozen=True)
class Resident:
    """Images as they are stored (bytes, or floats in [0, 1]) with a border of zeros, and labels."""

    padded: Tensor  # (N, C, H + 8, W + 8)
    labels: Tensor  # (N,)
    size: tuple[int, int]

    @classmethod
    def of(cls, dataset: Dataset, rows: NDArray[np.int64], device: torch.device) -> Resident:
        images = torch.from_numpy(np.ascontiguousarray(dataset.images[rows])).to(device)
        labels = torch.from_numpy(dataset.labels[rows]).to(device)
        height, width = images.shape[2:]
        return cls(F.pad(images, (PADDING,) * 4), labels, (int(height), int(width)))

    def __len__(self) -> int:
        return len(self.labels)

    def plain(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """Images without augmentation, as floats in [0, 1]."""
        height, width = self.size
        return as_floats(
            self.padded[rows][:, :, PADDING : PADDING + height, PADDING : PADDING + width]
        ).contiguous()

    def cropped(self, rows: Tensor, places: Tensor) -> Tensor:
        """Images of these rows, each shifted and mirrored as `places` (B, 3: top, left, mirrored) says."""
        height, width = self.size
        device = rows.device
        top, left, mirrored = places[:, 0, None], places[:, 1, None], places[:, 2, None]
        down, across = torch.arange(height, device=device), torch.arange(width, device=device)
        across = torch.where(mirrored.bool(), width - 1 - across, across)
        channels = torch.arange(self.padded.shape[1], device=device)
        chosen = self.padded[
            rows[:, None, None, None],
            channels[None, :, None, None],
            (top + down)[:, None, :, None],
            (left + across)[:, None, None, :],
        ]
        return as_floats(chosen)


def random_places(count: int, random: torch.Generator) -> Tensor:
    """A crop of the padded image, each of the 9 x 9 places alike, and a mirror image half of the time (B, 3)."""
    device = random.device
    shifts = torch.randint(0, 2 * PADDING + 1, (count, 2), generator=random, device=device)
    mirrored = torch.randint(0, 2, (count, 1), generator=random, device=device)
    return torch.cat([shifts, mirrored], dim=1)


def centred_places(count: int, device: torch.device) -> Tensor:
    """No augmentation."""
    return torch.tensor([PADDING, PADDING, 0], device=device).expand(count, 3)


def as_floats(images: Tensor) -> Tensor:
    return images.float().div(255) if images.dtype == torch.uint8 else images
