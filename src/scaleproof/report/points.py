"""The points that a figure shows, by place and by value, so that a page can read them out."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MOST_POINTS = 400
Series = dict[str, Any]
Spot = tuple[float, float, str, str]


def figure_points(figure: "Figure") -> list[Series]:
    """List the lines and bars of a drawn figure, with places in thousandths from its left and its top."""
    return [
        series for axes in figure.axes for series in (*bar_series(axes), *line_series(axes)) if series["at"]
    ]


def line_series(axes: "Axes") -> list[Series]:
    """List the lines of a panel that lie in its own coordinates; whiskers on bars do not count."""
    lines = [line for line in axes.lines if line.get_transform() == axes.transData]
    named = [line for line in lines if not str(line.get_label()).startswith("_")]
    return [one_line(axes, line) for line in (named if named or axes.containers else lines)]


def one_line(axes: "Axes", line: "Line2D") -> Series:
    """Describe one line."""
    label = str(line.get_label())
    pairs = np.asarray(line.get_xydata(), dtype=float).tolist()
    stride = -(-len(pairs) // MOST_POINTS) or 1
    spots = [(x, y, f"{x:.4g}", f"{y:.4g}") for x, y in pairs[::stride]]
    return described(axes, "" if label.startswith("_") else label, axis_name(axes), spots)


def bar_series(axes: "Axes") -> list[Series]:
    """List the bars of a panel."""
    from matplotlib.container import BarContainer

    return [one_bar(axes, found) for found in axes.containers if isinstance(found, BarContainer)]


def one_bar(axes: "Axes", bars: "BarContainer") -> Series:
    """Describe a group of bars: lying ones are named by the ticks beside them."""
    label = str(bars.get_label())
    spots: list[Spot] = []
    for bar in list(bars.patches)[:MOST_POINTS]:
        middle_x, middle_y = bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2
        if bars.orientation == "horizontal":
            spots.append((bar.get_width(), middle_y, tick_name(axes, middle_y), f"{bar.get_width():.4g}"))
        else:
            spots.append((middle_x, bar.get_height(), f"{middle_x:.4g}", f"{bar.get_height():.4g}"))
    name = "" if bars.orientation == "horizontal" else axis_name(axes)
    return described(axes, "" if label.startswith("_") else label, name, spots)


def tick_name(axes: "Axes", place: float) -> str:
    """Return the text of the tick at a height."""
    named = zip(axes.get_yticks(), axes.get_yticklabels(), strict=False)
    found = [text.get_text() for tick, text in named if abs(tick - place) < 0.5]
    return spoken(found[0]) if found else f"{place:.4g}"


def axis_name(axes: "Axes") -> str:
    """Return the label of the horizontal axis, be it below this panel or below another one."""
    names = [axes.get_xlabel(), *(other.get_xlabel() for other in axes.figure.axes)]
    return spoken(next((name for name in names if name), ""))


def described(axes: "Axes", label: str, name: str, spots: list[Spot]) -> Series:
    """Put points into the places that they have on the figure, leaving out those outside the panel."""
    panel = axes.get_title(loc="left") or axes.get_title() or axes.get_ylabel() or axes.get_xlabel()
    frame, wide = axes.bbox, axes.figure.bbox
    at = []
    for x, y, first, second in spots:
        across, up = axes.transData.transform((x, y))
        if frame.x0 - 1 <= across <= frame.x1 + 1 and frame.y0 - 1 <= up <= frame.y1 + 1:
            places = round(1000 * across / wide.width), round(1000 - 1000 * up / wide.height)
            at.append([*places, first, second])
    return {"name": spoken(label), "panel": spoken(panel), "axis": name, "at": at}


def spoken(text: str) -> str:
    """Undo what keeps matplotlib from reading a text as mathematics, and put it on one line."""
    return " ".join(text.replace(r"\$", "$").split())
