"""Steps: the commands that get a model of the paper and measure it, each with the run folder that it fills.

A model's folders are `MODEL/VARIANT/seed-N/STEP` under one root; a step is done when its run folder is finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from scaleproof.attacks.suites import SUITES
from scaleproof.files import UNFINISHED, read_json
from scaleproof.paper.claims import Column
from scaleproof.paper.figures import figure
from scaleproof.paper.scales import Scale
from scaleproof.paper.settings import EPS, Experiment
from scaleproof.store import is_finished
from scaleproof.training.recipes import Recipe, recipe

WHITE_BOX = "paper"  # the suite with all four attacks of the paper
FIGURE = "fig-"  # how the kind of a step begins that measures for a figure
TRAIN, ATTACK, STANDARD, RAYS = "train", "attack", "standard", "rays"
SPSA = ("spsa-128", "spsa-256", "spsa-512")  # each alone, so that an image is let go when it is broken
SELECTED = "selected"  # the weights that count: chosen on held-out training images
WEIGHTS = "model.safetensors"  # what a training leaves for the steps after it
DOCUMENTS = ("evaluation.json", "sweep.json", "analysis.json")  # of runs that measure a network
DONE, CUT, MISSING, STALE = "done", "cut", "missing", "of other weights"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command, in the words after `scaleproof`; `--out` is the folder."""

    kind: str
    folder: Path
    words: tuple[str, ...]

    @property
    def state(self) -> str:
        if is_finished(self.folder):
            return STALE if is_stale(self.folder) else DONE
        return CUT if (self.folder / UNFINISHED).exists() else MISSING

    @property
    def command(self) -> tuple[str, ...]:
        return (*self.words, "--out", str(self.folder))


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The steps of one model and one seed, in their order."""

    experiment: Experiment
    scale: Scale
    seed: int
    variant: str
    recipe: str | None
    epochs: int | None  # of the training; None for a model that others published
    folder: Path
    steps: tuple[Step, ...]

    @property
    def missing(self) -> tuple[Step, ...]:
        """What is left to do."""
        return tuple(step for step in self.steps if step.state != DONE)

    @property
    def absence(self) -> str:
        """Why there is nothing to do for a model that others published."""
        name = self.experiment.published
        return "not on RobustBench" if name is None else f"no {name}.pt: give --checkpoints"

    def training_alone(self) -> Chain:
        return replace(self, steps=tuple(step for step in self.steps if step.kind == TRAIN))

    @property
    def lost_weights(self) -> bool:
        """Whether something is left to measure on a network whose weights were not kept."""
        first = self.steps[0] if self.steps else None
        return (
            first is not None
            and first.kind == TRAIN
            and first.state == DONE
            and bool(self.missing)
            and not (first.folder / WEIGHTS).exists()
        )


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and how steps run: what every command is told besides its own settings."""

    root: Path
    data_folder: Path | None = None
    checkpoints: Path | None = None  # of published models, in RobustBench's layout
    device: str = "auto"
    epochs: int | None = None  # in place of the recipe's
    recipe: str | None = None

    def __post_init__(self) -> None:
        if self.epochs is not None and self.epochs < 1:
            raise ValueError(f"--epochs must be >= 1, got {self.epochs}")
        if self.checkpoints is not None and not self.checkpoints.is_dir():
            raise ValueError(f"--checkpoints must be a folder that is there, got {self.checkpoints}")


def kind_of(column: Column) -> str:
    """Which step measures a column: the training attacks its own weights, once."""
    attack = column.attack
    if attack is not None and attack.startswith("standard"):
        return STANDARD
    if attack in (*SPSA, RAYS):
        return str(attack)
    return ATTACK if column.restarts > 1 else TRAIN


def kinds_of(columns: Iterable[Column]) -> tuple[str, ...]:
    wanted = {kind_of(column) for column in columns}
    return tuple(kind for kind in (ATTACK, STANDARD, RAYS, *SPSA) if kind in wanted)


def folder_name(model: str) -> str:
    """A model's name as one folder: cifar10-resnet18-trades-si-s15-m0.2-beta0.2."""
    return model.replace("/", "-").replace("=", "")


def chain(experiment: Experiment, scale: Scale, place: Place, kinds: Iterable[str], seed: int = 0) -> Chain:
    """Training and evaluations of one model and seed; `kinds` says which evaluations."""
    variant, epochs = variant_of(experiment, scale, place)
    folder = place.root / folder_name(experiment.model) / variant / f"seed-{seed}"
    steps = [*train_steps(experiment, scale, place, folder, seed)]
    model = model_spec(experiment, scale, place, folder)
    if model is not None:
        again = not experiment.trained or lacks_attacks(folder / TRAIN)
        wanted = dict.fromkeys([ATTACK, *kinds] if again else kinds)
        steps += [measuring_step(kind, model, experiment, scale, place, folder, seed) for kind in wanted]
    return Chain(
        experiment=experiment,
        scale=scale,
        seed=seed,
        variant=variant,
        recipe=(place.recipe or experiment.recipe) if experiment.trained else None,
        epochs=epochs,
        folder=folder,
        steps=tuple(steps),
    )


