"""The figures of a report."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scaleproof.report import scale, words
from scaleproof.report.records import Evaluation, Share, Sweep, SweepRow
from scaleproof.report.style import (
    COLOURS,
    DASHES,
    FAINT,
    INK,
    MARKERS,
    canvas,
    percent_axis,
    plain,
    tidy_log_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


def scale_figure(sweep: Sweep, *, narrow: bool = False) -> "Figure":
    """Draw robust accuracy, gradient size and zero gradients against the scale of the logits."""
    with canvas((3.9, 8.4) if narrow else (7.4, 4.5)) as figure:
        panels = scale_panels(figure, narrow)
        handles = draw_accuracy(panels[0], sweep)
        draw_gradients(panels[1], sweep)
        draw_zeros(panels[2], sweep)
        for axes in panels:
            scale_axis(axes, sweep.alphas)
        for axes in panels if narrow else panels[::2]:
            axes.set_xlabel("Scale α of the logits")
        draw_legend(figure, handles)
    return figure


def scale_panels(figure: "Figure", narrow: bool) -> "list[Axes]":
    """Lay out three panels: one wide and two small, or all three in one column."""
    if narrow:
        grid = figure.add_gridspec(3, 1, height_ratios=(1.6, 1, 1))
        return [figure.add_subplot(grid[row, 0]) for row in range(3)]
    grid = figure.add_gridspec(2, 2, width_ratios=(1.55, 1))
    places = (grid[:, 0], grid[0, 1], grid[1, 1])
    return [figure.add_subplot(place) for place in places]


def draw_legend(figure: "Figure", handles: "Sequence[Line2D]") -> None:
    """Put the legend below the panels, in as many columns as surely fit."""
    room = 72 * figure.get_figwidth()
    lengths = sorted((len(str(handle.get_label())) for handle in handles), reverse=True)
    fitting = [n for n in range(1, len(lengths) + 1) if 43 * n + 4.9 * sum(lengths[:n]) <= room]
    rows = math.ceil(len(handles) / max(fitting, default=1))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=math.ceil(len(handles) / rows),
        handlelength=2.8,
        columnspacing=1.4,
    )


def scale_axis(axes: "Axes", alphas: Sequence[float]) -> None:
    """Set up the logarithmic axis of scales and mark the scale that the classifier came with."""
    axes.set_xscale("log")
    tidy_log_axis(axes.xaxis)
    axes.set_xlim(min(alphas) / 1.6, max(alphas) * 1.6)
    axes.axvline(1.0, color=FAINT, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1)


def widths(sweep: Sweep) -> dict[str, float]:
    """Give lines that lie on one another falling widths, so that the lower ones show at the edges."""
    flat = [name for name in scale.attack_names(sweep) if is_flat(sweep, name)]
    nested = {name: max(1.3, 4.0 - 1.3 * position) for position, name in enumerate(reversed(flat))}
    return {name: nested.get(name, 1.6) for name in scale.attack_names(sweep)}


def is_flat(sweep: Sweep, name: str) -> bool:
    """Tell whether the verdict of an attack hardly moves with the scale."""
    return scale.spread(sweep, name) < 0.02


def draw_line(axes: "Axes", sweep: Sweep, position: int, values: Sequence[float]) -> "Line2D":
    """Draw one attack in its colour, marker and dash, markers staggered where lines may coincide."""
    name = scale.attack_names(sweep)[position]
    kind = position % len(COLOURS)
    width = widths(sweep)[name]
    every = (position % 3, 3) if is_flat(sweep, name) and len(values) >= 6 else (0, 1)
    (line,) = axes.plot(
        [row.alpha for row in scale.rows_of(sweep, name)],
        values,
        color=COLOURS[kind],
        marker=MARKERS[kind],
        linestyle="-" if width >= 4 else DASHES[kind],
        linewidth=width,
        markevery=every,
        markersize=5.2,
        markeredgecolor="white",
        markeredgewidth=0.6,
        zorder=10 - width,
        label=plain(scale.titled(sweep, name)),
    )
    return line


def draw_accuracy(axes: "Axes", sweep: Sweep) -> "list[Line2D]":
    """Draw robust accuracy with its intervals, below a line for clean accuracy."""
    lines = []
    for position, name in enumerate(scale.attack_names(sweep)):
        rows = scale.rows_of(sweep, name)
        low, high = ([100 * row.robust.interval[end] for row in rows] for end in (0, 1))
        colour = COLOURS[position % len(COLOURS)]
        axes.fill_between([row.alpha for row in rows], low, high, color=colour, alpha=0.12, linewidth=0)
        lines.append(draw_line(axes, sweep, position, [100 * row.robust.accuracy for row in rows]))
    lines.append(draw_clean(axes, sweep.clean))
    percent_axis(axes)
    axes.set_title(f"Robust accuracy (%), n = {sweep.clean.count}")
    return lines


def draw_clean(axes: "Axes", clean: Share) -> "Line2D":
    """Draw the accuracy without an attack as a level."""
    dash = (0, (5, 3))
    return axes.axhline(
        100 * clean.accuracy, color=INK, linewidth=0.9, linestyle=dash, label="Clean accuracy"
    )


def draw_gradients(axes: "Axes", sweep: Sweep) -> None:
    """Draw the size of the input gradient, with a triangle on the floor where it is exactly 0."""
    for position, name in enumerate(scale.attack_names(sweep)):
        rows = scale.rows_of(sweep, name)
        sizes = [row.gradient_size if row.gradient_size > 0 else math.nan for row in rows]
        draw_line(axes, sweep, position, sizes)
        mark_vanished(axes, rows, COLOURS[position % len(COLOURS)])
    axes.set_yscale("log")
    tidy_log_axis(axes.yaxis)
    axes.set_title("Mean gradient size (ℓ₁)")
    axes.tick_params(labelbottom=True)


def mark_vanished(axes: "Axes", rows: Sequence[SweepRow], colour: str) -> None:
    """Mark on the floor of the panel the scales at which the gradient is exactly 0."""
    gone = [row.alpha for row in rows if row.gradient_size == 0]
    floor = axes.get_xaxis_transform()
    axes.plot(gone, [0.02] * len(gone), "v", color=colour, markerfacecolor="none", transform=floor)


def draw_zeros(axes: "Axes", sweep: Sweep) -> None:
    """Draw the share of gradient entries that are exactly 0."""
    for position, name in enumerate(scale.attack_names(sweep)):
        values = [100 * row.zero_gradients for row in scale.rows_of(sweep, name)]
        draw_line(axes, sweep, position, values)
    percent_axis(axes)
    axes.set_title("Gradient entries exactly 0 (%)")


def attacks_figure(evaluation: Evaluation, *, narrow: bool = False) -> "Figure":
    """Draw the accuracy under each attack as bars with their intervals."""
    bars = attack_bars(evaluation, "\n" if narrow else " ")
    with canvas((3.9 if narrow else 7.4, 0.8 + 0.34 * len(bars))) as figure:
        axes = figure.add_subplot()
        for position, (_, share, colour) in enumerate(bars):
            draw_bar(axes, position, share, colour)
        axes.set_yticks(range(len(bars)), [plain(label) for label, _, _ in bars])
        bar_axes(axes, len(bars), 130 if narrow else 112)
        axes.set_xlabel(f"Accuracy (%) with 95% interval, n = {evaluation.worst_case.count}")
    return figure


def bar_axes(axes: "Axes", count: int, room: int) -> None:
    """Set up the axes of horizontal bars, with room for numbers beyond 100 percent."""
    axes.set_ylim(count - 0.4, -0.6)
    axes.set_xlim(0, room)
    axes.set_xticks([0, 20, 40, 60, 80, 100])
    axes.spines.bottom.set_bounds(0, 100)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def attack_bars(evaluation: Evaluation, gap: str = " ") -> list[tuple[str, Share, str]]:
    """List the bars: clean, each attack, and the worst case last."""
    bars = [("Clean", evaluation.clean, "#b5b5b5")]
    for attack in evaluation.attacks:
        beside = f"{gap}(mismatch {words.mismatch(attack.cosine_mismatch)})"
        cosine = words.on_cosines(attack.name, attack.cosine_mismatch)
        bars.append((attack.label + (beside if cosine else ""), attack.robust, "#7fb2d5"))
    return [*bars, (words.worst_label(evaluation).replace(" (", f"{gap}("), evaluation.worst_case, "#D55E00")]


def draw_bar(axes: "Axes", position: int, share: Share, colour: str) -> None:
    """Draw one bar with its interval and its number."""
    value, (low, high) = 100 * share.accuracy, (100 * end for end in share.interval)
    axes.barh(position, value, height=0.62, color=colour)
    axes.plot([low, high], [position, position], color=INK, linewidth=1.1, solid_capstyle="butt")
    axes.plot([low, high], [position, position], "|", color=INK, markersize=6, markeredgewidth=1.1)
    number = words.share_percent(share)
    axes.annotate(number, (high, position), xytext=(5, 0), textcoords="offset points", va="center", ha="left")
