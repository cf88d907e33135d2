"""What is known of a function that somebody hands over: where it lives and what its source says."""

from __future__ import annotations

import functools
import hashlib
import inspect
from pathlib import Path
from typing import Any


def name_of(function: Any) -> str:
    """Where a callable lives; a partial says what it is called with."""
    if isinstance(function, functools.partial):
        words = [*map(repr, function.args), *(f"{key}={value!r}" for key, value in function.keywords.items())]
        return f"{name_of(function.func)}({', '.join(words)})"
    named = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def source_digest(function: Any) -> str | None:
    """The sha256 of a callable's source text and of the file that it lives in, for helpers and constants.

    What it imports is not seen. Of one from a script or a notebook only its own text counts; None where there is none.
    """
    if isinstance(function, functools.partial):
        return source_digest(function.func)
    named = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
    named = inspect.unwrap(named)  # what torch.no_grad() and others wrap lives elsewhere than the wrapper
    try:
        text, file = inspect.getsource(named).encode(), Path(inspect.getsourcefile(named) or "")
    except (OSError, TypeError):
        return None
    whole = named.__module__ != "__main__" and file.is_file()  # in an archive it is none
    return hashlib.sha256(text + (file.read_bytes() if whole else b"")).hexdigest()
