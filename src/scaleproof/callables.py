"""What is known of a function that somebody hands over: where it lives and what its source says."""

from __future__ import annotations

import functools
import hashlib
import inspect
from typing import Any


def name_of(function: Any) -> str:
    """Where a callable lives; a partial says what it is called with."""
    if isinstance(function, functools.partial):
        words = [*map(repr, function.args), *(f"{key}={value!r}" for key, value in function.keywords.items())]
        return f"{name_of(function.func)}({', '.join(words)})"
    named = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def source_digest(function: Any) -> str | None:
    """The sha256 of a callable's source text, None where there is none; what it calls in turn is not seen."""
    if isinstance(function, functools.partial):
        return source_digest(function.func)
    named = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
    try:
        return hashlib.sha256(inspect.getsource(named).encode()).hexdigest()
    except (OSError, TypeError):
        return None
