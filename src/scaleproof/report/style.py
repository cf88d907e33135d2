"""How figures look and how they are exported, the same bytes every time."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

DPI = 160
INK, FAINT = "#222222", "#8a8a8a"
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F6A00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)), "--", ":", "-.", "-")
SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "text.color": INK,
    "svg.hashsalt": "scaleproof",
    "svg.fonttype": "path",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@contextmanager
def canvas(size: tuple[float, float]) -> "Iterator[Figure]":
    """Give a figure of some inches, and all that is drawn inside the look of a report."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS):
        yield Figure(figsize=size, layout="constrained")


def png(figure: "Figure") -> bytes:
    """Export a figure as PNG."""
    return export(figure, "png", {"Software": None})


def svg(figure: "Figure") -> bytes:
    """Export a figure as SVG."""
    return export(figure, "svg", {"Date": None, "Creator": None})


def export(figure: "Figure", kind: str, metadata: dict[str, Any]) -> bytes:
    """Export a figure without anything that changes from one time to the next."""
    from matplotlib import rc_context

    stream = io.BytesIO()
    with rc_context(SETTINGS):
        figure.savefig(stream, format=kind, dpi=DPI, metadata=metadata)
    return stream.getvalue()


def tidy_log_axis(axis: "Axis") -> None:
    """Let a logarithmic axis have few ticks, at whole decades only."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(base=10, numticks=8))
    axis.set_minor_locator(NullLocator())


def plain(text: str) -> str:
    """Keep matplotlib from reading a text as mathematics."""
    return text.replace("$", r"\$")


def percent_axis(axes: "Axes") -> None:
    """Let the vertical axis run from 0 to 100 percent."""
    axes.set_ylim(-2, 102)
    axes.set_yticks([0, 20, 40, 60, 80, 100])
