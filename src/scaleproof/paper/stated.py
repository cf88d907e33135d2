"""Stated: whether a run is what the paper states. One that is less, or something else, settles nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from scaleproof.attacks.suites import AUTOATTACK, suite
from scaleproof.defenses import Defense, hypersphere, scale_invariant
from scaleproof.files import read_json
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
    recipe_of,
)
from scaleproof.store import is_finished

STATED = {
    attack.name: attack.describe()
    for attack in suite(",".join((WHITE_BOX, STANDARD, *SPSA, RAYS)), steps=STEPS)
}
FREE = ("restarts", "eps")  # a column asks for its own restarts; eps is compared by its own rule
CHANGED = "the recipe has changed since"
VARIANT = re.compile(r"(.+)-(\d+)")


def departure(experiment: Experiment, folder: Path) -> str:
    """In what a seed's training is not as stated, in a few words: scale, recipe, length, data, or stopped on the way.

    Another recipe may have the same name: what it was is in the folder, what it is in this package.
    """
    variant = folder.parent.name
    if variant in SCALES:
        return "another scale"
    if not experiment.trained:
        return ""
    match = VARIANT.fullmatch(variant)
    if match is None or match[1] != experiment.recipe:
        return "another recipe"
    if int(match[2]) != full_length(experiment, match[1]):
        return "another length"
    if not is_finished(folder / TRAIN):
        return ""
    training = read_json(folder / TRAIN / "training.json")
    if training["stopped"] is not None:
        return "stopped"
    if training["data"]["count"] < TRAINING_IMAGES[experiment.dataset]:
        return "a part of the training images"
    return "" if follows_recipe(training, experiment) else CHANGED


def follows_recipe(training: Mapping[str, Any], experiment: Experiment) -> bool:
    """Whether a training's settings are those of its recipe, with the mechanism of its row."""
    stated = recipe_of(experiment, experiment.recipe)
    seed = training["config"]["seed"]
    described = {"defense": mechanised(stated.defense, experiment).describe()}
    described["config"] = replace(stated.config, seed=seed).describe()
    return all(training[part] == json.loads(json.dumps(found)) for part, found in described.items())


def mechanised(defense: Defense, experiment: Experiment) -> Defense:
    """The defense with what `Experiment.command` asks for."""
    if experiment.mechanism == "he":
        return hypersphere(defense)
    if experiment.mechanism != "si":
        return defense
    scale, margin, beta = experiment.scale, experiment.margin, experiment.beta
    assert scale is not None
    assert margin is not None
    assert beta is not None
    return scale_invariant(defense, scale=scale, margin=margin, weight=beta)


def departs(folder: Path, kind: str, seed: int, experiment: Experiment) -> bool:
    """Whether a run's images, seed, mode or attacks are others than its columns ask for."""
    document = read_json(folder / ("training.json" if kind == TRAIN else "evaluation.json"))
    found = document["results"][SELECTED]["evaluation"] if kind == TRAIN else document
    images = document["test" if kind == TRAIN else "data"]
    attacks = {attack["name"]: attack["settings"] for attack in found["attacks"]}
    return (
        read_json(folder / "run.json")["seed"] != seed
        or (images["name"], images["split"]) != (experiment.dataset, "test")
        or found["clean"]["count"] < TEST_IMAGES[experiment.dataset]
        or (kind == STANDARD and attacks.keys() != {*AUTOATTACK})
        or (found["mode"] == "cascade" and kind not in (STANDARD, *SPSA))  # each attack saw what others left
        or not all(is_stated(kind, name, settings) for name, settings in attacks.items())
    )


def is_stated(kind: str, name: str, settings: Mapping[str, Any]) -> bool:
    """Whether an attack of the paper's columns has their eps and the settings that its name stands for.

    RayS finds its own eps. Of an attack that no column names nothing is asked but eps.
    """
    eps, stated = 1.0 if kind == RAYS else float(Fraction(EPS)), STATED.get(name, {})
    return has_eps(settings, eps) and all(
        settings.get(key) in (value, f"targeted({value})") for key, value in stated.items() if key not in FREE
    )
