"""What figures and trainings say beyond the tables: the quantities that the paper's sentences compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean

from scaleproof.paper.figures import Figure, measured
from scaleproof.paper.judge import Measured
from scaleproof.paper.measured import Variants, is_partial, seed_folders
from scaleproof.paper.settings import Experiment
from scaleproof.paper.steps import TRAIN, read
from scaleproof.store import is_finished

HEAD_NORM = "head-norm"


def observed(
    root: Path, figures: Iterable[Figure], experiments: Iterable[Experiment], variants: Variants
) -> dict[str, Measured]:
    """Every quantity that the folders under a root hold, with its value by seed."""
    experiments = tuple(experiments)
    seeds: dict[str, dict[int, float]] = {}
    for key, seed, value in [
        *figure_values(root, figures, experiments, variants),
        *head_norms(root, experiments, variants),
    ]:
        seeds.setdefault(key, {})[seed] = value
    partial = {one.model for one in experiments if cut(root, one, variants)}
    return {
        key: Measured(
            value=fmean(values.values()),
            seeds=values,
            full=not any(f"/{model}/" in f"{key}/" for model in partial),
        )
        for key, values in seeds.items()
    }


def cut(root: Path, experiment: Experiment, variants: Variants) -> bool:
    """Whether any seed's training is not what the paper states."""
    return any(is_partial(experiment, folder) for _, folder in seed_folders(root, experiment, variants))


def figure_values(
    root: Path, figures: Iterable[Figure], experiments: Iterable[Experiment], variants: Variants
) -> Iterator[tuple[str, int, float]]:
    for figure in figures:
        for seed, folders in figure_folders(root, figure, experiments, variants).items():
            for key, found in measured(figure, folders).items():
                yield key, seed, found.value


def figure_folders(
    root: Path, figure: Figure, experiments: Iterable[Experiment], variants: Variants
) -> dict[int, Mapping[str, Path]]:
    """The finished run folders of a figure by seed, one a model."""
    found: dict[int, dict[str, Path]] = {}
    for experiment in experiments:
        if experiment.model in figure.models:
            for seed, folder in seed_folders(root, experiment, variants):
                if is_finished(folder / figure.id):
                    found.setdefault(seed, {})[experiment.model] = folder / figure.id
    return {seed: found[seed] for seed in sorted(found)}


def head_norms(
    root: Path, experiments: Iterable[Experiment], variants: Variants
) -> Iterator[tuple[str, int, float]]:
    """The mean norm of the rows of the head's weights after the last epoch of each training."""
    for experiment in experiments:
        for seed, folder in seed_folders(root, experiment, variants):
            if is_finished(folder / TRAIN):
                history = read(folder / TRAIN / "training.json")["history"]
                yield f"{HEAD_NORM}/{experiment.model}", seed, history[-1]["weight_norm"]
