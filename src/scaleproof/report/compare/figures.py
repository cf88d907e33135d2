"""The figures of a comparison: all runs on one axis."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from scaleproof.report import scale
from scaleproof.report.compare.curves import with_curves
from scaleproof.report.compare.entries import WORST, Entry, share_of
from scaleproof.report.plate import Plate
from scaleproof.report.plots import bar_axes, draw_bar, draw_legend, scale_axis
from scaleproof.report.style import COLOURS, DASHES, INK, MARKERS, canvas, percent_axis, plain
from scaleproof.report.training.plots import accuracy_axis, draw_series, epoch_axis
from scaleproof.report.training.records import Training
from scaleproof.report.training.words import PROBES, probes, standings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


def compare_plates(entries: Sequence[Entry]) -> dict[str, Plate]:
    """Return the figures of a comparison by the section that each belongs to."""
    measured = [entry for entry in entries if entry.evaluation is not None]
    trained, swept = with_curves(entries), [entry for entry in entries if entry.run.sweep is not None]
    found: dict[str, Plate] = {}
    if measured:
        found["runs"] = Plate(
            draw=partial(bars_figure, measured),
            description="Bars of worst-case robust accuracy, one for each run. The table has the numbers.",
            caption="Worst-case robust accuracy of each run. Whiskers are 95% Wilson intervals of each run alone; "
            "the table of differences says how two runs compare.",
        )
    if trained:
        found["curves"] = Plate(
            draw=partial(curves_figure, trained),
            description="Lines over the epochs: clean and PGD accuracy of the probes of every training.",
            caption=f"Accuracy of the probes over the epochs: {probe_text(trained)}. Upper lines are clean, "
            "lower ones under PGD; upright lines mark the selected epochs.",
        )
    if swept:
        found["scale"] = Plate(
            draw=partial(scale_figure, swept),
            description="Robust accuracy against the scale of the logits, a line for each attack of each run.",
            caption="The same classifiers with their logits multiplied by α. Colours tell runs apart, dashes and "
            "markers attacks.",
        )
    return found


def bars_figure(entries: Sequence[Entry], *, narrow: bool = False) -> "Figure":
    """Draw the worst case of each run as bars with their intervals."""
    with canvas((3.9 if narrow else 7.4, 0.8 + 0.34 * len(entries))) as figure:
        axes = figure.add_subplot()
        for position, entry in enumerate(entries):
            share = share_of(entry, WORST)
            assert share is not None
            draw_bar(axes, position, share, COLOURS[position % len(COLOURS)] if entry.sound else "#b5b5b5")
        axes.set_yticks(range(len(entries)), [plain(entry.marked) for entry in entries])
        bar_axes(axes, len(entries), 130 if narrow else 112)
        axes.set_xlabel("Worst-case robust accuracy (%) with 95% interval")
    return figure


def probe_of(training: Training) -> str:
    """Choose the probe to draw: held-out images where there are any."""
    return probes(training)[0]


def probe_text(entries: Sequence[Entry]) -> str:
    """Say which images the lines are of."""
    kinds = {entry.short: PROBES[probe_of(entry.run.training)] for entry in entries if entry.run.training}
    if len(set(kinds.values())) == 1:
        return f"{next(iter(kinds.values()))} images"
    return ", ".join(f"{kind} images of {label}" for label, kind in kinds.items())


def curves_figure(entries: Sequence[Entry], *, narrow: bool = False) -> "Figure":
    """Draw clean and PGD accuracy over the epochs for every training."""
    with canvas((3.9, 5.0) if narrow else (7.4, 4.4)) as figure:
        axes = figure.add_subplot()
        lines: list[Line2D] = []
        highest, longest = 0.0, 1
        for position, entry in enumerate(entries):
            training = entry.run.training
            assert training is not None
            lines += draw_training(axes, position, entry.short, training)
            found = standings(training, probe_of(training))
            highest = max(highest, *(max(one.clean, one.pgd) for _, one in found))
            longest = max(longest, len(training.history))
        accuracy_axis(axes, highest)
        epoch_axis(axes, longest)
        axes.set_title("Accuracy of the probes (%)")
        axes.set_xlabel("Epoch")
        draw_legend(figure, lines)
    return figure


def draw_training(axes: "Axes", position: int, label: str, training: Training) -> "list[Line2D]":
    """Draw the two lines of one training and mark its selected epoch."""
    found, colour = standings(training, probe_of(training)), COLOURS[position % len(COLOURS)]
    clean, attacked = [one.clean for _, one in found], [one.pgd for _, one in found]
    epochs = [number for number, _ in found]
    axes.axvline(training.selected.epoch, color=colour, linewidth=0.9, linestyle=(0, (5, 2)), zorder=1)
    return [
        draw_series(axes, epochs, values, f"{label}, {name}", colour, position, row)
        for row, (name, values) in enumerate((("clean", clean), ("PGD", attacked)))
    ]


def scale_figure(entries: Sequence[Entry], *, narrow: bool = False) -> "Figure":
    """Draw robust accuracy against the scale of the logits for every attack of every sweep."""
    with canvas((3.9, 5.4) if narrow else (7.4, 4.6)) as figure:
        axes = figure.add_subplot()
        lines: list[Line2D] = []
        alphas: set[float] = set()
        attacks: dict[str, int] = {}
        for position, entry in enumerate(entries):
            sweep = entry.run.sweep
            assert sweep is not None
            alphas |= set(sweep.alphas)
            for name in scale.attack_names(sweep):
                kind = attacks.setdefault(name, len(attacks))
                rows = scale.rows_of(sweep, name)
                (line,) = axes.plot(
                    [row.alpha for row in rows],
                    [100 * row.robust.accuracy for row in rows],
                    color=COLOURS[position % len(COLOURS)],
                    marker=MARKERS[kind % len(MARKERS)],
                    linestyle=DASHES[kind % len(DASHES)],
                    linewidth=1.5,
                    markersize=4.8,
                    markeredgecolor="white",
                    markeredgewidth=0.6,
                    label=plain(f"{entry.short}, {rows[0].label}"),
                )
                lines.append(line)
        percent_axis(axes)
        scale_axis(axes, sorted(alphas))
        axes.set_title("Robust accuracy (%)")
        axes.set_xlabel("Scale α of the logits")
        axes.tick_params(colors=INK)
        draw_legend(figure, lines)
    return figure
