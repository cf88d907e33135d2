"""Which figures a run has, each under the section that it belongs to, with the words that go with it."""

from functools import partial

from scaleproof.report import plots
from scaleproof.report.analysis.figures import analysis_plates
from scaleproof.report.plate import Plate
from scaleproof.report.records import Run
from scaleproof.report.training import plots as training_plots
from scaleproof.report.training.records import Training
from scaleproof.report.training.words import counts_text, falls, probes, rollbacks, term_names


def plates(run: Run) -> dict[str, Plate]:
    """Return the figures of a run by the section that each belongs to."""
    if run.training is not None:
        return training_plates(run.training)
    found = {}
    if run.sweep is not None:
        draw = partial(plots.scale_figure, run.sweep)
        found["scale"] = Plate(draw=draw, description=SCALE_ALT, caption=SCALE_CAPTION)
    if run.evaluation is not None:
        draw = partial(plots.attacks_figure, run.evaluation)
        found["attacks"] = Plate(
            draw=draw, description=ATTACKS_ALT, caption=ATTACKS_CAPTION, formats=("png",)
        )
    return found if run.analysis is None else found | analysis_plates(run.analysis)


def training_plates(training: Training) -> dict[str, Plate]:
    """Return the figures of a training: the curve of accuracies, the loss, and the last layer."""
    marks = marks_caption(training)
    curve = Plate(
        draw=partial(training_plots.curve_figure, training),
        description="Lines over the epochs: clean accuracy and accuracy under PGD on the images of each "
        "probe, with the selected epoch marked. The table has the numbers.",
        caption=f"Clean and PGD accuracy after each probed epoch, {counts_text(training)}. {marks}",
    )
    losses = Plate(
        draw=partial(training_plots.losses_figure, training),
        description=f"Two panels over the epochs: the loss ({', '.join(term_names(training)) or 'one term'}) "
        "and the learning rate. The table has the numbers.",
        caption=f"Means over the training images of each epoch. {marks}",
    )
    lengths = ", that of the features, and the cosine of the true class" if probes(training) else ""
    geometry = Plate(
        draw=partial(training_plots.geometry_figure, training),
        description=f"Over the epochs: the mean length of the class weights{lengths}. The table has the numbers.",
        caption=f"The last layer over the epochs. {marks}",
    )
    first = {"curve": curve} if probes(training) else {}
    return first | {"losses": losses, "geometry": geometry}


def marks_caption(training: Training) -> str:
    """Say what the upright lines of a figure mark."""
    parts = [f"the selected epoch {training.selected.epoch} (dashed)"]
    if falls(training):
        parts.append(f"a lower learning rate from {epochs_text(falls(training))} on (dotted)")
    if rollbacks(training):
        parts.append(f"the guard stepping in after {epochs_text(rollbacks(training))} (dash-dotted)")
    return f"Upright lines mark {'; '.join(parts)}."


def epochs_text(numbers: tuple[int, ...]) -> str:
    """Print a list of epochs."""
    *before, last = map(str, numbers)
    return f"epochs {', '.join(before)} and {last}" if before else f"epoch {last}"


ATTACKS_ALT = "Bars of accuracy: clean, under each attack and in the worst case. The table has the numbers."
ATTACKS_CAPTION = "Accuracy under each attack. Whiskers are 95% Wilson intervals."
SCALE_ALT = (
    "Three panels against the scale of the logits: robust accuracy of each attack, mean size of its input "
    "gradient, and share of gradient entries that are exactly zero. The tables have the numbers."
)
SCALE_CAPTION = (
    "The same classifier with its logits multiplied by α. Bands are 95% Wilson intervals; the dotted line "
    "marks α = 1, the classifier as it came; flat lines may lie on one another, so their markers are "
    "staggered. An open triangle on the floor marks a gradient that is exactly 0."
)
