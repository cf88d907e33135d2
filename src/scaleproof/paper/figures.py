"""Figures: the paper's pictures, which runs they are drawn from, and which of its sentences those runs settle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scaleproof.files import write_atomically
from scaleproof.paper.judge import Measured
from scaleproof.paper.measures import READERS
from scaleproof.report.folder import load_run
from scaleproof.report.records import Run

AT, TRADES = "cifar10/resnet18/at", "cifar10/resnet18/trades"
WITH_SI = "-si/s=15/m=0.2/beta=0.2"
ALPHAS = "1e-3,1e-2,1e-1,1,1e1,1e2,1e3"
DIRECTIONS = 10  # of the weights: one random direction says little


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure: the models it shows, the command that measures each of them, and the quantities it settles."""

    id: str
    title: str
    label: str  # in the TeX source
    models: tuple[str, ...]  # as Experiment.model
    command: str | None  # of scaleproof; None where the package has all that is drawn
    options: tuple[str, ...]  # after the model and the data
    quantities: tuple[str, ...]
    remark: str | None = None


FIGURES = (
    Figure(
        id="fig-scale",
        title="Verdicts against the scale of the logits",
        label="fig:motivation",
        models=(TRADES,),
        command="sweep",
        options=("--attacks", "paper", "--alphas", ALPHAS),
        quantities=("robust-at-scale", "swing", "zero-gradients"),
        remark="The paper says that the model is trained by TRADES, not which network: ResNet-18 is taken, and "
        "the other attacks of its tables are shown beside PGD and SI-PGD.",
    ),
    Figure(
        id="fig-geometry",
        title="Features, class weights and the pull of two losses",
        label="fig:defense",
        models=(),
        command=None,
        options=(),
        quantities=(),
        remark="The paper draws a sketch: here the vectors are those of the embedded network.",
    ),
    Figure(
        id="fig-loss-surface",
        title="The loss around single images",
        label="fig:exloss",
        models=(AT + WITH_SI, AT),
        command="analyse",
        options=("--parts", "surfaces"),
        quantities=("surface-roughness",),
        remark="The paper shows AT-SI alone and calls it smooth; AT is there to compare it with.",
    ),
    Figure(
        id="fig-weight-surface",
        title="The adversarial loss around the weights",
        label="fig:wloss",
        models=(TRADES, TRADES + WITH_SI),
        command="analyse",
        options=("--parts", "weights", "--directions", str(DIRECTIONS)),
        quantities=("weight-loss-rise",),
        remark="The paper moves the weights along one random direction: here it is the mean over several.",
    ),
    Figure(
        id="fig-cosines",
        title="Cosines of features and class weights under attack",
        label="fig:weight",
        models=(TRADES, TRADES + WITH_SI),
        command="analyse",
        options=("--parts", "cosines"),
        quantities=("true-cosine",),
        remark="The paper does not say whether the cosines are those of the true class or of all: both are shown.",
    ),
)


def figures() -> tuple[Figure, ...]:
    """Every figure, in the paper's order."""
    return FIGURES


def figure(id: str) -> Figure:
    """The figure of an id."""
    found = [one for one in FIGURES if one.id == id]
    if not found:
        raise ValueError(f"a figure must be one of {', '.join(one.id for one in FIGURES)}, got {id!r}")
    return found[0]


def draw(figure: Figure, folders: Mapping[str, Path], out: Path) -> Path:
    """Draw a figure from finished run folders, one a model, into a .png file or as ID.png into a folder."""
    from scaleproof.paper.drawing import picture

    path = out if out.suffix == ".png" else out / f"{figure.id}.png"
    return write_atomically(path, picture(figure, runs_of(figure, folders)))


def measured(figure: Figure, folders: Mapping[str, Path]) -> dict[str, Measured]:
    """What the folders say about the quantities of prose.json, keyed as `Item.key` is and with errors for `judge`.

    An error is half a 95% interval, or 0 where there is nothing to tell it from.
    """
    return {
        "/".join([quantity, model, *rest]): value
        for model, run in runs_of(figure, folders).items()
        for quantity in figure.quantities
        for rest, value in READERS[quantity](run)
    }


def runs_of(figure: Figure, folders: Mapping[str, Path]) -> dict[str, Run]:
    """The runs of a figure's models, in its order, read and checked: all of one kind, on the same images."""
    found = {model: load_run(folders[model]) for model in figure.models if model in folders}
    for model, run in found.items():
        if not holds_what(figure, run):
            raise ValueError(
                f"{figure.id} is drawn from `scaleproof {' '.join([str(figure.command), '...', *figure.options])}`, "
                f"{folders[model]} holds another kind of run"
            )
    settings = {model: setting(run) for model, run in found.items()}
    if len(set(settings.values())) > 1:
        raise ValueError(
            f"the runs of a figure must have the same images, eps and seed, those of {figure.id} differ: {settings}"
        )
    return found


def holds_what(figure: Figure, run: Run) -> bool:
    """Whether a run has the part that a figure is drawn from."""
    if figure.command == "sweep":
        return run.sweep is not None
    return run.analysis is not None and getattr(run.analysis, figure.options[1]) is not None


def setting(run: Run) -> tuple[str, int, str, float, int]:
    """What two runs must share to be shown side by side: images, threat and seed."""
    seen = run.sweep or run.analysis
    assert seen is not None
    return seen.data.sha256, seen.data.count, seen.threat.norm, seen.threat.eps, run.run.seed
