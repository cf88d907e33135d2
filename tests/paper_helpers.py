"""The files behind the paper's numbers and sentences."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from scaleproof.paper.figures import Figure, measured


def document(name: str) -> dict[str, Any]:
    """A JSON file of the package, to read or to damage."""
    found: dict[str, Any] = json.loads(files("scaleproof.paper").joinpath(name).read_text("utf-8"))
    return found


def values(figure: Figure, folders: Mapping[str, Path]) -> dict[str, float]:
    """What is measured for a figure, without errors."""
    return {key: found.value for key, found in measured(figure, folders).items()}
