"""How the paper's figures are drawn from runs; each picture says what it was measured on and what is missing."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scaleproof.paper.measures import Items, surface_roughness, true_cosine, weight_loss_rise
from scaleproof.paper.settings import experiments
from scaleproof.report import words
from scaleproof.report.analysis import surface_plots
from scaleproof.report.analysis.records import Analysis, Cosines, Surfaces
from scaleproof.report.analysis.words import figure_name
from scaleproof.report.plots import draw_legend, scale_figure
from scaleproof.report.records import Array, Run
from scaleproof.report.style import COLOURS, FAINT, MARKERS, SETTINGS, percent_axis, plain, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
    from matplotlib.lines import Line2D

    from scaleproof.paper.figures import Figure

Runs = Mapping[str, Run]

WIDTH = 7.4  # inches
COLUMNS = 5  # of maps
SHOWN = 10  # maps of one model, as in the paper
TOP, LINE, EDGE = 0.30, 0.15, 0.06  # inches: the title, one line of small print, the border
LETTERS = 148  # of small print in a line
SMALL, GREY = 6.8, "#555555"  # small print: points, colour
SHADES = (COLOURS[1], COLOURS[4])  # blue, and yellow with SI, as in the paper


def picture(figure: Figure, runs: Runs) -> bytes:
    """A figure as PNG, with its title above and the small print below."""
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise ValueError("pictures need matplotlib: pip install matplotlib") from error
    if figure.models and not runs:
        raise ValueError(f"{figure.id} needs a run of at least one of {', '.join(figure.models)}, got none")
    with rc_context(SETTINGS):
        canvas, origin = PICTURES[figure.id](runs)
        notes = [(absent(figure, runs), COLOURS[0]), (origin, GREY), (figure.remark or "", GREY)]
        framed(canvas, figure.title, notes)
        return png(canvas)


def framed(canvas: Canvas, title: str, notes: Sequence[tuple[str, str]]) -> None:
    """Make room for a title above and notes below the legends, each in its colour, and write them."""
    lines = [(line, shade) for text, shade in notes for line in textwrap.wrap(text, LETTERS)]
    canvas.draw_without_rendering()
    legends = max([0.0, *(legend.get_window_extent().height / canvas.dpi for legend in canvas.legends)])
    width, height = canvas.get_size_inches()
    bottom = 0.08 + LINE * len(lines)
    total = height + TOP + bottom
    canvas.set_size_inches(width, total)
    engine: Any = canvas.get_layout_engine()
    engine.set(rect=(0, (bottom + legends) / total, 1, (height - legends) / total))
    for legend in canvas.legends:
        legend.set_bbox_to_anchor((0, bottom / total, 1, 1), transform=canvas.transFigure)
    canvas.text(EDGE / width, 1 - EDGE / total, plain(title), fontsize=10.5, fontweight="bold", va="top")
    for number, (line, shade) in enumerate(reversed(lines)):
        place = (EDGE / width, (EDGE + LINE * number) / total)
        canvas.text(*place, plain(line), fontsize=SMALL, color=shade, va="bottom")


def absent(figure: Figure, runs: Runs) -> str:
    """Which models the picture should show and does not, in words."""
    missing = [f"{name_of(model)} ({model})" for model in figure.models if model not in runs]
    return f"Not measured: {', '.join(missing)}." if missing else ""


def name_of(model: str) -> str:
    """A model as the paper's tables print it."""
    return next(one.claims[0].row.name for one in experiments() if one.model == model)


def origin_of(runs: Runs, what: str) -> str:
    """Small print: how many images of what, threat, seed, and where each run was made."""
    first = next(iter(runs.values()))
    seen = first.sweep or first.analysis
    assert seen is not None
    commits = dict.fromkeys(words.commit_text(run.run.commit) for run in runs.values())
    return (
        f"{what}; {seen.data.name}, {seen.data.split} images; {words.threat_text(seen.threat)}; seed {first.run.seed}; "
        f"commit {', '.join(commits)}."
    )


def analyses(runs: Runs) -> dict[str, Analysis]:
    """The analyses by the names of their models."""
    return {name_of(model): run.analysis for model, run in runs.items() if run.analysis is not None}


def values(runs: Runs, read: Callable[[Run], Items]) -> dict[str, str]:
    """A quantity that each model has one of, in words."""
    found = {name_of(model): next(read(run))[1] for model, run in runs.items()}
    texts = {
        name: f"{one.value:.3g}" + (f" ± {one.error:.2g}" if one.error else "") for name, one in found.items()
    }
    return {name: text.replace("-", "−") for name, text in texts.items()}


