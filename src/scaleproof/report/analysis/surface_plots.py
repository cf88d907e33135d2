"""Figures of the losses around images and around the weights."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scaleproof.report.analysis.records import Analysis, Surfaces, WeightSurface
from scaleproof.report.analysis.words import SHOWN_IMAGES, figure_name, objective_name
from scaleproof.report.plots import draw_legend
from scaleproof.report.records import Array
from scaleproof.report.style import COLOURS, DASHES, FAINT, MARKERS, canvas, percent_axis, plain
from scaleproof.report.training.plots import wide_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

LEVELS = 16
KINDS = {"clean": ("Clean images", COLOURS[1], 0), "adversarial": ("Adversarial images", COLOURS[0], 1)}


def panels_of(
    analysis: Analysis, surfaces: Surfaces, objective: str
) -> list[tuple[str, Array, Array | None]]:
    """List what is shown of an objective: the mean of several images, then single ones with their margins."""
    losses = surfaces.losses[objective]
    found: list[tuple[str, Array, Array | None]] = []
    if len(losses) > 1:
        found.append((f"Mean of {len(losses)}", losses.astype(np.float64).mean(axis=0), None))
    for number in range(min(SHOWN_IMAGES, len(losses))):
        name = figure_name(analysis, surfaces.labels[number])
        found.append((f"{name}, no. {surfaces.rows[number]}", losses[number], surfaces.margin[number]))
    return found


def surfaces_figure(analysis: Analysis, surfaces: Surfaces, *, narrow: bool = False) -> "Figure":
    """Draw the losses as maps: objectives down and images across, or the other way where space is narrow."""
    names = list(surfaces.losses)
    shown = {name: panels_of(analysis, surfaces, name) for name in names}
    count = len(shown[names[0]])
    size = (3.9, 0.9 + 1.75 * count) if narrow else (7.4, 0.5 + 2.15 * len(names))
    with canvas(size) as figure:
        shape = (count, len(names)) if narrow else (len(names), count)
        axes = figure.subplots(*shape, squeeze=False, sharex=True, sharey=True)
        for number, name in enumerate(names):
            row = axes[:, number] if narrow else axes[number, :]
            draw_row(figure, list(row), surfaces, name, shown[name], narrow)
        for position, panel in np.ndenumerate(axes):
            label_panel(panel, position, shape, analysis.threat.norm)
    return figure


def draw_row(
    figure: "Figure",
    row: "list[Axes]",
    surfaces: Surfaces,
    name: str,
    shown: Sequence[tuple[str, Array, Array | None]],
    narrow: bool,
) -> None:
    """Draw the maps of one objective on one scale of colours."""
    levels = level_steps([values for _, values, _ in shown])
    for axes, (title, values, margin) in zip(row, shown, strict=True):
        map_ = draw_map(axes, surfaces.coordinates, values, levels)
        if margin is not None:
            draw_boundary(axes, surfaces.coordinates, margin)
        axes.set_title(plain(title), fontweight="normal", fontsize=8.5)
    bar = figure.colorbar(
        map_, ax=row, location="bottom" if narrow else "right", shrink=0.9, pad=0.02, aspect=24
    )
    bar.set_label(objective_name(name))
    marks = levels[:: 8 if narrow else 4].tolist()
    bar.set_ticks(marks, labels=[f"{mark:.2g}" for mark in marks])


def ticks(count: int) -> Any:
    """Return a locator of a few round numbers."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=count, steps=[1, 2, 2.5, 5, 10])


def level_steps(values: Sequence[Array]) -> Array:
    """Return the levels that all maps of an objective share."""
    finite = np.concatenate([array[np.isfinite(array)].ravel() for array in values])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    steps = np.linspace(0, 1, LEVELS + 1) ** 2  # fine where the loss is small
    return low + max(high - low, 1e-6) * steps


