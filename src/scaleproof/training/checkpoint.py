"""Checkpoints of a training run: one file each, whole or absent, with a checksum in its name.

Two are kept. A file that does not agree with its name is damaged: the one before it is used, and it is cleared away.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from scaleproof.files import write_atomically

KEPT = 2
META = "scaleproof"


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name and facts as plain data, at the end of an epoch (a count)."""

    epoch: int
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    tensors = {
        name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.tensors.items()
    }
    facts = {"schema": "scaleproof.checkpoint/1", "epoch": checkpoint.epoch, "facts": checkpoint.facts}
    data = save(tensors, {META: json.dumps(facts)})
    path = write_atomically(
        folder / f"checkpoint-{checkpoint.epoch:06d}-{zlib.crc32(data):08x}.safetensors", data
    )
    others = [file for file in files(folder) if file != path]
    whole = [file for file in others if intact(file)]
    for old in set(others) - set(whole[: KEPT - 1]):
        old.unlink(missing_ok=True)
    return path


def intact(path: Path) -> bool:
    """Whether a file's content agrees with the checksum in its name."""
    return path.stem.rpartition("-")[2] == f"{zlib.crc32(path.read_bytes()):08x}"


def files(folder: Path) -> list[Path]:
    """The checkpoints of a folder, the latest first."""
    return sorted(folder.glob("checkpoint-*.safetensors"), reverse=True)


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The latest whole checkpoint; a warning for each damaged one on the way."""
    found = files(folder)
    for path, left in zip(found, reversed(range(len(found))), strict=True):
        if intact(path):
            return parsed(path.read_bytes())
        then = "the checkpoint before it is used" if left else "none is left, the run starts over"
        warnings.warn(f"{path.name} is damaged: {then}", stacklevel=2)
    return None


def parsed(data: bytes) -> Checkpoint:
    length = int.from_bytes(data[:8], "little")
    meta = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][META])
    return Checkpoint(meta["epoch"], load(data), meta["facts"])
