"""Example loss surfaces: the loss around an image in the plane of its PGD direction and a random one (Figure 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scaleproof.analysis.kept import Kept, seconds_of, silent, step
from scaleproof.analysis.subject import Subject, checked_grid, symmetric
from scaleproof.attacks.base import at_least
from scaleproof.images import Rows, spans
from scaleproof.losses import Objective, margin
from scaleproof.oracle import Oracle
from scaleproof.progress import Report
from scaleproof.rng import Rng
from scaleproof.speed import exact_float32
from scaleproof.store import MemoryStore, UnitStore
from scaleproof.threat import rows_like


@dataclass(frozen=True, kw_only=True)
class SurfacePlan:
    """How many images, and a grid of `points` by `points` that spans +-`span` times eps."""

    images: int = 10
    span: float = 2.0
    points: int = 21
    steps: int = 10  # of the PGD that gives the first direction

    def __post_init__(self) -> None:
        at_least(1, images=self.images, steps=self.steps)
        checked_grid(self.span, self.points)

    @property
    def coordinates(self) -> list[float]:
        """Places along both directions, in multiples of eps."""
        return symmetric(self.span, self.points)


DEFAULT_SURFACES = SurfacePlan()


@dataclass(frozen=True, kw_only=True, eq=False)
class Surfaces:
    """Losses (n, P, P) of n images; the second index moves along the PGD direction, the third along the random one."""

    plan: SurfacePlan
    rows: Rows = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    losses: Mapping[str, NDArray[np.float32]] = field(repr=False)
    margin: NDArray[np.float32] = field(
        repr=False
    )  # best other logit minus true logit: positive where misclassified
    seconds: float

    def mean(self, objective: str) -> NDArray[np.float64]:
        """The mean surface over the images (P, P)."""
        return np.asarray(self.losses[objective].astype(np.float64).mean(axis=0))

    def as_json(self) -> dict[str, object]:
        return {
            "plan": vars(self.plan),
            "coordinates": self.plan.coordinates,
            "rows": self.rows.tolist(),
            "labels": self.labels.tolist(),
            "objectives": list(self.losses),
            "seconds": self.seconds,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        losses = {f"surfaces__{name}": values for name, values in self.losses.items()}
        return {**losses, "surfaces__margin": self.margin}


def example_surfaces(
    subject: Subject,
    plan: SurfacePlan = DEFAULT_SURFACES,
    *,
    store: UnitStore | None = None,
    progress: Report = silent,
) -> Surfaces:
    """Surfaces around the first images that are classified right, or the first ones where none is."""
    with subject.at_rest():
        oracle = subject.oracle()
        rows = first_right(subject, oracle, plan.images)
        kept, pieces = Kept(store or MemoryStore(), subject.mark("surfaces", plan)), []
        for number, row in enumerate(rows):
            step(progress, number, len(rows), f"image {number + 1} of {len(rows)}")
            pieces.append(kept.get(f"image-{row:06d}", partial(surface_of, subject, oracle, plan, row)))
        step(progress, len(rows), len(rows), "done")
    return Surfaces(
        plan=plan,
        rows=rows,
        labels=np.array([int(piece["label"]) for piece in pieces], dtype=np.int64),
        losses={name: np.stack([piece[name] for piece in pieces]) for name in subject.objectives},
        margin=np.stack([piece["margin"] for piece in pieces]),
        seconds=seconds_of(pieces),
    )


def first_right(subject: Subject, oracle: Oracle, count: int) -> Rows:
    """The first rows that are classified right, or the first rows where none is."""
    found: list[int] = []
    for rows in spans(len(subject.images), subject.batch_size):
        x, y, _ = subject.batch(oracle, rows)
        right = (oracle.judge(x).argmax(1) == y).cpu().numpy()
        found += rows[right].tolist()
        if len(found) >= count:
            break
    return np.array(found[:count] or range(min(count, len(subject.images))), dtype=np.int64)


def surface_of(subject: Subject, oracle: Oracle, plan: SurfacePlan, row: int) -> dict[str, NDArray[Any]]:
    """The losses of one image on the whole grid."""
    x, y, index = subject.batch(oracle, np.array([row], dtype=np.int64))
    towards, aside = directions(subject, oracle, plan.steps, x, y, index)
    places = torch.tensor(plan.coordinates, device=x.device, dtype=x.dtype) * subject.threat.eps
    grid = torch.cartesian_prod(places, places)  # (P * P, 2), the first column along the PGD direction
    parts = [
        values_at(oracle, subject.objectives, on_plane(x, towards, aside, some), y)
        for some in torch.split(grid, subject.batch_size)
    ]
    shape = (plan.points, plan.points)
    joined = {name: np.concatenate([part[name] for part in parts]).reshape(shape) for name in parts[0]}
    return {**joined, "label": np.array(int(y))}


def directions(
    subject: Subject, oracle: Oracle, steps: int, x: Tensor, y: Tensor, index: Tensor
) -> tuple[Tensor, Tensor]:
    """The PGD direction and a random one of independent signs, both of length one under the threat."""
    found = subject.perturbed(oracle, "surface", steps, x, y, index)
    noise = Rng(subject.seed, "surface-random", 0).uniform(index, tuple(x.shape[1:]))
    signs = torch.where(noise < 0.5, -1.0, 1.0).to(x.dtype)
    return subject.threat.steepest(found - x), subject.threat.steepest(signs)


def on_plane(x: Tensor, towards: Tensor, aside: Tensor, places: Tensor) -> Tensor:
    """One image moved to several places (M, 2) of its plane, within the pixel range (M, ...)."""
    along, across = (rows_like(column, x) for column in places.unbind(1))
    return (x + along * towards + across * aside).clamp(0, 1)


def values_at(
    oracle: Oracle, objectives: Mapping[str, Objective], x: Tensor, y: Tensor
) -> dict[str, NDArray[Any]]:
    """Each objective and the margin of logits at several versions of one image, in float32."""
    labels = y.expand(len(x))
    output = oracle.judge_outputs(x, features=any(one.needs_features for one in objectives.values()))
    with torch.no_grad(), exact_float32():
        values = {name: objective(output, labels) for name, objective in objectives.items()}
        values["margin"] = margin(output.logits, labels)
    return {name: value.float().cpu().numpy() for name, value in values.items()}
