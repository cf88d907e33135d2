"""JSON Schemas (draft 2020-12) of every JSON file that the project writes, one file a kind."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

SHARED = ("common", "settings")  # parts that the others refer to


def names() -> tuple[str, ...]:
    """The kinds of documents; each says its kind and version as "scaleproof.KIND/1" in its field "schema"."""
    found = {
        file.name.removesuffix(".json") for file in files(__name__).iterdir() if file.name.endswith(".json")
    }
    return tuple(sorted(found - set(SHARED)))


def schema(name: str) -> dict[str, Any]:
    """The schema of a kind of document, with all that it refers to inside: any validator can use it as it is."""
    if name not in names():
        raise ValueError(f"a schema must be one of {', '.join(names())}, got {name!r}")
    document = read(name)
    return {**document, "$defs": {**document.get("$defs", {}), **{part: read(part) for part in SHARED}}}


def read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(files(__name__).joinpath(f"{name}.json").read_text("utf-8"))
    return document
