"""The picture of the geometric sketch: what two losses do to the weights, and which way they pull a feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from scaleproof.paper.geometry import (
    CLASSES,
    STEPS,
    SURE,
    Plane,
    learned,
    objectives,
    plane,
    pull,
    turned,
    vanished,
)
from scaleproof.report.plots import draw_legend
from scaleproof.report.style import COLOURS, DASHES, INK, MARKERS, percent_axis, tidy_log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
    from matplotlib.lines import Line2D

CLASS_COLOURS = (COLOURS[2], COLOURS[3])
LOSS_COLOURS = (COLOURS[0], COLOURS[1])
LARGE = 100.0  # how much longer the weights are in the panel of large weights
ALPHAS = [10.0 ** (power / 4) for power in range(-12, 13)]
ARROWS = 11  # features that arrows are drawn at
LENGTH = 0.75  # of such an arrow


def sketch() -> tuple[Canvas, str]:
    """Above, weights that learn an adversarial example; below, the pull on features for short and long weights."""
    from matplotlib.figure import Figure as Canvas

    seen = plane()
    canvas = Canvas(figsize=(7.4, 5.6), layout="constrained")
    (first, *learners), (small, large, shares) = canvas.subplots(2, 3)
    draw_world(first, seen, seen.weights)
    draw_example(first, seen)
    first.set_title("(a) PGD crosses over")
    first.set_xlabel("one image, before (ring)\nand after (cross) PGD", fontsize=7.2)
    for letter, axes, (name, objective) in zip("bc", learners, objectives().items(), strict=True):
        after = learned(objective, seen.adversarial, seen.weights)
        draw_world(axes, seen, after)
        draw_learned(axes, seen, after)
        axes.set_title(f"({letter}) {name} learns it")
    for letter, axes, alpha in (("d", small, 1.0), ("e", large, LARGE)):
        draw_world(axes, seen, seen.weights, long=alpha > 1)
        draw_pulls(axes, seen, alpha)
        axes.set_title(f"({letter}) Pull, weights × {alpha:g}")
    small.set_xlabel("both losses pull features\nacross the boundary", fontsize=7.2)
    large.set_xlabel("rings: cross entropy has\nno direction left", fontsize=7.2)
    draw_shares(shares, seen)
    shares.set_title("(f) Gradients of 0 (%)")
    draw_legend(canvas, handles())
    return canvas, origin(seen)


def origin(seen: Plane) -> str:
    counts = torch.bincount(seen.labels).tolist()
    return (
        f"The embedded robust network in the plane of its weights of {' and '.join(CLASSES)}, biases left out; "
        f"{counts[0]} + {counts[1]} embedded test images, seed 0. (a) One image before and after PGD with {STEPS} "
        f"steps, ℓ∞ radius 8/255. (b), (c) Gradient steps on the weights until the example is right with {SURE:.0%}. "
        "(d), (e) Directions alone, as PGD takes the sign; a ring: the gradient is exactly 0 in float32. "
        f"(f) Of {len(seen.right)} features of {CLASSES[0]} that are right."
    )


def draw_world(axes: Axes, seen: Plane, weights: Tensor, long: bool = False) -> None:
    """Regions of the two classes, features of the images, and the weights of the classes as arrows."""
    low, high = extent(seen)
    grid = np.meshgrid(np.linspace(low[0], high[0], 300), np.linspace(low[1], high[1], 300))
    gap = (weights[0] - weights[1]).tolist()
    margin = gap[0] * grid[0] + gap[1] * grid[1]
    axes.contourf(*grid, margin, levels=[-1e9, 0, 1e9], colors=CLASS_COLOURS[::-1], alpha=0.13)
    axes.contour(*grid, margin, levels=[0], colors=INK, linewidths=1.0)
    for label, (colour, marker) in enumerate(zip(CLASS_COLOURS, "o^", strict=True)):
        across, up = seen.features[seen.labels == label].T.numpy()
        axes.scatter(across, up, s=9, marker=marker, color=colour, alpha=0.45, linewidths=0)
    for weight, colour in zip(weights, CLASS_COLOURS, strict=True):
        arrow(axes, torch.zeros(2), weight * (LARGE if long else 1), colour, 2.2)
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(True)


def extent(seen: Plane) -> tuple[list[float], list[float]]:
    """The corners of a square that holds most features, the origin and the weights."""
    points = torch.cat([seen.features, seen.weights, torch.zeros(1, 2)])
    low, high = points.quantile(0.005, dim=0) - 0.4, points.quantile(0.995, dim=0) + 0.4
    side, middle = (high - low).max(), (high + low) / 2
    return (middle - side / 2).tolist(), (middle + side / 2).tolist()


def arrow(axes: Axes, start: Tensor, end: Tensor, colour: str, width: float, style: str = "-") -> None:
    """An arrow from point to point, cut at the edge of the panel."""
    from matplotlib.patches import FancyArrowPatch

    axes.add_patch(
        FancyArrowPatch(
            (float(start[0]), float(start[1])),
            (float(end[0]), float(end[1])),
            arrowstyle="-|>",
            mutation_scale=6 + 2.2 * width,
            color=colour,
            linewidth=width,
            linestyle=style,
            shrinkA=0,
            shrinkB=0,
            zorder=4,
        )
    )


def draw_example(axes: Axes, seen: Plane) -> None:
    """An image's feature, and the arrow to where PGD took it."""
    arrow(axes, seen.clean, seen.adversarial, INK, 1.3)
    axes.plot(*seen.clean.tolist(), "o", color="white", markeredgecolor=INK, markersize=5.5, zorder=5)
    axes.plot(*seen.adversarial.tolist(), "X", color=INK, markeredgecolor="white", markersize=7.5, zorder=6)


