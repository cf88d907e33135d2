"""Measurements: what finished run folders say about the numbers of the paper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from scaleproof.paper.claims import Claim
from scaleproof.paper.scales import SCALES
from scaleproof.paper.settings import EPS, TEST_IMAGES, Experiment
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
    read,
)
from scaleproof.statistics import boundary_distances
from scaleproof.store import is_finished, read_arrays

SEED, VARIANT = re.compile(r"seed-\d+"), re.compile(r"(.+)-(\d+)")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One number from one run, in the unit of the paper, with where it comes from."""

    name: str  # as Claim.measurement
    value: float
    count: int  # of images
    seed: int
    variant: str
    partial: bool  # whether it is less, or something else, than the paper measured
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
    """Every number of one model and seed, the more thorough run first where two give the same."""
    seen: set[str] = set()
    for kind in (ATTACK, TRAIN, STANDARD, *SPSA, RAYS):
        if is_finished(folder / kind) and not is_stale(folder / kind):
            for found in of_run(folder / kind, kind, seed, experiment):
                if found.name not in seen:
                    seen.add(found.name)
                    yield found


def of_run(folder: Path, kind: str, seed: int, experiment: Experiment) -> Iterator[Measurement]:
    run = read(folder / "run.json")
    values, count, reliable = trained_values(folder) if kind == TRAIN else evaluated_values(folder, kind)
    variant = folder.parent.parent.name
    whole = count >= TEST_IMAGES[experiment.dataset] and reliable
    for how, value in values.items():
        yield Measurement(
            name=f"{experiment.model}/{how}",
            value=value,
            count=count,
            seed=seed,
            variant=variant,
            partial=not whole or is_partial(experiment, folder.parent),
            folder=folder,
            commit=run["commit"],
            hardware=run["hardware"]["name"],
        )


def is_partial(experiment: Experiment, folder: Path) -> bool:
    """Whether a seed's training is not what the paper states: another scale or length, or stopped on the way."""
    variant = folder.parent.name
    if variant in SCALES:
        return True
    match = VARIANT.fullmatch(variant)
    if not experiment.trained or match is None:
        return False
    stopped = is_finished(folder / TRAIN) and read(folder / TRAIN / "training.json")["stopped"] is not None
    return stopped or int(match[2]) != full_length(experiment, match[1])


Values = tuple[
    dict[str, float], int, bool
]  # by what follows the model in a measurement's name; images; reliable


def trained_values(folder: Path) -> Values:
    """What a training measured on the weights that it selected."""
    evaluation = read(folder / "training.json")["results"][SELECTED]["evaluation"]
    return shares(evaluation), evaluation["clean"]["count"], True


def evaluated_values(folder: Path, kind: str) -> Values:
    evaluation = read(folder / "evaluation.json")
    if kind == STANDARD:
        clean, worst = evaluation["clean"], evaluation["worst_case"]
        values = {"none/0/clean": percent(clean), "standard/1/robust": percent(worst)}
    else:
        values = rays_values(folder) if kind == RAYS else shares(evaluation)
    return values, evaluation["clean"]["count"], evaluation.get("reliable") is not False


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
