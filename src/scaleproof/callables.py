"""What is known of functions and objects that somebody hands over: where they live and what their source says."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

OURS = {"scaleproof", "torch", "numpy", *sys.stdlib_module_names}  # whose sources are known by a version
PYTHON = tuple(Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib"))
ADDRESS = re.compile(" at 0x[0-9a-fA-F]+")


def name_of(function: Any) -> str:
    """Where a callable lives; a partial says what it is called with."""
    if isinstance(function, functools.partial):
        named_words = (f"{key}={words_of(value)}" for key, value in function.keywords.items())
        words = [*map(words_of, function.args), *named_words]
        return f"{name_of(function.func)}({', '.join(words)})"
    named = routine_or_class(function)
    return f"{named.__module__}.{named.__qualname__}"


def words_of(thing: object) -> str:
    """What a thing prints, without its place in memory and the order of a set, which the next process does not know."""
    if isinstance(thing, set | frozenset):
        return f"{{{', '.join(sorted(map(words_of, thing)))}}}"
    return ADDRESS.sub("", repr(thing))


def routine_or_class(thing: Any) -> Any:
    """What has a name and a source: a function or a class itself, else the class of an object."""
    return thing if inspect.isroutine(thing) or inspect.isclass(thing) else type(thing)


def is_foreign(thing: Any) -> bool:
    """Whether a function, a class or an object's class is somebody else's than this package's, torch's or Python's."""
    named = thing.func if isinstance(thing, functools.partial) else routine_or_class(thing)
    module = str(named.__module__ or "builtins").partition(".")[0]
    file = getattr(sys.modules.get(module), "__file__", None)
    borrowed = module in sys.stdlib_module_names and file and not any(map(Path(file).is_relative_to, PYTHON))
    return module not in OURS or bool(borrowed)  # a trace.py of one's own is not Python's


def source_digest(function: Any) -> str | None:
    """The sha256 of a callable's source text and of the file that it lives in, for helpers and constants.

    What it imports is not seen. Of one from a script or a notebook only its own text counts; None where there is none.
    It is that of the first look: a file that is edited while its code runs says another text than that code.
    """
    if isinstance(function, functools.partial):
        return source_digest(function.func)
    named = inspect.unwrap(routine_or_class(function))  # what torch.no_grad() and others wrap lives elsewhere
    named = getattr(named, "__func__", named)
    loaded = getattr(sys.modules.get(named.__module__), "__spec__", None)  # another one after a reload
    if named in SEEN and SEEN[named][0] is loaded:
        return SEEN[named][1]
    digest = digest_now(named)
    with suppress(TypeError):  # some of C's own cannot be referred to weakly
        SEEN[named] = loaded, digest
    return digest


# digests, by what they are of, each with its module's origin; what is gone takes its own along
SEEN: WeakKeyDictionary[Any, tuple[Any, str | None]] = WeakKeyDictionary()


def digest_now(named: Any) -> str | None:
    try:
        text, file = inspect.getsource(named).encode(), Path(inspect.getsourcefile(named) or "")
    except (OSError, TypeError):
        return None
    whole = named.__module__ != "__main__" and file.is_file()  # in an archive it is none
    return hashlib.sha256(text + (file.read_bytes() if whole else b"")).hexdigest()


def raised(what: str, error: Exception) -> ValueError:
    """The error that tells what somebody's function raised, and where in code that is no installed package's."""
    places = traceback.extract_tb(error.__traceback__)[1:] or traceback.extract_tb(error.__traceback__)
    place = [one for one in places if "site-packages" not in one.filename or one is places[0]][-1]
    where = f"{Path(place.filename).name}, line {place.lineno}"
    return ValueError(f"{what} raised {type(error).__name__} ({where}): {error}")


def foreign_parts(thing: object) -> Iterator[Any]:
    """Foreign functions and objects in the fields of a dataclass, and in theirs: what its own source does not say."""
    values: list[Any] = []
    if is_dataclass(thing) and not isinstance(thing, type):
        values = [getattr(thing, item.name) for item in fields(thing)]
    elif isinstance(thing, functools.partial):
        values = [*thing.args, *thing.keywords.values()]
    elif isinstance(thing, Mapping):
        values = [*thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        values = [*thing]
    for value in values:
        if is_foreign(value):
            yield value
        yield from foreign_parts(value)


def part_name(part: Any) -> str:
    """Where a part lives; of a dataclass also what it was given."""
    made = is_dataclass(part) and not isinstance(part, type)
    return f"{type(part).__module__}.{words_of(part)}" if made else name_of(part)


def sources(thing: object) -> dict[str, object]:
    """Digests of what no version tells of a description: `source_sha256` of its class, `sources` of its parts."""
    parts = {part_name(part): source_digest(part) for part in foreign_parts(thing)}
    return {
        **({"source_sha256": source_digest(thing)} if is_foreign(thing) else {}),
        **({"sources": parts} if parts else {}),
    }