def draw_learned(axes: Axes, seen: Plane, after: Tensor) -> None:
    """The weights before, dashed, and what became of their lengths and directions."""
    axes.plot(*seen.adversarial.tolist(), "X", color=INK, markeredgecolor="white", markersize=7.5, zorder=6)
    for weight in seen.weights:
        arrow(axes, torch.zeros(2), weight, INK, 0.9, "--")
    lines = [
        f"{name}: length {100 * float(new.norm() / old.norm() - 1):+.1f}%, turned {turned(old, new):.0f}°"
        for name, old, new in zip(CLASSES, seen.weights, after, strict=True)
    ]
    axes.set_xlabel("\n".join(lines).replace("-", "−"), fontsize=7.2)


def draw_pulls(axes: Axes, seen: Plane, alpha: float) -> None:
    """The directions in which both losses move some features of the first class; a ring where there is none."""
    order = seen.right[:, 1].argsort()
    chosen = seen.right[order[torch.linspace(0, len(order) - 1, ARROWS).long()]]
    for colour, objective in zip(LOSS_COLOURS, objectives().values(), strict=True):
        for feature, change in zip(chosen, pull(objective, chosen, seen.weights, alpha), strict=True):
            size = change.double().norm()
            if size == 0:
                axes.plot(
                    *feature.tolist(), "o", color=colour, markerfacecolor="none", markersize=5.5, zorder=6
                )
            else:
                arrow(axes, feature, feature + LENGTH * (change.double() / size).float(), colour, 1.2)


def draw_shares(axes: Axes, seen: Plane) -> None:
    """How many features have no gradient left, against the length of the weights."""
    for number, objective in enumerate(objectives().values()):
        shares = [100 * share for share in vanished(objective, seen, ALPHAS)]
        axes.plot(
            ALPHAS,
            shares,
            color=LOSS_COLOURS[number],
            linestyle=DASHES[number],
            marker=MARKERS[number],
            markevery=4,
            markersize=4.5,
            linewidth=1.8,
        )
    axes.set_xscale("log")
    tidy_log_axis(axes.xaxis)
    axes.set_xticks([1e-3, 1e-1, 1e1, 1e3])
    percent_axis(axes)
    axes.set_xlabel("length of the weights,\ntimes their own", fontsize=7.2)
    axes.set_box_aspect(1)


def handles() -> Sequence[Line2D]:
    """What the legend explains."""
    from matplotlib.lines import Line2D

    classes = [
        Line2D(
            [],
            [],
            color=colour,
            marker=marker,
            linewidth=2.2,
            markersize=4.5,
            label=f"{name}: features, weights",
        )
        for name, colour, marker in zip(CLASSES, CLASS_COLOURS, "o^", strict=True)
    ]
    losses = [
        Line2D(
            [], [], color=LOSS_COLOURS[n], linestyle=DASHES[n], marker=MARKERS[n], markersize=4.5, label=name
        )
        for n, name in enumerate(objectives())
    ]
    example = Line2D([], [], color=INK, marker="X", linestyle="", label="Adversarial example")
    boundary = Line2D([], [], color=INK, linewidth=1.0, label="Decision boundary")
    return [*classes, *losses, example, boundary]
