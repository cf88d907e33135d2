"""A synthetic analysis that honours the contract of its files, the same bytes every time."""

from pathlib import Path
from typing import Any

import numpy as np

from report_fixtures import CLASSES, EPS, run_object, setting_object, share, write_json

COUNT = 200
COORDINATES = [-2.0, -1.0, 0.0, 1.0, 2.0]
AMOUNTS = [-1.0, -0.5, 0.0, 0.5, 1.0]
RADII = [EPS / 2, EPS, 4 * EPS, 1.0]
EDGES = [-1.0, -0.5, 0.0, 0.5, 1.0]


def line(
    name: str, label: str, places: list[float], left: list[int], within: list[int] | None = None
) -> dict[str, Any]:
    """Return one attack along a curve."""
    points = [
        {"at": at, "robust": share(robust, COUNT), "within": share(low, COUNT)}
        for at, robust, low in zip(places, left, within or left, strict=True)
    ]
    return {"attack": name, "label": label, "scale_invariant": name == "si-pgd", "points": points}


def part_objects() -> dict[str, Any]:
    """Return the parts of analysis.json."""
    return {
        "surfaces": {
            "plan": {"steps": 10},
            "coordinates": COORDINATES,
            "rows": [0, 3, 4, 9],
            "labels": [3, 8, 0, 1],
            "objectives": ["cross_entropy", "cosine"],
        },
        "weights": {"plan": {"steps": 10}, "amounts": AMOUNTS, "count": 128},
        "cosines": {
            "plan": {"steps": 10},
            "edges": EDGES,
            "count": COUNT,
            "counts": {
                "clean_true": [0, 10, 60, 130],
                "clean_other": [0, 40, 120, 40],
                "adversarial_true": [5, 35, 110, 50],
                "adversarial_other": [0, 20, 110, 70],
            },
            "means": {
                "clean_true": 0.5,
                "clean_other": 0.2,
                "adversarial_true": 0.25,
                "adversarial_other": 0.3,
            },
            "mismatch": {"clean": 0.125, "adversarial": 0.25},
        },
        "eps": {
            "plan": {"steps": 20},
            "clean": share(150, COUNT),
            "unbounded": 1.0,
            "lines": [
                line("pgd", "PGD", RADII, [120, 90, 10, 0]),
                line("si-pgd", "SI-PGD", RADII, [118, 88, 8, 0]),
            ],
        },
        "steps": {
            "plan": {"restart_steps": 10},
            "clean": share(150, COUNT),
            "steps": [
                line("pgd", "PGD", [1, 10, 50], [140, 95, 91]),
                line("si-pgd", "SI-PGD", [1, 10, 50], [139, 94, 89]),
            ],
            "restarts": [line("pgd", "PGD", [1, 2], [95, 93]), line("si-pgd", "SI-PGD", [1, 2], [94, 92])],
        },
        "classes": {"count": COUNT, "attacks": ["PGD, 20 steps"], "source": "attacks of the analysis"},
    }


def array_objects(classes: int) -> dict[str, np.ndarray]:
    """Return the arrays of analysis.npz: smooth bowls, and a table of mistakes."""
    x = np.array(COORDINATES)
    plane = (x[:, None] + 2.5) ** 2 / 4 + x[None, :] ** 2 / 30
    losses = np.stack([scale * plane for scale in (1.0, 0.3, 0.6, 1.4)]).astype(np.float32)
    bowl = np.array(AMOUNTS)[None, :] ** 2
    table = np.zeros((classes, classes), dtype=np.int64)
    for number in range(COUNT):
        true = number % classes
        table[true, true if number % 3 else (true + 1) % classes] += 1
    return {
        "surfaces__cross_entropy": losses,
        "surfaces__cosine": losses / 2,
        "surfaces__margin": losses - 2,
        "weights__loss_clean": 0.8 + 2 * bowl,
        "weights__loss_adversarial": 1.5 + 5 * bowl,
        "weights__accuracy_clean": 0.75 - 0.6 * bowl,
        "weights__accuracy_adversarial": 0.45 - 0.4 * bowl,
        "classes__confusion": table,
        "classes__clean_correct": np.minimum(table.sum(axis=1), np.diagonal(table) + 1),
    }


def analysis_object(classes: list[str]) -> dict[str, Any]:
    """Return the contents of analysis.json."""
    return {
        "schema": "scaleproof.analysis/1",
        **setting_object(classes),
        "run": run_object("analysis", name="Analysis"),
        "count": COUNT,
        "notes": [],
        "parts": part_objects(),
    }


def write_analysis(folder: Path, classes: list[str] = CLASSES, *, alone: bool = True) -> Path:
    """Write an analysis into a folder of its own, or beside what is there."""
    folder.mkdir(parents=True, exist_ok=True)
    if alone:
        write_json(folder / "run.json", run_object("analysis", name="Analysis"))
    write_json(folder / "analysis.json", analysis_object(classes))
    np.savez_compressed(folder / "analysis.npz", **array_objects(len(classes)))
    return folder
