"""Measurements: what finished run folders say about the numbers of the paper."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from scaleproof.paper.claims import Claim
from scaleproof.paper.scales import SCALES
from scaleproof.paper.settings import EPS, Experiment
from scaleproof.paper.steps import ATTACK, RAYS, SPSA, STANDARD, TRAIN, folder_name, full_length
from scaleproof.store import is_finished, read_arrays

SELECTED = "selected"  # the weights that count: chosen on held-out training images


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One number from one run, in the unit of the paper, with where it comes from."""

    name: str  # as Claim.measurement
    value: float
    count: int  # of images
    seed: int
    variant: str
    short: bool  # whether less was done than the recipe says
    folder: Path
    commit: str | None
    hardware: str

    def as_json(self, root: Path) -> dict[str, object]:
        return {**vars(self), "folder": self.folder.relative_to(root).as_posix()}


def measurements(
    root: Path, experiments: Iterable[Experiment], variant: str | None = None
) -> list[Measurement]:
    """All that the folders under a root hold, of the variant asked for or of each model's best."""
    found: list[Measurement] = []
    for experiment in experiments:
        chosen = variant_folder(root, experiment, variant)
        if chosen is not None:
            for folder in sorted(chosen.glob("seed-*")):
                found += of_seed(folder, experiment)
    return found


def variant_folder(root: Path, experiment: Experiment, variant: str | None) -> Path | None:
    """The folder of one variant; without a name the longest training by the recipe that the experiment states."""
    folder = root / folder_name(experiment.model)
    if variant is not None:
        return folder / variant if (folder / variant).is_dir() else None
    if not experiment.trained:
        return folder / "published" if (folder / "published").is_dir() else None
    found = [path for path in folder.glob(f"{experiment.recipe}-*") if finished(path)]
    return max(found, key=lambda path: int(path.name.rsplit("-", 1)[1]), default=None)


def finished(variant: Path) -> bool:
    return any(is_finished(step) for step in variant.glob("seed-*/*"))


def of_seed(folder: Path, experiment: Experiment) -> Iterator[Measurement]:
    """Every number of one model and seed, the more thorough run first where two give the same."""
    seen: set[str] = set()
    for kind in (ATTACK, TRAIN, STANDARD, SPSA, RAYS):
        if is_finished(folder / kind):
            for found in of_run(folder / kind, kind, experiment):
                if found.name not in seen:
                    seen.add(found.name)
                    yield found


def of_run(folder: Path, kind: str, experiment: Experiment) -> Iterator[Measurement]:
    run = read(folder / "run.json")
    values, count = trained_values(folder) if kind == TRAIN else evaluated_values(folder, kind)
    variant = folder.parent.parent.name
    for how, value in values.items():
        yield Measurement(
            name=f"{experiment.model}/{how}",
            value=value,
            count=count,
            seed=int(folder.parent.name.removeprefix("seed-")),
            variant=variant,
            short=is_short(experiment, variant),
            folder=folder,
            commit=run["commit"],
            hardware=run["hardware"]["name"],
        )


def is_short(experiment: Experiment, variant: str) -> bool:
    """Whether a variant does less than the paper: another scale, or fewer epochs than its recipe has."""
    if variant in SCALES:
        return True
    name, _, epochs = variant.rpartition("-")
    return experiment.trained and int(epochs) < full_length(experiment, name)


def trained_values(folder: Path) -> tuple[dict[str, float], int]:
    """What a training measured on the weights that it selected."""
    evaluation = read(folder / "training.json")["results"][SELECTED]["evaluation"]
    return shares(evaluation), evaluation["clean"]["count"]


def evaluated_values(folder: Path, kind: str) -> tuple[dict[str, float], int]:
    evaluation = read(folder / "evaluation.json")
    count: int = evaluation["clean"]["count"]
    if kind == STANDARD:
        clean, worst = evaluation["clean"], evaluation["worst_case"]
        return {"none/0/clean": percent(clean), "standard/1/robust": percent(worst)}, count
    return (rays_values(folder) if kind == RAYS else shares(evaluation)), count


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
    right = arrays["clean_correct"]
    distance = np.where(right, np.nan_to_num(arrays["size__rays"].min(axis=0), nan=1.0), 0.0)
    broken = arrays["broken__rays"].any(axis=0)
    distance = np.where(right & ~broken, 1.0, distance)
    return {
        "rays/1/distance": float(distance.mean()),
        "rays/1/robust": 100 * float((distance > float(Fraction(EPS))).mean()),
    }


def percent(share: Mapping[str, Any]) -> float:
    return 100 * float(share["accuracy"])


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def by_claim(claims: Iterable[Claim], found: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """The measurements that settle each claim, by its key, one a seed."""
    by_name: dict[str, list[Measurement]] = {}
    for measurement in found:
        by_name.setdefault(measurement.name, []).append(measurement)
    return {claim.key: by_name.get(claim.measurement, []) for claim in claims}
