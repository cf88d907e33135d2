"""Write files so that a reader sees the old one or the new one, never half of one."""

import os
import tempfile
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file beside its place and move it there in one step."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
