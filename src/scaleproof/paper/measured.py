"""Measurements: what finished run folders say about the numbers of the paper."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from scaleproof.files import read_json
from scaleproof.paper.claims import Claim
from scaleproof.paper.settings import EPS, Experiment
from scaleproof.paper.stated import VARIANT, departs, departure
from scaleproof.paper.steps import (
    ATTACK,
    RAYS,
    SELECTED,
    SPSA,
    STANDARD,
    TRAIN,
    folder_name,
    full_length,
    is_stale,
)
from scaleproof.statistics import boundary_distances
from scaleproof.store import is_finished, read_arrays

SEED = re.compile(r"seed-\d+")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One number from one run, in the unit of the paper, with where it comes from."""

    name: str  # as Claim.measurement
    value: float
    others: tuple[float, ...]  # the same of the training's other weights, where they were measured
    count: int  # of images
    seed: int
    variant: str
    partial: bool  # whether it is less, or something else, than the paper measured
    reason: str = ""  # in what
    folder: Path
    commit: str | None
    hardware: str

    def as_json(self, root: Path) -> dict[str, object]:
        return {**vars(self), "folder": self.folder.relative_to(root).as_posix()}


Variants = Mapping[str, str]  # by model, where another one is asked for than what counts


def measurements(root: Path, experiments: Iterable[Experiment], variants: Variants) -> list[Measurement]:
    """All that the folders under a root hold, of the variants asked for or of the one of each model that counts."""
    found: list[Measurement] = []
    for experiment in experiments:
        for seed, folder in seed_folders(root, experiment, variants):
            found += of_seed(folder, seed, experiment)
    return found


def seed_folders(root: Path, experiment: Experiment, variants: Variants) -> Iterator[tuple[int, Path]]:
    """The folders of a model's seeds, of one variant."""
    chosen = variant_folder(root, experiment, variants)
    for folder in sorted(chosen.glob("seed-*")) if chosen is not None else ():
        if SEED.fullmatch(folder.name):
            yield int(folder.name.removeprefix("seed-")), folder


def variant_folder(root: Path, experiment: Experiment, variants: Variants) -> Path | None:
    """The folder of one variant; without a name that of the stated recipe, as long as it says or the longest."""
    folder = root / folder_name(experiment.model)
    if experiment.model in variants:
        named = folder / variants[experiment.model]
        return named if named.is_dir() else None
    if not experiment.trained:
        return folder / "published" if (folder / "published").is_dir() else None
    found = {
        int(match[2]): path
        for path in folder.glob("*")
        if (match := VARIANT.fullmatch(path.name)) and match[1] == experiment.recipe and finished(path)
    }
    full = full_length(experiment, str(experiment.recipe))
    return found.get(full) or found.get(max(found, default=0))


def finished(variant: Path) -> bool:
    return any(is_finished(step) for step in variant.glob("seed-*/*"))


def of_seed(folder: Path, seed: int, experiment: Experiment) -> Iterator[Measurement]:
    """Every number of one model and seed, the more thorough run first where two give the same.

    Attacks on a network count as long as its training is there: they say nothing about the one that comes after it.
    """
    if experiment.trained and not is_finished(folder / TRAIN):
        return
    seen: set[str] = set()
    for kind in (ATTACK, TRAIN, STANDARD, *SPSA, RAYS):
        if is_finished(folder / kind) and not is_stale(folder / kind):
            for found in readable(folder / kind, kind, seed, experiment):
                if found.name not in seen:
                    seen.add(found.name)
                    yield found


def readable(folder: Path, kind: str, seed: int, experiment: Experiment) -> tuple[Measurement, ...]:
    """The numbers of a run; of a damaged one none, with a warning."""
    try:
        return tuple(of_run(folder, kind, seed, experiment))
    except (ValueError, KeyError, TypeError, OSError) as error:
        warnings.warn(f"{folder} does not count, it is damaged ({error}): move it away", stacklevel=2)
        return ()


