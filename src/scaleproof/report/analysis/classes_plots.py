"""Figures of robustness per class and of which class becomes which."""

from typing import TYPE_CHECKING

import numpy as np

from scaleproof.report.analysis.records import Analysis, Classes
from scaleproof.report.analysis.words import MANY_CLASSES, clean_of, figure_name, present, robust_of
from scaleproof.report.plots import bar_axes
from scaleproof.report.records import Array, Share
from scaleproof.report.style import INK, canvas, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLEAN, ROBUST = "#c9d7e2", "#D55E00"


def shown_classes(classes: Classes) -> list[int]:
    """Return the classes that bars are drawn for: all of a few, else the weakest and the strongest."""
    known = present(classes)
    half = MANY_CLASSES // 2
    return known if len(known) <= MANY_CLASSES else [*known[:half], *known[-half:]]


def classes_figure(analysis: Analysis, classes: Classes, *, narrow: bool = False) -> "Figure":
    """Draw the accuracy of each class, clean and in the worst case."""
    from matplotlib.patches import Patch

    shown = shown_classes(classes)
    with canvas((3.9 if narrow else 7.4, 1.1 + 0.3 * len(shown))) as figure:
        axes = figure.add_subplot()
        for position, label in enumerate(shown):
            draw_class(axes, position, clean_of(classes, label), robust_of(classes, label))
        axes.set_yticks(range(len(shown)), [plain(figure_name(analysis, label)) for label in shown])
        bar_axes(axes, len(shown), 122 if narrow else 112)
        axes.set_xlabel("Accuracy (%) with 95% interval")
        handles = [Patch(color=CLEAN, label="Clean"), Patch(color=ROBUST, label="Worst case")]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def draw_class(axes: "Axes", position: int, clean: Share, robust: Share) -> None:
    """Draw the bars of one class, one upon the other, with the interval and the number of the robust one."""
    axes.barh(position, 100 * clean.accuracy, height=0.74, color=CLEAN)
    axes.barh(position, 100 * robust.accuracy, height=0.44, color=ROBUST)
    low, high = (100 * end for end in robust.interval)
    axes.plot(
        [low, high], [position, position], "|-", color=INK, linewidth=1.0, markersize=5, markeredgewidth=1.0
    )
    text = f"{100 * robust.accuracy:.0f}"
    place = (max(high, 100 * clean.accuracy), position)
    axes.annotate(text, place, xytext=(5, 0), textcoords="offset points", va="center", ha="left")


def confusion_figure(analysis: Analysis, classes: Classes, *, narrow: bool = False) -> "Figure":
    """Draw which class becomes which, in percent of each true class."""
    labels = sorted(present(classes))
    seen = [k for k in range(len(classes.confusion)) if k in labels or classes.confusion[:, k].sum()]
    counts = classes.confusion[np.ix_(labels, seen)]
    shares = 100 * counts / counts.sum(axis=1, keepdims=True)
    with canvas((3.9, 4.3) if narrow else (6.2, 5.6)) as figure:
        axes = figure.add_subplot()
        picture = axes.imshow(
            shares, cmap="Blues", vmin=0, vmax=float(shares.max()), aspect="auto", interpolation="nearest"
        )
        axes.grid(visible=False)
        name_ticks(axes, analysis, labels, seen)
        if len(seen) <= MANY_CLASSES:
            write_cells(axes, shares, 6.0 if narrow else 7.5)
            outline(axes, labels, seen)
        bar = figure.colorbar(
            picture, ax=axes, location="bottom" if narrow else "right", shrink=0.8, aspect=28
        )
        bar.set_label("Share of the true class (%)")
    return figure


def name_ticks(axes: "Axes", analysis: Analysis, labels: list[int], seen: list[int]) -> None:
    """Name rows and columns, or number a few of them where there are many."""
    few = len(seen) <= MANY_CLASSES
    for axis, known, turn in ((axes.yaxis, labels, 0), (axes.xaxis, seen, 90)):
        step = 1 if few else -(-len(known) // 10)
        names = [figure_name(analysis, label) if few else str(label) for label in known[::step]]
        axis.set_ticks(
            range(0, len(known), step), [plain(name) for name in names], rotation=turn if few else 0
        )
    axes.set_ylabel("True class")
    axes.set_xlabel("Taken for, under attack")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def write_cells(axes: "Axes", shares: Array, size: float) -> None:
    """Write each share of half a percent and more into its cell."""
    for (row, column), share in np.ndenumerate(shares):
        if share >= 0.5:
            colour = "white" if share > 0.55 * shares.max() else INK
            axes.text(column, row, f"{share:.0f}", ha="center", va="center", fontsize=size, color=colour)


def outline(axes: "Axes", labels: list[int], seen: list[int]) -> None:
    """Frame the cells of images that withstand."""
    from matplotlib.patches import Rectangle

    for row, label in enumerate(labels):
        place = (seen.index(label) - 0.5, row - 0.5)
        axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor=INK, linewidth=0.9))
