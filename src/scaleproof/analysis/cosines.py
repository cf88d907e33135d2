"""Histograms of cosines of features and class weights: of the true class, the best other and all classes (Figure 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scaleproof.analysis.kept import Kept, seconds_of, silent, step
from scaleproof.analysis.subject import Subject
from scaleproof.attacks.base import at_least
from scaleproof.images import Rows, spans
from scaleproof.losses import best_other, column
from scaleproof.models.output import Output
from scaleproof.oracle import Oracle
from scaleproof.progress import Report
from scaleproof.speed import exact_float32
from scaleproof.store import MemoryStore, UnitStore

KINDS = ("clean", "adversarial")
SERIES = ("clean_true", "clean_other", "adversarial_true", "adversarial_other")
MISMATCHES = ("clean_mismatch", "adversarial_mismatch")


@dataclass(frozen=True, kw_only=True)
class CosinePlan:
    """The PGD that makes the adversarial images, and the number of bins from -1 to 1."""

    steps: int = 10
    bins: int = 80

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, bins=self.bins)

    @property
    def edges(self) -> list[float]:
        return [2 * number / self.bins - 1 for number in range(self.bins + 1)]


DEFAULT_COSINES = CosinePlan()


@dataclass(frozen=True, kw_only=True, eq=False)
class Cosines:
    """One cosine an image: true class and best other class, on clean and on adversarial images (N,)."""

    plan: CosinePlan
    values: Mapping[str, NDArray[np.float32]] = field(repr=False)
    all_classes: Mapping[str, list[int]] = field(
        repr=False
    )  # counts over every class of every image, clean and adversarial
    mismatch: Mapping[str, float]  # share of images whose largest cosine is not the decision
    seconds: float

    @property
    def counts(self) -> dict[str, list[int]]:
        """How many images fall into each bin."""
        return {name: histogram(values, self.plan.edges) for name, values in self.values.items()}

    def as_json(self) -> dict[str, object]:
        return {
            "plan": vars(self.plan),
            "edges": self.plan.edges,
            "count": len(self.values["clean_true"]),
            "counts": self.counts,
            "all_classes": dict(self.all_classes),
            "means": {name: float(values.mean()) for name, values in self.values.items()},
            "mismatch": dict(self.mismatch),
            "seconds": self.seconds,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {f"cosines__{name}": values for name, values in self.values.items()}


def histogram(values: NDArray[Any], edges: list[float]) -> list[int]:
    """How many values fall between neighbouring edges; those beyond the ends count at the ends."""
    inside = np.clip(values, edges[0], edges[-1])
    counts: list[int] = np.histogram(inside, bins=edges)[0].tolist()
    return counts


def cosine_histograms(
    subject: Subject,
    plan: CosinePlan = DEFAULT_COSINES,
    *,
    store: UnitStore | None = None,
    progress: Report = silent,
) -> Cosines:
    """Cosines of all images, clean and under PGD."""
    if subject.doubt is not None:
        raise ValueError(f"cosines need the head of the model: {subject.doubt}")
    chunks = list(spans(len(subject.images), subject.batch_size))
    kept, pieces = Kept(store or MemoryStore(), subject.mark("cosines", plan)), []
    with subject.at_rest():
        oracle = subject.oracle()
        for number, rows in enumerate(chunks):
            step(progress, number, len(chunks), f"part {number + 1} of {len(chunks)}")
            pieces.append(kept.get(f"rows-{number:05d}", partial(cosines_of, subject, oracle, plan, rows)))
    step(progress, len(chunks), len(chunks), "done")
    joined = {name: np.concatenate([piece[name] for piece in pieces]) for name in (*SERIES, *MISMATCHES)}
    return Cosines(
        plan=plan,
        values={name: joined[name] for name in SERIES},
        all_classes={
            kind: np.sum([piece[f"{kind}_all"] for piece in pieces], axis=0).tolist() for kind in KINDS
        },
        mismatch={name.removesuffix("_mismatch"): float(joined[name].mean()) for name in MISMATCHES},
        seconds=seconds_of(pieces),
    )


def cosines_of(subject: Subject, oracle: Oracle, plan: CosinePlan, rows: Rows) -> dict[str, NDArray[Any]]:
    """The cosines of some rows, clean and under PGD, in float32."""
    x, y, index = subject.batch(oracle, rows)
    found = subject.perturbed(oracle, "cosines", plan.steps, x, y, index)
    values: dict[str, NDArray[Any]] = {}
    for kind, images in zip(KINDS, (x, found), strict=True):
        output: Output = oracle.judge_outputs(images, features=True)
        with torch.no_grad(), exact_float32():
            cosines = output.cosines
        values[f"{kind}_true"] = column(cosines, y).float().cpu().numpy()
        values[f"{kind}_other"] = best_other(cosines, y).float().cpu().numpy()
        values[f"{kind}_all"] = np.array(histogram(cosines.float().cpu().numpy(), plan.edges))
        values[f"{kind}_mismatch"] = (cosines.argmax(1) != output.logits.argmax(1)).cpu().numpy()
    return values