def of_run(folder: Path, kind: str, seed: int, experiment: Experiment) -> Iterator[Measurement]:
    run = read_json(folder / "run.json")
    values, count = trained_values(folder) if kind == TRAIN else evaluated_values(folder, kind)
    reason = departure(experiment, folder.parent)
    if not reason and departs(folder, kind, seed, experiment):
        reason = "other images, seed or attacks than stated"
    if not reason and not is_reliable(folder.parent):
        reason = "a check failed"
    others = other_weights(folder.parent / TRAIN)
    for how, value in values.items():
        yield Measurement(
            name=f"{experiment.model}/{how}",
            value=value,
            others=tuple(other[how] for other in others if how in other),
            count=count,
            seed=seed,
            variant=folder.parent.parent.name,
            partial=bool(reason),
            reason=reason,
            folder=folder,
            commit=run["commit"],
            hardware=run["hardware"]["name"],
        )


def is_reliable(folder: Path) -> bool:
    """Whether no check failed on a seed's network, whichever of its runs examined it."""
    paths = [folder / kind / "evaluation.json" for kind in (ATTACK, STANDARD)]
    return not any(
        path.exists() and not is_stale(path.parent) and read_json(path).get("reliable") is False
        for path in paths
    )


def other_weights(training: Path) -> list[dict[str, float]]:
    """The numbers of a training's other weights, the last and those best on test images: a paper may mean those."""
    if not is_finished(training):
        return []
    results = read_json(training / "training.json")["results"]
    return [shares(found["evaluation"]) for name, found in results.items() if name != SELECTED]


Values = tuple[dict[str, float], int]  # by what follows the model in a measurement's name; images


def trained_values(folder: Path) -> Values:
    """What a training measured on the weights that it selected."""
    evaluation = read_json(folder / "training.json")["results"][SELECTED]["evaluation"]
    return shares(evaluation), evaluation["clean"]["count"]


def evaluated_values(folder: Path, kind: str) -> Values:
    evaluation = read_json(folder / "evaluation.json")
    if kind == STANDARD:
        clean, worst = evaluation["clean"], evaluation["worst_case"]
        values = {"none/0/clean": percent(clean), "standard/1/robust": percent(worst)}
    else:
        values = rays_values(folder) if kind == RAYS else shares(evaluation)
    return values, evaluation["clean"]["count"]


def shares(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """Clean accuracy and each attack's, by the paper's columns: one restart, and all of them."""
    found = {"none/0/clean": percent(evaluation["clean"])}
    for attack in evaluation["attacks"]:
        found[f"{attack['name']}/{attack['restarts']}/robust"] = percent(attack["robust"])
        found[f"{attack['name']}/1/robust"] = percent(attack["robust_one_restart"])
    return found


def rays_values(folder: Path) -> dict[str, float]:
    """Mean distance to the boundary (ADBD, zero where the clean image is wrong), and who is beyond eps."""
    arrays = read_arrays(folder / "verdicts.npz")
    if arrays is None:
        raise ValueError(f"{folder / 'verdicts.npz'} is absent or damaged: run the step again")
    distance = boundary_distances(
        arrays["clean_correct"],
        np.asarray(arrays["broken__rays"].any(axis=0)),
        arrays["size__rays"].min(axis=0),
    )
    return {
        "rays/1/distance": float(distance.mean()),
        "rays/1/robust": 100 * float((distance > float(Fraction(EPS))).mean()),
    }


def percent(share: Mapping[str, Any]) -> float:
    return 100 * float(share["accuracy"])


def by_claim(claims: Iterable[Claim], found: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """The measurements that settle each claim, by its key, one a seed."""
    by_name: dict[str, list[Measurement]] = {}
    for measurement in found:
        by_name.setdefault(measurement.name, []).append(measurement)
    return {claim.key: by_name.get(claim.measurement, []) for claim in claims}
