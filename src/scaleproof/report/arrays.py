"""Read arrays of a run folder, or say which one breaks which rule."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from scaleproof.files import unread
from scaleproof.report.records import Array

DAMAGE = (ValueError, TypeError, OSError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error)
REMEDY = "restore the file, or run the measurement again into a new folder"


def read_arrays(path: Path) -> dict[str, Array]:
    """Read every array of an npz file, never unpickling anything."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except DAMAGE as error:
        raise ValueError(
            f"{path.name} must be an npz archive of plain arrays, but is damaged ({unread(error)}); {REMEDY}"
        ) from error


def take(arrays: dict[str, Array], file: str, name: str, shape: tuple[int | None, ...]) -> Array:
    """Return a named array of the expected shape, where None stands for any length."""
    if name not in arrays:
        raise ValueError(f"{file} must have the array {name!r}, but has only {sorted(arrays)}; {REMEDY}")
    seen = arrays[name].shape
    fits = len(seen) == len(shape) and all(
        want in (None, have) for want, have in zip(shape, seen, strict=True)
    )
    if not fits:
        raise ValueError(f"{file}: array {name!r} must have shape {shape}, but has {seen}; {REMEDY}")
    return arrays[name]