def variant_of(experiment: Experiment, scale: Scale, place: Place) -> tuple[str, int | None]:
    """Recipe and length as one word, and the length."""
    if not experiment.trained:
        return ("published", None) if scale.architecture is None else (scale.name, None)
    if scale.epochs is not None:
        return scale.name, scale.epochs
    name = place.recipe or str(experiment.recipe)
    epochs = place.epochs or full_length(experiment, name)
    return f"{name}-{epochs}", epochs


def full_length(experiment: Experiment, name: str) -> int:
    return recipe_of(experiment, name).config.epochs


def recipe_of(experiment: Experiment, name: str | None) -> Recipe:
    return recipe(experiment.defense, name=name, architecture=experiment.architecture)


def lacks_attacks(training: Path) -> bool:
    """Whether a finished training did not run all attacks of the paper on its own weights: then they come after it."""
    if not is_finished(training):
        return False
    evaluation = read_json(training / "training.json")["results"][SELECTED]["evaluation"]
    stated = {attack["name"] for attack in evaluation["attacks"] if has_eps(attack["settings"])}
    return not stated >= {*SUITES[WHITE_BOX]}


def has_eps(settings: Mapping[str, Any], eps: float = float(Fraction(EPS))) -> bool:
    """Whether an attack had the eps of the paper; some recipes train, and so measure, at another one."""
    return abs(float(settings["eps"]) - eps) < 1e-9


def is_stale(folder: Path) -> bool:
    """Whether a run is one of other weights than the training beside it now has."""
    path, training = document_of(folder), folder.parent / TRAIN / "training.json"
    if path is None or not training.exists():
        return False
    return bool(
        read_json(path)["model"]["weights_sha256"]
        != read_json(training)["results"][SELECTED]["weights_sha256"]
    )


def document_of(folder: Path) -> Path | None:
    """The file that says what a run measured of a network."""
    return next((folder / name for name in DOCUMENTS if (folder / name).exists()), None)


def train_steps(
    experiment: Experiment, scale: Scale, place: Place, folder: Path, seed: int
) -> Iterable[Step]:
    if not experiment.trained:
        return
    stated = replace(
        experiment,
        architecture=scale.architecture or experiment.architecture,
        dataset=scale.training_data or experiment.dataset,
    )
    words = [*stated.command(place.recipe), "--attacks", WHITE_BOX, "--seed", str(seed)]
    words += option("--epochs", scale.epochs or place.epochs)
    words += option("--limit", scale.training_images) + option("--test-limit", scale.test_images)
    yield Step(kind=TRAIN, folder=folder / TRAIN, words=(*words, *common(place)))


def model_spec(experiment: Experiment, scale: Scale, place: Place, folder: Path) -> str | None:
    """What `scaleproof evaluate` is given: our own training, a published checkpoint, or nothing."""
    if experiment.trained:
        return str(folder / TRAIN)
    if scale.stand_in is not None:
        return scale.stand_in
    if experiment.weights is None or place.checkpoints is None:
        return None
    path = place.checkpoints / experiment.dataset / "Linf" / f"{experiment.published}.pt"
    return f"{experiment.weights}@{place.checkpoints}" if path.is_file() else None


def measuring_step(
    kind: str, model: str, experiment: Experiment, scale: Scale, place: Place, folder: Path, seed: int
) -> Step:
    """An evaluation of a model, or the run that a figure is drawn from."""
    words_of = figure_words if kind.startswith(FIGURE) else evaluation_words
    words = words_of(kind, model, scale.test_data or experiment.dataset, scale, seed)
    return Step(kind=kind, folder=folder / kind, words=(*words, *common(place)))


def evaluation_words(kind: str, model: str, data: str, scale: Scale, seed: int) -> list[str]:
    images = {ATTACK: scale.test_images, STANDARD: scale.standard_images}.get(kind, scale.black_box_images)
    settings = {
        ATTACK: ["--attacks", WHITE_BOX, "--restarts", "5", "--eps", EPS],
        STANDARD: ["--attacks", scale.standard, "--eps", EPS, "--mode", "cascade"],
        **{
            name: ["--attacks", scale.black_box_attack(name), "--eps", EPS, "--mode", "cascade"]
            for name in SPSA
        },
        # The sizes that RayS finds are distances to the boundary.
        RAYS: ["--attacks", scale.black_box_attack(RAYS), "--eps", "1"],
    }
    words = ["evaluate", model, "--data", data, *settings[kind], *option("--limit", images)]
    checks = "--checks" if kind == STANDARD and scale.architecture is None else "--no-checks"
    return [*words, "--seed", str(seed), checks]


def figure_words(kind: str, model: str, data: str, scale: Scale, seed: int) -> list[str]:
    """A sweep or an analysis of one of the models of a figure."""
    shown = figure(kind)
    words = [str(shown.command), model, "--data", data, *shown.options]
    return [*words, *option("--limit", scale.figure_images), "--eps", EPS, "--seed", str(seed)]


def common(place: Place) -> list[str]:
    return [*option("--data-folder", place.data_folder), "--device", place.device, "--no-report"]


def option(name: str, value: object) -> list[str]:
    return [] if value is None else [name, str(value)]