def with_si(label: str) -> int:
    """1 for a model trained with SI, else 0: the place of its colour, whichever models are there."""
    return int("-SI" in label)


def scale_picture(runs: Runs) -> tuple[Canvas, str]:
    """Robust accuracy, size of the gradient and share of zeros against the scale of the logits."""
    ((model, run),) = runs.items()
    assert run.sweep is not None
    what = (
        f"{name_of(model)}, {run.sweep.model.architecture}; n = {words.whole(run.sweep.clean.count)}; bands are 95% "
        "Wilson intervals; flat lines may lie on one another; a triangle marks a gradient of exactly 0"
    )
    return scale_figure(run.sweep), origin_of(runs, what)


def surfaces_picture(runs: Runs) -> tuple[Canvas, str]:
    """The losses of up to ten images of each model as maps on one scale of colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm
    from matplotlib.figure import Figure as Canvas

    found = [(name, one, one.surfaces) for name, one in analyses(runs).items() if one.surfaces is not None]
    rows = [-(-min(len(surfaces.rows), SHOWN) // COLUMNS) for _, _, surfaces in found]
    canvas = Canvas(figsize=(WIDTH, 0.3 + 1.48 * sum(rows)), layout="constrained")
    axes = canvas.subplots(sum(rows), COLUMNS, squeeze=False, sharex=True, sharey=True)
    levels = surface_plots.level_steps([surfaces.losses["cross_entropy"][:SHOWN] for _, _, surfaces in found])
    first = 0
    for (name, analysis, surfaces), height in zip(found, rows, strict=True):
        for number, panel in enumerate(axes[first : first + height].flat):
            place = (first + number // COLUMNS, number % COLUMNS)
            draw_surface(panel, place, axes.shape, analysis, surfaces, number, levels)
            panel.set_ylabel(f"{name}\nRandom (ε)" if number % COLUMNS == 0 else "")
        first += height
    marks, shades = levels[::4].tolist(), ScalarMappable(BoundaryNorm(levels, 256), "viridis")
    bar = canvas.colorbar(shades, ax=axes, location="right", shrink=0.5, pad=0.015, aspect=28)
    bar.set_label("Cross entropy")
    bar.set_ticks(marks, labels=["0" if mark < 0.005 else f"{mark:.3g}" for mark in marks])
    step = surfaces.coordinates[1] - surfaces.coordinates[0]
    seen = ", ".join(f"{name} {values(runs, surface_roughness)[name]}" for name, _, _ in found)
    what = (
        "The first images each model classifies right, if any. Dashed: the edge of the budget; white: the decision "
        f"boundary. PGD with {surfaces.steps} steps. Mean size of the second differences, {step:g}ε apart: {seen}"
    )
    return canvas, origin_of(runs, what)


def draw_surface(
    panel: Axes,
    place: tuple[int, int],
    shape: tuple[int, int],
    analysis: Analysis,
    surfaces: Surfaces,
    number: int,
    levels: Array,
) -> None:
    """One map; the place stays empty where there are fewer images."""
    if number >= min(len(surfaces.rows), SHOWN):
        panel.set_visible(False)
        return
    losses = surfaces.losses["cross_entropy"][number]
    surface_plots.draw_map(panel, surfaces.coordinates, losses, levels)
    surface_plots.draw_boundary(panel, surfaces.coordinates, surfaces.margin[number])
    surface_plots.label_panel(panel, place, shape, analysis.threat.norm)
    panel.set_title(plain(figure_name(analysis, surfaces.labels[number])), fontweight="normal", fontsize=7.5)


def weights_picture(runs: Runs) -> tuple[Canvas, str]:
    """Change of the adversarial loss, and accuracy, of each model while its weights move away."""
    from matplotlib.figure import Figure as Canvas

    found = {name: one.weights for name, one in analyses(runs).items() if one.weights is not None}
    canvas = Canvas(figsize=(WIDTH, 3.1), layout="constrained")
    panels = list(canvas.subplots(1, 2))
    lines = []
    for name, weights in found.items():
        losses = weights.loss["adversarial"]
        change = losses - losses[:, len(weights.amounts) // 2, None]
        label = f"{name}, mean rise {values(runs, weight_loss_rise)[name]}"
        lines.append(draw_mean(panels[0], weights.amounts, change, label))
        draw_mean(panels[1], weights.amounts, 100 * weights.accuracy["adversarial"], label)
    panels[0].set_title("Rise of the cross entropy under PGD")
    percent_axis(panels[1])
    panels[1].set_title("Accuracy under PGD (%)")
    for axes in panels:
        axes.set_xlabel("Distance of the weights, in lengths of filters")
        axes.xaxis.set_major_locator(surface_plots.ticks(5))
        axes.axvline(0.0, color=FAINT, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1)
    draw_legend(canvas, lines)
    directions = words.plural(len(losses), "random direction")
    attack = f"PGD with {weights.steps} steps anew at every point"
    what = f"n = {weights.count}; {attack}; {directions}, as long in every filter as its weights"
    return canvas, origin_of(runs, what)


def draw_mean(axes: Axes, places: Sequence[float], seen: Array, label: str) -> Line2D:
    """The mean over directions, with single directions thin behind it."""
    number = with_si(label)
    colour = SHADES[number]
    shown = np.where(np.isfinite(seen), seen, np.nan)
    if len(shown) > 1:
        axes.plot(places, shown.T, color=colour, linewidth=0.5, alpha=0.4)
    (line,) = axes.plot(
        places,
        shown.mean(axis=0),
        color=colour,
        marker=MARKERS[number],
        linewidth=1.8,
        markevery=2,
        markersize=4.8,
        markeredgecolor="white",
        markeredgewidth=0.6,
        label=plain(label),
    )
    return line


def cosines_picture(runs: Runs) -> tuple[Canvas, str]:
    """Histograms of the cosines of the true class, and of all classes where the runs kept them."""
    from matplotlib.figure import Figure as Canvas

    found = {name: one.cosines for name, one in analyses(runs).items() if one.cosines is not None}
    series = {"True class": [one.counts["adversarial_true"] for one in found.values()]}
    if all(one.all_classes for one in found.values()):
        series["All classes"] = [one.all_classes["adversarial"] for one in found.values()]
    canvas = Canvas(figsize=(WIDTH, 3.1), layout="constrained")
    panels = list(canvas.subplots(1, len(series), squeeze=False, sharex=True).flat)
    for axes, (title, several) in zip(panels, series.items(), strict=True):
        areas = []
        for number, (name, cosines) in enumerate(found.items()):
            label = f"{name}, mean of the true class {values(runs, true_cosine)[name]}"
            areas.append(draw_histogram(axes, cosines.edges, several[number], label))
        axes.set_title(title)
        axes.set_xlabel("Cosine of features and class weights")
    low, high = zip(*(occupied(one) for one in found.values()), strict=True)
    panels[0].set_xlim(min(low), max(high))
    panels[0].set_ylabel("Share in a bin (%)")
    draw_legend(canvas, areas)
    what = f"n = {words.whole(cosines.count)}, examples of PGD with {cosines.steps} steps; upright lines mark the means"
    return canvas, origin_of(runs, what)


def draw_histogram(axes: Axes, edges: Sequence[float], counts: Sequence[int], label: str) -> Any:
    """One histogram in percent, with a line at its mean."""
    colour = SHADES[with_si(label)]
    shares, centres = 100 * np.array(counts) / sum(counts), (np.array(edges[1:]) + np.array(edges[:-1])) / 2
    area = axes.stairs(shares, edges, fill=True, color=colour, alpha=0.35, label=plain(label))
    axes.stairs(shares, edges, color=colour, linewidth=1.3)
    axes.axvline(float(centres @ shares / 100), color=colour, linewidth=2.0, linestyle=(0, (4, 1.5)))
    return area


def occupied(cosines: Cosines) -> tuple[float, float]:
    """The range that holds adversarial cosines, with some room."""
    counts = np.array([cosines.counts["adversarial_true"], *cosines.all_classes.values()]).sum(axis=0)
    used = np.flatnonzero(counts)
    return max(cosines.edges[used[0]] - 0.05, -1.0), min(cosines.edges[used[-1] + 1] + 0.05, 1.0)


def geometry_picture(_: Runs) -> tuple[Canvas, str]:
    """The sketch, whose vectors come with the package."""
    from scaleproof.paper.sketch import sketch

    return sketch()


PICTURES: dict[str, Callable[[Runs], tuple[Any, str]]] = {
    "fig-scale": scale_picture,
    "fig-geometry": geometry_picture,
    "fig-loss-surface": surfaces_picture,
    "fig-weight-surface": weights_picture,
    "fig-cosines": cosines_picture,
}
