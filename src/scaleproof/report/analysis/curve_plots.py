"""Figures of cosines, and of accuracy against eps, steps and restarts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scaleproof.report import words
from scaleproof.report.analysis.records import Analysis, Cosines, EpsCurve, Line, StepCurve
from scaleproof.report.plots import draw_clean, draw_legend
from scaleproof.report.records import Share
from scaleproof.report.style import COLOURS, DASHES, FAINT, MARKERS, canvas, percent_axis, plain

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

SIDES = (("true", "True class", COLOURS[1], ""), ("other", "Best other class", COLOURS[0], "////"))


def cosines_figure(cosines: Cosines, *, narrow: bool = False) -> "Figure":
    """Draw the histograms of cosines, clean images and adversarial ones."""
    with canvas((3.9, 5.0) if narrow else (7.4, 3.0)) as figure:
        shape = (2, 1) if narrow else (1, 2)
        panels = list(figure.subplots(*shape, squeeze=False, sharex=True, sharey=True).flat)
        for axes, kind in zip(panels, ("clean", "adversarial"), strict=True):
            handles = draw_histograms(axes, cosines, kind)
            axes.set_title(f"{kind.capitalize()} images")
            axes.tick_params(labelbottom=True)
        panels[0].set_xlim(*occupied(cosines))
        for axes in panels[-1:] if narrow else panels:
            axes.set_xlabel("Cosine")
        for axes in panels if narrow else panels[:1]:
            axes.set_ylabel("Images (%)")
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def draw_histograms(axes: "Axes", cosines: Cosines, kind: str) -> "list[Artist]":
    """Draw the true class and the best other class on one kind of images, with their means."""
    handles: list[Artist] = []
    for side, label, colour, hatch in SIDES:
        counts = [100 * count / cosines.count for count in cosines.counts[f"{kind}_{side}"]]
        patch = axes.stairs(
            counts,
            cosines.edges,
            fill=True,
            facecolor=f"{colour}55",
            edgecolor=colour,
            linewidth=0,
            hatch=hatch,
            label=label,
        )
        dash = DASHES[0 if side == "true" else 1]
        axes.stairs(counts, cosines.edges, color=colour, linewidth=1.3, linestyle=dash)
        axes.axvline(cosines.means[f"{kind}_{side}"], color=colour, linewidth=1.4, linestyle=dash)
        handles.append(patch)
    return handles


def occupied(cosines: Cosines) -> tuple[float, float]:
    """Return the range of cosines that holds images, with one bin of room."""
    used = [place for counts in cosines.counts.values() for place, count in enumerate(counts) if count] or [
        0,
        len(cosines.edges) - 2,
    ]
    first, last = max(min(used) - 1, 0), min(max(used) + 2, len(cosines.edges) - 1)
    return cosines.edges[first], cosines.edges[last]


def draw_shares(
    axes: "Axes", places: Sequence[float], shares: Sequence[Share], number: int, label: str
) -> "Line2D":
    """Draw one line of accuracies with the band of its intervals."""
    colour = COLOURS[number % len(COLOURS)]
    low, high = ([100 * share.interval[end] for share in shares] for end in (0, 1))
    axes.fill_between(places, low, high, color=colour, alpha=0.13, linewidth=0)
    (line,) = axes.plot(
        places,
        [100 * share.accuracy for share in shares],
        color=colour,
        marker=MARKERS[number % len(MARKERS)],
        linestyle=DASHES[number % len(DASHES)],
        linewidth=2.6 if number == 0 else 1.5,
        markersize=5,
        markeredgecolor="white",
        markeredgewidth=0.6,
        zorder=3 + number,
        label=plain(label),
    )
    return line


def eps_figure(analysis: Analysis, curve: EpsCurve, *, narrow: bool = False) -> "Figure":
    """Draw accuracy from no perturbation to the unbounded budget."""
    with canvas((3.9, 4.0) if narrow else (7.4, 3.6)) as figure:
        axes = figure.add_subplot()
        lines = []
        for number, line in enumerate(curve.lines):
            places = [0.0, *(point.at for point in line.points)]
            shares = [curve.clean, *(point.robust for point in line.points)]
            lines.append(draw_shares(axes, places, shares, number, line.label))
        eps_axis(axes, analysis, curve, narrow)
        percent_axis(axes)
        axes.set_title(f"Accuracy (%), n = {curve.clean.count}")
        draw_legend(figure, lines)
    return figure


def eps_axis(axes: "Axes", analysis: Analysis, curve: EpsCurve, narrow: bool) -> None:
    """Set up the axis of budgets: even near 0, logarithmic beyond the smallest one."""
    from matplotlib.ticker import NullLocator

    places = [point.at for point in curve.lines[0].points]
    axes.set_xscale("symlog", linthresh=places[0], linscale=0.4)
    levels = analysis.threat.norm == "linf"
    shown = doubling([place for place in places if place != curve.unbounded], narrow)
    names = [f"{round(255 * place, 1):g}" if levels else f"{place:g}" for place in shown]
    axes.set_xticks([0.0, *shown, curve.unbounded], ["0", *names, "all"])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(-0.15 * places[0], 1.15 * curve.unbounded)
    axes.axvline(analysis.threat.eps, color=FAINT, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
    unit = "ε in 255ths of the pixel range" if levels else "ε"
    axes.set_xlabel(f"Budget {unit}; all: unbounded")


def doubling(places: Sequence[float], narrow: bool) -> list[float]:
    """Choose the places that are far enough from one another to be labelled."""
    chosen: list[float] = []
    for place in places:
        if not chosen or place >= (1.99 if narrow else 1.32) * chosen[-1]:
            chosen.append(place)
    return chosen


def steps_figure(curve: StepCurve, *, narrow: bool = False) -> "Figure":
    """Draw accuracy against steps and against restarts."""
    with canvas((3.9, 5.6) if narrow else (7.4, 3.4)) as figure:
        panels = list(figure.subplots(*((2, 1) if narrow else (1, 2)), squeeze=False).flat)
        lines = draw_lines(panels[0], curve.steps)
        draw_lines(panels[1], curve.restarts)
        panels[0].set_xscale("log")
        titles = ("Steps", f"Restarts, {words.plural(curve.restart_steps, 'step')} each")
        for axes, found, title in zip(panels, (curve.steps, curve.restarts), titles, strict=True):
            whole_axis(axes, found[0])
            clean = draw_clean(axes, curve.clean)
            percent_axis(axes)
            axes.set_xlabel(title)
        panels[0].set_title(f"Accuracy (%), n = {curve.clean.count}")
        draw_legend(figure, [*lines, clean])
    return figure


def draw_lines(axes: "Axes", lines: Sequence[Line]) -> "list[Line2D]":
    """Draw what each attack leaves along a curve."""
    return [
        draw_shares(
            axes,
            [point.at for point in line.points],
            [point.robust for point in line.points],
            number,
            line.label,
        )
        for number, line in enumerate(lines)
    ]


def whole_axis(axes: "Axes", line: Line) -> None:
    """Put a tick at every place of a line, as a whole number."""
    from matplotlib.ticker import NullLocator

    places = [point.at for point in line.points]
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.xaxis.set_minor_locator(NullLocator())