def draw_map(axes: "Axes", coordinates: Sequence[float], values: Array, levels: Array) -> Any:
    """Draw one map with lines of equal loss: the PGD direction to the right, the random one upwards."""
    from matplotlib.colors import BoundaryNorm

    shown, norm = np.ma.masked_invalid(values.T), BoundaryNorm(levels, 256)
    filled = axes.contourf(coordinates, coordinates, shown, levels=levels, norm=norm, cmap="viridis")
    axes.contour(
        coordinates, coordinates, shown, levels=levels[1:-1:2], colors="black", linewidths=0.3, alpha=0.5
    )
    axes.grid(visible=False)
    axes.set_aspect("equal")
    return filled


def draw_boundary(axes: "Axes", coordinates: Sequence[float], margin: Array) -> None:
    """Draw where the best other class overtakes the true one."""
    if margin.min() < 0 < margin.max():
        for colour, width in (("black", 2.6), ("white", 1.5)):
            axes.contour(coordinates, coordinates, margin.T, levels=[0.0], colors=colour, linewidths=width)


def label_panel(axes: "Axes", position: tuple[int, ...], shape: tuple[int, ...], norm: str) -> None:
    """Draw the edge of the budget, and label the outer sides only."""
    angle = np.linspace(
        0, 2 * np.pi, 5 if norm == "linf" else 97
    )  # a diamond where sizes add up, else a circle
    axes.plot(np.cos(angle), np.sin(angle), color="white", linewidth=1.9, zorder=4)
    axes.plot(np.cos(angle), np.sin(angle), color="black", linewidth=1.0, linestyle=(0, (3, 2)), zorder=5)
    axes.xaxis.set_major_locator(ticks(4))
    axes.yaxis.set_major_locator(ticks(4))
    if position[0] == shape[0] - 1:
        axes.set_xlabel("PGD direction (ε)")
    if position[1] == 0:
        axes.set_ylabel("Random (ε)")


def weights_figure(weights: WeightSurface, *, narrow: bool = False) -> "Figure":
    """Draw loss and accuracy against how far the weights have moved."""
    with canvas((3.9, 5.2) if narrow else (7.4, 3.2)) as figure:
        panels = list(figure.subplots(*((2, 1) if narrow else (1, 2)), squeeze=False).flat)
        lines = draw_directions(panels[0], weights, weights.loss, 1.0)
        finite = [values[np.isfinite(values)] for values in weights.loss.values()]
        wide_axis(panels[0], np.concatenate(finite).tolist())
        if panels[0].get_yscale() == "linear":
            panels[0].set_ylim(bottom=0)
        panels[0].set_title("Mean cross entropy")
        draw_directions(panels[1], weights, weights.accuracy, 100.0)
        percent_axis(panels[1])
        panels[1].set_title(f"Accuracy (%), n = {weights.count}")
        for axes in panels:
            axes.xaxis.set_major_locator(ticks(5))
            axes.axvline(0.0, color=FAINT, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1)
        for axes in panels[-1:] if narrow else panels:
            axes.set_xlabel("Distance of the weights, in lengths of filters")
        draw_legend(figure, lines)
    return figure


def draw_directions(
    axes: "Axes", weights: WeightSurface, values: "dict[str, Array] | Any", factor: float
) -> "list[Line2D]":
    """Draw the mean over directions of each kind of images, with single directions thin behind it."""
    lines = []
    for kind, (label, colour, number) in KINDS.items():
        found = np.where(np.isfinite(values[kind]), factor * values[kind], np.nan)
        if len(found) > 1:
            axes.plot(weights.amounts, found.T, color=colour, linewidth=0.6, alpha=0.5)
        (line,) = axes.plot(
            weights.amounts,
            found.mean(axis=0),
            color=colour,
            marker=MARKERS[number],
            linestyle=DASHES[number],
            linewidth=1.5,
            markevery=2,
            markersize=4.8,
            markeredgecolor="white",
            markeredgewidth=0.6,
            label=label,
        )
        lines.append(line)
    return lines
