"""What every generated part of the documents is made of: the results, and a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scaleproof.paper.page import grid as table

__all__ = ["RESULTS", "ROOT", "percent", "provenance", "read", "table"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"


def read(path: str) -> Any:
    return json.loads((RESULTS / path).read_text())


def percent(share: dict[str, Any]) -> str:
    return f"{100 * share['accuracy']:.2f}"


def provenance(run: dict[str, Any], count: int) -> str:
    hardware, versions = run["hardware"]["name"], run["versions"]["torch"]
    return f"n = {count:,}, seed {run['seed']}, commit {run['commit']}, {hardware}, torch {versions}"
