"""Run folders: files are written whole or not at all, finished work survives a kill, nothing is overwritten."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scaleproof.differences import differences, told
from scaleproof.files import UNFINISHED, read_json, write_atomically

Arrays = Mapping[str, NDArray[Any]]


def write_json(path: Path, value: object) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(path, (text + "\n").encode())


def npz_bytes(arrays: Arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def write_arrays(path: Path, arrays: Arrays) -> None:
    write_atomically(path, npz_bytes(arrays))


def read_arrays(path: Path) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file, or None where it is absent or damaged (every part of the archive has a checksum)."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                return None
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return None


def settings_digest(settings: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


class UnitStore(Protocol):
    """Where finished pieces of work are kept."""

    def load(self, key: str) -> Arrays | None: ...

    def save(self, key: str, arrays: Arrays) -> None: ...

    def part(self, name: str) -> UnitStore:
        """A store within this one, for units of another part of the run."""


@dataclass
class MemoryStore:
    """Keeps units for one call only."""

    units: dict[str, Arrays] = field(default_factory=dict)

    def load(self, key: str) -> Arrays | None:
        return self.units.get(key)

    def save(self, key: str, arrays: Arrays) -> None:
        self.units[key] = arrays

    def part(self, name: str) -> UnitStore:
        return MemoryStore()


@dataclass(frozen=True)
class FolderStore:
    """Keeps each unit as a file of a folder; a damaged one counts as absent and is done again."""

    folder: Path

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.npz"

    def load(self, key: str) -> Arrays | None:
        return read_arrays(self.path(key))

    def save(self, key: str, arrays: Arrays) -> None:
        write_arrays(self.path(key), arrays)

    def part(self, name: str) -> UnitStore:
        return FolderStore(self.folder / name)


UNITS = "units"


def close_run(folder: Path, run: Mapping[str, object]) -> None:
    """Declare a run finished: `run.json` is its last file; then what only a resume needs goes away."""
    write_json(folder / "run.json", run)
    (folder / UNFINISHED).unlink(missing_ok=True)
    shutil.rmtree(folder / UNITS, ignore_errors=True)


def is_finished(folder: Path) -> bool:
    return (folder / "run.json").exists()


def open_run(folder: Path, settings: Mapping[str, object]) -> FolderStore:
    """Claim a folder for a run with these settings: a new one, or the same run's, to resume it."""
    marker, finished = folder / UNFINISHED, folder / "run.json"
    found = next((path for path in (finished, marker) if path.exists()), None)
    if found is None and folder.exists() and any(not is_scrap(path) for path in folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no run: give another --out, or empty it first")
    before = {} if found is None else read_json(found)
    begun = found == finished or has_units(folder)
    same = before.get("settings_sha256") == settings_digest(settings)
    other = "" if same else changes(before, settings)  # none where only the form is another: 1 and 1.0
    if other and begun:
        raise ValueError(f"{folder} holds a run with other settings ({other}): give another --out")
    if not same and not begun:
        facts = {"settings": settings, "settings_sha256": settings_digest(settings)}
        write_json(marker, {"schema": "scaleproof.unfinished/1", **facts})
    return FolderStore(folder / UNITS)


def has_units(folder: Path) -> bool:
    """Whether pieces of an unfinished run are there."""
    return any(not is_scrap(path) for path in (folder / UNITS).rglob("*.*"))


def is_scrap(path: Path) -> bool:
    """Whether a file is what a kill in the middle of a write left behind."""
    return path.name.startswith(".") and path.name.endswith(".part")


def changes(before: Mapping[str, Any], settings: Mapping[str, object]) -> str:
    """Which settings differ, in words; of a run of another kind nearly all do."""
    had, wanted = before.get("settings", {}), settings
    if had.get("kind") != wanted.get("kind"):
        return f"it is of kind {had.get('kind')!r}, this one of kind {wanted.get('kind')!r}"
    return told(differences("", had, wanted))
