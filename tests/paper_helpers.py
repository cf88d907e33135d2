"""The files behind the paper's numbers and sentences."""

import json
from importlib.resources import files
from typing import Any


def document(name: str) -> dict[str, Any]:
    """A JSON file of the package, to read or to damage."""
    found: dict[str, Any] = json.loads(files("scaleproof.paper").joinpath(name).read_text("utf-8"))
    return found
