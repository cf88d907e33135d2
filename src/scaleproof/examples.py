"""Examples: one adversarial image for every image that an attack broke, bit for bit, in little space.

Most pixels of an adversarial image stand at an end of what the threat allows. Those are a code; the rest are
differences of the bits to the clean image, by byte planes, which compress better than numbers do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from scaleproof.files import write_atomically
from scaleproof.images import Rows
from scaleproof.store import npz_bytes, read_arrays
from scaleproof.threat import Threat

Array = NDArray[Any]
FILE = "examples.npz"
OTHER, LOW, HIGH = 0, 1, 2  # where a pixel stands
PREFIX = "example_"


def edges(clean: Array, threat: Threat) -> tuple[Array, Array]:
    """The ends between which each pixel may move; the clean image itself where pixels are not bounded one by one."""
    radius = clean.dtype.type(threat.eps if threat.is_box else 0)
    return np.clip(clean - radius, 0, 1), np.clip(clean + radius, 0, 1)


def bits(images: Array) -> Array:
    """The bytes of floats as whole numbers."""
    return np.ascontiguousarray(images).view(f"i{images.itemsize}")


def pack(perturbed: Array, clean: Array, threat: Threat) -> tuple[Array, Array]:
    """A code a pixel, and the byte planes (bytes, R) of those that stand between the edges."""
    low, high = (bits(edge) for edge in edges(clean, threat))
    found, start = bits(perturbed), bits(clean)
    code = np.where(found == low, LOW, np.where(found == high, HIGH, OTHER)).astype(np.uint8)
    rest = (found - start)[code == OTHER]
    return code, rest.view(np.uint8).reshape(-1, found.itemsize).T


def unpack(code: Array, planes: Array, clean: Array, threat: Threat) -> Array:
    """The images that `pack` was given."""
    low, high = edges(clean, threat)
    images = np.where(code == LOW, low, high)
    rest = np.ascontiguousarray(planes.T).reshape(-1).view(f"i{clean.itemsize}")
    images[code == OTHER] = (bits(clean)[code == OTHER] + rest).view(clean.dtype)
    return images


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Examples:
    """Packed examples with the image each was made from, and the attack and restart that made it."""

    row: Rows  # (K,)
    attack: Array  # (K,) names
    restart: Array  # (K,)
    code: Array  # (K, ...)
    rest: Array  # (bytes, R), example after example

    def __repr__(self) -> str:
        by = ", ".join(map(str, np.unique(self.attack))) or "nobody"
        return f"Examples({len(self)} of shape {self.code.shape[1:]}, by {by})"

    def __len__(self) -> int:
        return len(self.row)

    def unpacked(self, start: int, stop: int, clean: Array, threat: Threat) -> Array:
        """Examples from `start` to `stop`, made from these clean images."""
        before, within = (
            int((self.code[part] == OTHER).sum()) for part in (slice(start), slice(start, stop))
        )
        return unpack(self.code[start:stop], self.rest[:, before : before + within], clean, threat)

    def part(self, wanted: Array) -> dict[str, Array]:
        """The wanted examples, a flag each, as a unit of work keeps them."""
        sizes = (self.code == OTHER).reshape(len(self.code), -1).sum(1)
        rest = self.rest[:, np.repeat(wanted, sizes)]
        return {f"{PREFIX}row": self.row[wanted], f"{PREFIX}code": self.code[wanted], f"{PREFIX}rest": rest}

    def save(self, folder: Path) -> dict[str, object]:
        """Write the examples into a run folder; what its JSON says of them."""
        data = npz_bytes({item.name: getattr(self, item.name) for item in fields(self)})
        write_atomically(folder / FILE, data)
        return {"file": FILE, "count": len(self), "sha256": hashlib.sha256(data).hexdigest()}

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The examples of a file, or None where it is absent, damaged or something else."""
        arrays = read_arrays(path)
        if arrays is None or set(arrays) != {item.name for item in fields(cls)}:
            return None
        found = cls(**arrays)
        columns = (found.row, found.attack, found.restart)
        whole = all(column.shape == (len(found.code),) for column in columns)
        kinds = found.row.dtype == np.int64 and found.code.dtype == found.rest.dtype == np.uint8
        fits = found.rest.ndim == 2 and found.rest.shape[1] == int((found.code == OTHER).sum())
        return found if whole and kinds and fits else None


def kept(threat: Threat, x: Tensor, found: Tensor, rows: Rows, wanted: Array) -> dict[str, Array]:
    """What a unit of work keeps: the examples of the wanted rows, a flag each, packed."""
    clean, perturbed = (tensor.detach().cpu().numpy()[wanted] for tensor in (x, found))
    code, rest = pack(perturbed, clean, threat)
    return {f"{PREFIX}row": rows[wanted], f"{PREFIX}code": code, f"{PREFIX}rest": rest}


def gathered(units: Iterable[tuple[str, int, Mapping[str, Array]]]) -> Examples | None:
    """The examples of all units, each given as the name of its attack, its restart and its arrays."""
    parts = [part for part in units if len(part[2].get(f"{PREFIX}row", ())) > 0]
    if not parts:
        return None
    sizes = [len(arrays[f"{PREFIX}row"]) for _, _, arrays in parts]
    return Examples(
        row=np.concatenate([arrays[f"{PREFIX}row"] for _, _, arrays in parts]),
        attack=np.repeat([name for name, _, _ in parts], sizes),
        restart=np.repeat([restart for _, restart, _ in parts], sizes),
        code=np.concatenate([arrays[f"{PREFIX}code"] for _, _, arrays in parts]),
        rest=np.concatenate([arrays[f"{PREFIX}rest"] for _, _, arrays in parts], axis=1),
    )


def merged(several: Sequence[Examples]) -> Examples | None:
    """The examples of several runs on the same images; of an image that more than one has, the last one's."""
    parts: list[tuple[Examples, Array]] = []
    taken = np.zeros(0, np.int64)
    for examples in reversed(several):
        parts.append((examples, ~np.isin(examples.row, taken)))
        taken = np.concatenate([taken, examples.row])
    return gathered(
        (
            str(name),
            int(restart),
            examples.part(wanted & (examples.attack == name) & (examples.restart == restart)),
        )
        for examples, wanted in parts
        for name, restart in sorted(
            set(zip(examples.attack.tolist(), examples.restart.tolist(), strict=True))
        )
    )
