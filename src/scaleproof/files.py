"""Write files so that a reader sees the old one or the new one, never half of one; say why one is not read."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

UNFINISHED = "unfinished.json"  # stands in a run folder until the run is finished


def write_atomically(path: Path, data: bytes) -> Path:
    """The whole file or nothing: write beside it, flush to the disk, then rename over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # the temporary file says nothing
    finally:
        with suppress(OSError):  # why nothing was written is the error to tell
            temporary.unlink()
    return path


def read_json(path: Path) -> Any:
    """What a JSON file holds that is known to be there and whole."""
    return json.loads(path.read_text("utf-8"))


def unread(error: Exception) -> str:
    """Why numpy read no arrays, without its advice to load what nobody should."""
    if "pickle" not in str(error):
        return str(error)
    return "it is no file of arrays, or holds Python objects, which are never loaded"
