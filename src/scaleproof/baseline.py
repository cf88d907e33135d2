"""Baseline: which images an earlier run left unbroken, for a comparison image by image."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scaleproof.attacks.base import Attack, attack_settings
from scaleproof.claims import Document, evaluation_of, read_document
from scaleproof.contract import Finding
from scaleproof.data import Dataset
from scaleproof.differences import differences
from scaleproof.files import UNFINISHED
from scaleproof.statistics import Paired
from scaleproof.store import read_arrays

NARROW = 1.0  # points


@dataclass(frozen=True, kw_only=True, eq=False)
class Baseline:
    """The images that survived all attacks of a stored evaluation, and which attacks those were."""

    folder: Path
    document: Document
    right: NDArray[np.bool_]

    @property
    def attacks(self) -> Mapping[str, Mapping[str, Any]]:
        return {attack["name"]: attack["settings"] for attack in self.document["attacks"]}


def read_baseline(folder: Path) -> Baseline:
    """The evaluation in a run folder that is finished."""
    if (folder / UNFINISHED).is_file():
        raise ValueError(
            f"the run in {folder} is not finished: run its command again, it goes on where it was"
        )
    document = read_document(folder / "evaluation.json")
    try:
        evaluation = evaluation_of(document, read_arrays(folder / "verdicts.npz"))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{folder} is damaged, it lacks {error}: take the files as they were written"
        ) from error
    return Baseline(folder=folder, document=document, right=evaluation.survivors())


def check_images(baseline: Baseline, dataset: Dataset) -> None:
    """Refuse to compare on other images: pairs are about the same ones."""
    said, count = baseline.document["data"], len(dataset)
    if said["sha256"] != dataset.digest() or len(baseline.right) != count:
        raise ValueError(
            f"the images must be those of {baseline.folder}, {said['count']} of {said['name']} "
            f"({said['split']}), got {count} of {dataset.name} ({dataset.split}) with other pixels or labels: "
            "give the same --data, --split and --limit"
        )


def check_attacks(baseline: Baseline, attacks: Sequence[Attack]) -> None:
    """Refuse to compare under other attacks: the difference would be theirs and not the model's."""
    draws = baseline.document.get("expected", {}).get("draws", 1)
    if draws > 1:
        raise ValueError(
            f"a gate judges one draw, {baseline.folder} is about the mean of {draws}: use scaleproof compare"
        )
    here = {attack.name: json.loads(json.dumps(attack_settings(attack))) for attack in attacks}
    found = differences("", dict(baseline.attacks), here)
    if found:
        name, before, now = found[0]
        raise ValueError(
            f"the attacks must be those of {baseline.folder}, {name} was {before}, is {now}: "
            "give the same --attacks and settings, or leave them out"
        )


def wide(found: Paired, max_drop: float) -> tuple[Finding, ...]:
    """A finding where a drop that passes is known less closely than the limit; to a point, where none is allowed."""
    low, high = (100 * end for end in found.interval())
    if high - low <= (max_drop or NARROW):
        return ()
    meaning = (
        f"the drop is within the limit on these {found.count} images, but its 95% interval is {high - low:.1f} points "
        f"wide: on other images like these it may be anything up to {high:.1f} points. Give more images (scaleproof "
        "plan says how many)"
    )
    return (Finding(name="wide-interval", severity="warning", meaning=meaning),)
