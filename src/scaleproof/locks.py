"""Locks: a folder that one process works in. They end with their process, however that ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".lock.part"  # by its name what a kill may leave behind


def locked(descriptor: int) -> bool:
    """Whether the lock of an open file could be had without waiting; where there are no locks, everybody has it."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network drives
        return True
    return True


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Nobody else is in the folder while this lasts: whoever comes second is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    with path.open("a+") as stream:
        if not (locked(stream.fileno()) and is_at(path, stream.fileno())):
            stream.seek(0)
            raise ValueError(
                f"{folder} is in use, process {stream.read().strip()} is training there: wait for it, stop it, or give "
                "another --out"
            )
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        try:
            yield
        finally:
            if os.name != "nt":  # which removes no open file
                path.unlink(missing_ok=True)


def is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is still the one at this place: who had it before may have removed it just now."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
