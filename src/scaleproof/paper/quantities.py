"""What figures and trainings say beyond the tables: the quantities that the paper's sentences compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean

from scaleproof.paper.figures import Figure, measured
from scaleproof.paper.judge import Measured
from scaleproof.paper.measured import is_short, read, variant_folder
from scaleproof.paper.settings import Experiment
from scaleproof.paper.steps import TRAIN
from scaleproof.store import is_finished

HEAD_NORM = "head-norm"


def quantities(
    root: Path, figures: Iterable[Figure], experiments: Iterable[Experiment], variant: str | None = None
) -> dict[str, Measured]:
    """Every quantity that the folders under a root hold, with its value by seed."""
    experiments = tuple(experiments)
    seeds: dict[str, dict[int, float]] = {}
    for key, seed, value in [
        *figure_values(root, figures, experiments, variant),
        *head_norms(root, experiments, variant),
    ]:
        seeds.setdefault(key, {})[seed] = value
    short = {one.model for one in experiments if cut(root, one, variant)}
    return {
        key: Measured(
            value=fmean(values.values()),
            seeds=values,
            full=not any(f"/{model}/" in f"{key}/" for model in short),
        )
        for key, values in seeds.items()
    }


def cut(root: Path, experiment: Experiment, variant: str | None) -> bool:
    folder = variant_folder(root, experiment, variant)
    return folder is not None and is_short(experiment, folder.name)


def figure_values(
    root: Path, figures: Iterable[Figure], experiments: Iterable[Experiment], variant: str | None
) -> Iterator[tuple[str, int, float]]:
    for figure in figures:
        for seed, folders in figure_folders(root, figure, experiments, variant).items():
            for key, found in measured(figure, folders).items():
                yield key, seed, found.value


def figure_folders(
    root: Path, figure: Figure, experiments: Iterable[Experiment], variant: str | None = None
) -> dict[int, Mapping[str, Path]]:
    """The finished run folders of a figure by seed, one a model."""
    found: dict[int, dict[str, Path]] = {}
    for experiment in experiments:
        if experiment.model in figure.models:
            for seed, folder in seed_folders(root, experiment, variant):
                if is_finished(folder / figure.id):
                    found.setdefault(seed, {})[experiment.model] = folder / figure.id
    return {seed: found[seed] for seed in sorted(found)}


def head_norms(
    root: Path, experiments: Iterable[Experiment], variant: str | None
) -> Iterator[tuple[str, int, float]]:
    """The mean norm of the rows of the head's weights after the last epoch of each training."""
    for experiment in experiments:
        for seed, folder in seed_folders(root, experiment, variant):
            if is_finished(folder / TRAIN):
                history = read(folder / TRAIN / "training.json")["history"]
                yield f"{HEAD_NORM}/{experiment.model}", seed, history[-1]["weight_norm"]


def seed_folders(root: Path, experiment: Experiment, variant: str | None) -> Iterator[tuple[int, Path]]:
    chosen = variant_folder(root, experiment, variant)
    for folder in sorted(chosen.glob("seed-*")) if chosen is not None else ():
        yield int(folder.name.removeprefix("seed-")), folder
