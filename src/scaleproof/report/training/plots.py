"""The figures of a training."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from scaleproof.report.plots import draw_legend
from scaleproof.report.style import COLOURS, DASHES, FAINT, INK, MARKERS, canvas, plain, tidy_log_axis
from scaleproof.report.training.records import Standing, Training
from scaleproof.report.training.words import (
    PROBES,
    falls,
    probes,
    rollbacks,
    standings,
    term_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MANY_POINTS = 24
WIDE_RANGE = 20  # a logarithmic axis from here on
ACCURACIES: tuple[tuple[str, tuple[str, str], Callable[[Standing], float]], ...] = (
    ("Clean", (COLOURS[1], COLOURS[5]), lambda one: one.clean),
    ("PGD", (COLOURS[0], COLOURS[4]), lambda one: one.pgd),
)


def curve_figure(training: Training, *, narrow: bool = False) -> "Figure":
    """Draw clean and PGD accuracy of the probes over the epochs, with the marks that explain the curve."""
    with canvas((3.9, 4.6) if narrow else (7.4, 4.2)) as figure:
        axes = figure.add_subplot()
        lines, highest = [], 0.0
        for row, (name, colours, value) in enumerate(ACCURACIES):
            for column, probe in enumerate(probes(training)):
                found = standings(training, probe)
                values = [value(one) for _, one in found]
                highest = max(highest, *values)
                label, kind = f"{name}, {PROBES[probe]}", 2 * row + column
                lines.append(
                    draw_series(
                        axes, [number for number, _ in found], values, label, colours[column], kind, column
                    )
                )
        accuracy_axis(axes, highest)
        axes.set_title("Accuracy of the probes (%)")
        epoch_axis(axes, len(training.history))
        axes.set_xlabel("Epoch")
        draw_legend(figure, [*lines, *draw_marks(axes, training)])
    return figure


def draw_series(
    axes: "Axes",
    epochs: Sequence[int],
    values: Sequence[float],
    label: str,
    colour: str,
    kind: int,
    dash: int,
) -> "Line2D":
    """Draw one line over the epochs, with few markers where there are many points."""
    every = max(1, math.ceil(len(values) / 12)) if len(values) > MANY_POINTS else 1
    (line,) = axes.plot(
        epochs,
        [value if math.isfinite(value) else math.nan for value in values],
        color=colour,
        marker=MARKERS[kind % len(MARKERS)],
        linestyle=DASHES[dash % len(DASHES)],
        linewidth=1.5,
        markevery=((kind * every // 4) % every, every),
        markersize=4.8,
        markeredgecolor="white",
        markeredgewidth=0.6,
        zorder=5 - dash / 10,
        label=plain(label),
    )
    return line


def draw_marks(axes: "Axes", training: Training) -> "list[Line2D]":
    """Mark the falls of the learning rate, the selected epoch and the guard; return one line of each for a legend."""
    chosen = training.selected.epoch
    marks = [
        (chosen, INK, (0, (5, 2)), f"Selected epoch {chosen}"),
        *((number - 0.5, FAINT, (0, (1, 1.6)), "Learning rate falls") for number in falls(training)),
        *((number, COLOURS[3], (0, (4, 1.5, 1, 1.5)), "Guard steps in") for number in rollbacks(training)),
    ]
    lines = {}
    for place, colour, dash, label in marks:
        line = axes.axvline(place, color=colour, linewidth=1.1, linestyle=dash, zorder=2, label=label)
        lines[label] = line
    return list(lines.values())


def accuracy_axis(axes: "Axes", highest: float) -> None:
    """Let the vertical axis run from 0 to the next multiple of 20 percent."""
    top = min(100, 20 * math.ceil((highest + 1) / 20))
    axes.set_ylim(-0.02 * top, 1.02 * top)
    axes.set_yticks(range(0, top + 1, 10 if top <= 60 else 20))


def epoch_axis(axes: "Axes", count: int) -> None:
    """Let the horizontal axis hold every epoch, with ticks at whole ones."""
    from matplotlib.ticker import MaxNLocator

    room = max(0.5, 0.02 * count)
    axes.set_xlim(1 - room, count + room)
    ticks = MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)
    axes.xaxis.set_major_locator(ticks)


def losses_figure(training: Training, *, narrow: bool = False) -> "Figure":
    """Draw the loss terms over the epochs, and the learning rate below."""
    with canvas((3.9, 5.4) if narrow else (7.4, 4.5)) as figure:
        grid = figure.add_gridspec(2, 1, height_ratios=(2.1, 1))
        above, below = (figure.add_subplot(grid[row, 0]) for row in range(2))
        lines = draw_losses(above, training)
        draw_rate(below, training)
        for axes in (above, below):
            epoch_axis(axes, len(training.history))
        below.set_xlabel("Epoch")
        draw_legend(figure, [*lines, *draw_marks(above, training)])
    return figure


def draw_losses(axes: "Axes", training: Training) -> "list[Line2D]":
    """Draw each term of the loss, and their sum where there are several."""
    names = term_names(training)
    series = [(name, [epoch.terms.get(name, math.nan) for epoch in training.history]) for name in names]
    if len(names) != 1:
        series.insert(0, ("Sum", [epoch.loss for epoch in training.history]))
    epochs = [epoch.number for epoch in training.history]
    colours = COLOURS if len(names) == 1 else (INK, *COLOURS)
    lines = [
        draw_series(axes, epochs, values, name, colours[kind % len(colours)], kind, kind)
        for kind, (name, values) in enumerate(series)
    ]
    wide_axis(axes, [value for _, values in series for value in values])
    axes.set_title("Loss and its terms" if len(names) > 1 else "Loss")
    return lines


def wide_axis(axes: "Axes", values: Sequence[float]) -> None:
    """Make the vertical axis logarithmic where positive values span a wide range."""
    known = [value for value in values if math.isfinite(value)]
    if known and min(known) > 0 and max(known) / min(known) > WIDE_RANGE:
        axes.set_yscale("log")
        tidy_log_axis(axes.yaxis)


def calm_axis(axes: "Axes", values: Sequence[float]) -> None:
    """Keep the vertical axis from blowing up a change of less than a twentieth, and its ticks plain."""
    known = [value for value in values if math.isfinite(value)]
    axes.ticklabel_format(axis="y", useOffset=False)
    if known and max(known) - min(known) < 0.05 * max(map(abs, known)):
        middle, room = (max(known) + min(known)) / 2, 0.05 * max(map(abs, known))
        axes.set_ylim(middle - room, middle + room)


def draw_rate(axes: "Axes", training: Training) -> None:
    """Draw the learning rate at the start of each epoch."""
    rates = [epoch.rate for epoch in training.history]
    epochs = [epoch.number for epoch in training.history]
    marker = "o" if len(rates) == 1 else None
    axes.plot(epochs, rates, color=INK, linewidth=1.5, drawstyle="steps-mid", marker=marker)
    wide_axis(axes, rates)
    axes.set_title("Learning rate")


def geometry_figure(training: Training, *, narrow: bool = False) -> "Figure":
    """Draw the lengths of class weights and features and the cosine of the true class over the epochs."""
    with canvas((3.9, 6.9) if narrow else (7.4, 3.0)) as figure:
        count = 3 if probes(training) else 1
        shape = (count, 1) if narrow else (1, count)
        panels = list(figure.subplots(*shape, squeeze=False).flat)
        draw_weights(panels[0], training)
        lines: list[Line2D] = []
        if probes(training):
            lines = draw_probe(panels[1], training, "Length of features |z|", lambda one: one.feature_norm)
            draw_probe(panels[2], training, "Cosine, true class", lambda one: one.true_cosine)
        marks = [draw_marks(axes, training) for axes in panels]
        for axes in panels:
            epoch_axis(axes, len(training.history))
        for axes in panels[-1:] if narrow else panels:
            axes.set_xlabel("Epoch")
        draw_legend(figure, [*lines, *marks[0]])
    return figure


def draw_weights(axes: "Axes", training: Training) -> None:
    """Draw the mean length of the class weights."""
    epochs = [epoch.number for epoch in training.history]
    values = [epoch.weight_norm for epoch in training.history]
    draw_series(axes, epochs, values, "|W|", INK, 4, 0)
    calm_axis(axes, values)
    axes.set_title("Length of weights |W|")


def draw_probe(
    axes: "Axes", training: Training, title: str, value: Callable[[Standing], float]
) -> "list[Line2D]":
    """Draw one value of each probe."""
    lines, every = [], list[float]()
    for kind, probe in enumerate(probes(training)):
        found = standings(training, probe)
        epochs, values = [number for number, _ in found], [value(one) for _, one in found]
        label = f"{PROBES[probe].capitalize()} images"
        lines.append(draw_series(axes, epochs, values, label, COLOURS[2 + 2 * kind], kind, kind))
        every += values
    calm_axis(axes, every)
    axes.set_title(title)
    return lines
