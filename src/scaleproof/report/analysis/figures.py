"""Which figures an analysis has, each under its section, with the words that go with it."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from scaleproof.report import words
from scaleproof.report.analysis import classes_plots, curve_plots, surface_plots
from scaleproof.report.analysis.records import (
    Analysis,
    Classes,
    Cosines,
    EpsCurve,
    StepCurve,
    Surfaces,
    WeightSurface,
)
from scaleproof.report.analysis.words import MANY_CLASSES, SHOWN_IMAGES, objective_name
from scaleproof.report.plate import Plate

Part = TypeVar("Part")


def analysis_plates(analysis: Analysis) -> dict[str, Plate]:
    """Return the figures of an analysis by the section that each belongs to."""

    def plate(name: str, part: Part | None, build: Callable[[Analysis, Part], Plate]) -> dict[str, Plate]:
        return {} if part is None else {f"analysis-{name}": build(analysis, part)}

    return {
        **plate("surfaces", analysis.surfaces, surface_plate),
        **plate("weights", analysis.weights, weight_plate),
        **plate("cosines", analysis.cosines, cosine_plate),
        **plate("eps", analysis.eps, eps_plate),
        **plate("steps", analysis.steps, step_plate),
        **plate("classes", analysis.classes, class_plate),
        **plate("confusion", analysis.classes, confusion_plate),
    }


def surface_plate(analysis: Analysis, surfaces: Surfaces) -> Plate:
    """Return the figure of the losses around images."""
    names = " and ".join(objective_name(name).lower() for name in surfaces.losses)
    shown = min(SHOWN_IMAGES, len(surfaces.rows))
    many = f"the mean of {len(surfaces.rows)} images and " if len(surfaces.rows) > 1 else ""
    return Plate(
        draw=partial(surface_plots.surfaces_figure, analysis, surfaces),
        description=f"Maps of the loss ({names}) in the plane of the PGD direction and a random one: {many}"
        f"{words.plural(shown, 'single image')}. The table has numbers from them.",
        caption=f"Loss around images: {many}{words.plural(shown, 'single image')}; steps of colour grow with "
        f"the loss. Both axes are in multiples of ε = {words.radius(analysis.threat.eps)}. Dashed: the edge of the "
        "budget. White: where the classifier begins to err.",
        formats=("png",),
    )


def weight_plate(analysis: Analysis, weights: WeightSurface) -> Plate:
    """Return the figure of the losses around the weights."""
    return Plate(
        draw=partial(surface_plots.weights_figure, weights),
        description="Lines against the distance of the weights from where they are: mean loss and accuracy, "
        "on clean images and on adversarial ones made anew at every distance. The table has the numbers.",
        caption=f"Mean cross entropy and accuracy on {weights.count} images while all filters move along a "
        "random direction; at 1 each has moved by its own length.",
    )


def cosine_plate(analysis: Analysis, cosines: Cosines) -> Plate:
    """Return the figure of the histograms of cosines."""
    return Plate(
        draw=partial(curve_plots.cosines_figure, cosines),
        description="Two histograms of cosines, on clean and on adversarial images: of the true class and of "
        "the best other class. The table has the means.",
        caption=f"Cosines between features and class weights, n = {cosines.count}. Upright lines mark the means.",
    )


def eps_plate(analysis: Analysis, curve: EpsCurve) -> Plate:
    """Return the figure of accuracy against the size of the perturbation."""
    return Plate(
        draw=partial(curve_plots.eps_figure, analysis, curve),
        description="Lines of robust accuracy against the size of the perturbation, from none to unbounded, "
        "one an attack. The table has the numbers.",
        caption=f"Accuracy against ε, n = {curve.clean.count}. Bands are 95% Wilson intervals; the dotted "
        f"line marks ε = {words.radius(analysis.threat.eps)}.",
    )


def step_plate(analysis: Analysis, curve: StepCurve) -> Plate:
    """Return the figure of accuracy against steps and restarts."""
    return Plate(
        draw=partial(curve_plots.steps_figure, curve),
        description="Two panels of robust accuracy: against the number of steps of each attack, and against "
        "the number of its restarts. The table has the numbers.",
        caption=f"Accuracy against steps (left or above) and, with {curve.restart_steps} steps, against restarts "
        f"(right or below), n = {curve.clean.count}. Bands are 95% Wilson intervals.",
    )


def class_plate(analysis: Analysis, classes: Classes) -> Plate:
    """Return the figure of robustness per class."""
    some = " The weakest and the strongest are shown." if len(classes.confusion) > MANY_CLASSES else ""
    return Plate(
        draw=partial(classes_plots.classes_figure, analysis, classes),
        description="Bars for each class: accuracy without an attack and in the worst case, the weakest class "
        "first. The table has the numbers.",
        caption=f"Accuracy of each class, n = {classes.count}. Whiskers are 95% Wilson intervals.{some}",
        formats=("png",),
    )


def confusion_plate(analysis: Analysis, classes: Classes) -> Plate:
    """Return the figure of which class becomes which."""
    return Plate(
        draw=partial(classes_plots.confusion_figure, analysis, classes),
        description="A square table as a map: for each true class, the share of its images that is taken for "
        "each class under attack. The table names the largest.",
        caption="Rows are true classes, columns what their images are taken for in the worst case, in percent of "
        "the row. Framed: what withstands.",
        formats=("png",),
    )
