"""Which figures an analysis has, each under its section, with the words that go with it."""

from functools import partial

from scaleproof.report import words
from scaleproof.report.analysis import classes_plots, curve_plots, surface_plots
from scaleproof.report.analysis.records import Analysis
from scaleproof.report.analysis.words import MANY_CLASSES, SHOWN_IMAGES, objective_name
from scaleproof.report.plate import Plate


def analysis_plates(analysis: Analysis) -> dict[str, Plate]:
    """Return the figures of an analysis by the section that each belongs to."""
    return {
        **surface_plate(analysis),
        **weight_plate(analysis),
        **cosine_plate(analysis),
        **eps_plate(analysis),
        **step_plate(analysis),
        **class_plates(analysis),
    }


def surface_plate(analysis: Analysis) -> dict[str, Plate]:
    """Return the figure of the losses around images."""
    surfaces = analysis.surfaces
    if surfaces is None:
        return {}
    names = " and ".join(objective_name(name).lower() for name in surfaces.losses)
    shown = min(SHOWN_IMAGES, len(surfaces.rows))
    many = f"the mean of {len(surfaces.rows)} images and " if len(surfaces.rows) > 1 else ""
    plate = Plate(
        draw=partial(surface_plots.surfaces_figure, analysis, surfaces),
        description=f"Maps of the loss ({names}) in the plane of the PGD direction and a random one: {many}"
        f"{words.plural(shown, 'single image')}. The table has numbers from them.",
        caption=f"Loss around images: {many}{words.plural(shown, 'single image')}; steps of colour grow with "
        f"the loss. Both axes are in multiples of ε = {words.radius(analysis.threat.eps)}. Dashed: the edge of the "
        "budget. White: where the classifier begins to err.",
        formats=("png",),
    )
    return {"analysis-surfaces": plate}


def weight_plate(analysis: Analysis) -> dict[str, Plate]:
    """Return the figure of the losses around the weights."""
    weights = analysis.weights
    if weights is None:
        return {}
    plate = Plate(
        draw=partial(surface_plots.weights_figure, weights),
        description="Lines against the distance of the weights from where they are: mean loss and accuracy, "
        "on clean images and on adversarial ones made anew at every distance. The table has the numbers.",
        caption=f"Mean cross entropy and accuracy on {weights.count} images while all filters move along a "
        "random direction; at 1 each has moved by its own length.",
    )
    return {"analysis-weights": plate}


def cosine_plate(analysis: Analysis) -> dict[str, Plate]:
    """Return the figure of the histograms of cosines."""
    cosines = analysis.cosines
    if cosines is None:
        return {}
    plate = Plate(
        draw=partial(curve_plots.cosines_figure, cosines),
        description="Two histograms of cosines, on clean and on adversarial images: of the true class and of "
        "the best other class. The table has the means.",
        caption=f"Cosines between features and class weights, n = {cosines.count}. Upright lines mark the means.",
    )
    return {"analysis-cosines": plate}


def eps_plate(analysis: Analysis) -> dict[str, Plate]:
    """Return the figure of accuracy against the size of the perturbation."""
    if analysis.eps is None:
        return {}
    plate = Plate(
        draw=partial(curve_plots.eps_figure, analysis, analysis.eps),
        description="Lines of robust accuracy against the size of the perturbation, from none to unbounded, "
        "one an attack. The table has the numbers.",
        caption=f"Accuracy against ε, n = {analysis.eps.clean.count}. Bands are 95% Wilson intervals; the dotted "
        f"line marks ε = {words.radius(analysis.threat.eps)}.",
    )
    return {"analysis-eps": plate}


def step_plate(analysis: Analysis) -> dict[str, Plate]:
    """Return the figure of accuracy against steps and restarts."""
    curve = analysis.steps
    if curve is None:
        return {}
    plate = Plate(
        draw=partial(curve_plots.steps_figure, curve),
        description="Two panels of robust accuracy: against the number of steps of each attack, and against "
        "the number of its restarts. The table has the numbers.",
        caption=f"Accuracy against steps (left or above) and, with {curve.restart_steps} steps, against restarts "
        f"(right or below), n = {curve.clean.count}. Bands are 95% Wilson intervals.",
    )
    return {"analysis-steps": plate}


def class_plates(analysis: Analysis) -> dict[str, Plate]:
    """Return the figures of robustness per class and of which class becomes which."""
    classes = analysis.classes
    if classes is None:
        return {}
    some = " The weakest and the strongest are shown." if len(classes.confusion) > MANY_CLASSES else ""
    bars = Plate(
        draw=partial(classes_plots.classes_figure, analysis, classes),
        description="Bars for each class: accuracy without an attack and in the worst case, the weakest class "
        "first. The table has the numbers.",
        caption=f"Accuracy of each class, n = {classes.count}. Whiskers are 95% Wilson intervals.{some}",
        formats=("png",),
    )
    table = Plate(
        draw=partial(classes_plots.confusion_figure, analysis, classes),
        description="A square table as a map: for each true class, the share of its images that is taken for "
        "each class under attack. The table names the largest.",
        caption="Rows are true classes, columns what their images are taken for in the worst case, in percent of "
        "the row. Framed: what withstands.",
        formats=("png",),
    )
    return {"analysis-classes": bars, "analysis-confusion": table}
