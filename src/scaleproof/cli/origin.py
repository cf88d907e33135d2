"""The training that a model comes from: its test images are the usual ones, its ball is told where it is another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaleproof.cli.tables import radius
from scaleproof.data import Dataset, load, names
from scaleproof.files import read_json
from scaleproof.threat import Threat
from scaleproof.train import FILES

if TYPE_CHECKING:
    from scaleproof.cli.setup import Request


def images_of(request: Request) -> Dataset:
    """The data asked for; else the test images of the training that the model comes from, else the sample."""
    training = None if request.data is not None else training_of(Path(request.model))
    test = None if training is None else training["test"]
    name = request.data or ("sample" if test is None else test["name"])
    if test is not None and name not in names():
        raise ValueError(
            f"{request.model} was trained for {name}, which is no data set of a known name: give --data"
        )
    found = load(name, split=request.split, folder=request.data_folder)
    if test is not None and test["split"] == found.split:
        count = test["count"]
        if count > len(found) or found.first(count).digest() != test["sha256"]:
            raise ValueError(
                f"{request.model} was trained for other images that are called {name}, too: give --data"
            )
    return found


def training_of(model: Path) -> Mapping[str, Any] | None:
    """The record of a training, where a model is its run folder or one of the weights in it."""
    training = (model.parent if model.name in FILES.values() else model) / "training.json"
    document = read_json(training) if training.is_file() else None
    if not isinstance(document, dict) or not str(document.get("schema")).startswith("scaleproof.training/"):
        return None
    return document


def other_ball(model: Path, threat: Threat) -> tuple[str, ...]:
    """A note where a network is attacked within another ball than it was trained for."""
    training = training_of(model)
    if training is None or training["defense"]["defense"] == "standard":
        return ()
    own = training["threat"]
    if own["norm"] == threat.norm and math.isclose(own["eps"], threat.eps, rel_tol=1e-5):
        return ()
    said = radius(own)
    eps = said.split()[1] if "/" in said else f"{own['eps']:.6g}"
    return (
        f"trained for {said}, attacked within {radius(vars(threat))}; for its own: --norm {own['norm']} --eps {eps}",
    )
