"""What figures and trainings say beyond the tables: the quantities that the paper's sentences compare."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from scaleproof.files import read_json
from scaleproof.paper.figures import Figure, measured
from scaleproof.paper.judge import Measured
from scaleproof.paper.measured import Variants, is_reliable, seed_folders
from scaleproof.paper.settings import TEST_IMAGES, Experiment
from scaleproof.paper.stated import departure
from scaleproof.paper.steps import TRAIN, document_of, has_eps, is_stale
from scaleproof.store import is_finished

HEAD_NORM, ZERO_GRADIENTS = "head-norm", "zero-gradients-after-training"


@dataclass(frozen=True)
class Seen:
    """One quantity from the run or the runs of one seed; `whole` where they are what the paper states."""

    key: str  # as Item.key
    seed: int
    value: float
    whole: bool


def observed(
    root: Path, figures: Iterable[Figure], experiments: Iterable[Experiment], variants: Variants
) -> dict[str, Measured]:
    """Every quantity that the folders under a root hold, with its value by seed."""
    experiments = tuple(experiments)
    by_key: dict[str, list[Seen]] = {}
    for seen in (
        *figure_values(root, figures, experiments, variants),
        *training_values(root, experiments, variants),
    ):
        by_key.setdefault(seen.key, []).append(seen)
    return {
        key: Measured(
            value=fmean(one.value for one in found),
            seeds={one.seed: one.value for one in found},
            full=all(one.whole for one in found),
        )
        for key, found in by_key.items()
    }


def figure_values(
    root: Path, figures: Iterable[Figure], experiments: tuple[Experiment, ...], variants: Variants
) -> Iterator[Seen]:
    datasets = {one.model: one for one in experiments}
    for figure in figures:
        for seed, folders in figure_folders(root, figure, experiments, variants).items():
            try:
                found = measured(figure, folders)
                whole = all(is_whole(path, seed, datasets[model]) for model, path in folders.items())
            except (ValueError, KeyError, OSError) as error:
                warnings.warn(f"{figure.id} of seed {seed} does not count: {error}", stacklevel=2)
                continue
            yield from (Seen(key, seed, one.value, whole) for key, one in found.items())


def is_whole(folder: Path, seed: int, experiment: Experiment) -> bool:
    """Whether a figure's run is of a training as stated that no check faults, with its seed and eps, on all images."""
    path = document_of(folder)
    assert path is not None
    document = read_json(path)
    return (
        not departure(experiment, folder.parent)
        and is_reliable(folder.parent)
        and read_json(folder / "run.json")["seed"] == seed
        and document["data"]["count"] >= TEST_IMAGES[experiment.dataset]
        and has_eps(document["threat"])
    )


def figure_folders(
    root: Path, figure: Figure, experiments: Iterable[Experiment], variants: Variants
) -> dict[int, Mapping[str, Path]]:
    """The finished run folders of a figure by seed, one a model; a training must be there, and of the same weights."""
    found: dict[int, dict[str, Path]] = {}
    for experiment in experiments:
        if experiment.model in figure.models:
            for seed, folder in seed_folders(root, experiment, variants):
                there = is_finished(folder / figure.id) and not is_stale(folder / figure.id)
                if there and (is_finished(folder / TRAIN) or not experiment.trained):
                    found.setdefault(seed, {})[experiment.model] = folder / figure.id
    return {seed: found[seed] for seed in sorted(found)}


def training_values(root: Path, experiments: Iterable[Experiment], variants: Variants) -> Iterator[Seen]:
    """After the last epoch: mean norm of the rows of the head's weights, and images where cross entropy is flat."""
    for experiment in experiments:
        for seed, folder in seed_folders(root, experiment, variants):
            if is_finished(folder / TRAIN):
                last = read_json(folder / TRAIN / "training.json")["history"][-1]
                whole = not departure(experiment, folder) and is_reliable(folder)
                yield Seen(f"{HEAD_NORM}/{experiment.model}", seed, last["weight_norm"], whole)
                flat = (last.get("validation") or {}).get("zero_gradients")
                if flat is not None:
                    yield Seen(f"{ZERO_GRADIENTS}/{experiment.model}", seed, flat, whole)
