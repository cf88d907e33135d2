"""Stated: whether a run is what the paper states. One that is less, or something else, settles nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from scaleproof.attacks.suites import AUTOATTACK, SUITES, suite
from scaleproof.paper.scales import SCALES
from scaleproof.paper.settings import EPS, STEPS, TEST_IMAGES, TRAINING_IMAGES, Experiment
from scaleproof.paper.steps import (
    RAYS,
    SELECTED,
    SPSA,
    STANDARD,
    TRAIN,
    WHITE_BOX,
    full_length,
    has_eps,
    read,
)
from scaleproof.store import is_finished

STATED_STEPS = {
    **dict.fromkeys(SUITES[WHITE_BOX], STEPS),
    **{attack.name: attack.steps for attack in suite(",".join((*SPSA, RAYS)))},
}
VARIANT = re.compile(r"(.+)-(\d+)")


def is_partial(experiment: Experiment, folder: Path) -> bool:
    """Whether a seed's training is not as stated: another scale, recipe, length or data, or stopped on the way."""
    variant = folder.parent.name
    if variant in SCALES:
        return True
    if not experiment.trained:
        return False
    match = VARIANT.fullmatch(variant)
    if match is None or match[1] != experiment.recipe:
        return True
    return int(match[2]) != full_length(experiment, match[1]) or (
        is_finished(folder / TRAIN) and is_cut(read(folder / TRAIN / "training.json"), experiment)
    )


def is_cut(training: Mapping[str, Any], experiment: Experiment) -> bool:
    return training["stopped"] is not None or training["data"]["count"] < TRAINING_IMAGES[experiment.dataset]


def departs(folder: Path, kind: str, seed: int, experiment: Experiment) -> bool:
    """Whether a run's images, seed, eps or attacks are others than its columns ask for."""
    if kind == TRAIN:
        found = read(folder / "training.json")["results"][SELECTED]["evaluation"]
    else:
        found = read(folder / "evaluation.json")
    attacks = {attack["name"]: attack["settings"] for attack in found["attacks"]}
    return (
        read(folder / "run.json")["seed"] != seed
        or found["clean"]["count"] < TEST_IMAGES[experiment.dataset]
        or (kind == STANDARD and not attacks.keys() >= {*AUTOATTACK})
        or not all(is_stated(kind, name, settings) for name, settings in attacks.items())
    )


def is_stated(kind: str, name: str, settings: Mapping[str, Any]) -> bool:
    """Whether an attack has the eps of the paper's columns, and as many steps; RayS finds its own eps."""
    eps = 1.0 if kind == RAYS else float(Fraction(EPS))
    return has_eps(settings, eps) and settings["steps"] == STATED_STEPS.get(name, settings["steps"])
