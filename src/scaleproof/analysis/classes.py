"""Classes: how robust each one is, and which class becomes which under attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scaleproof.analysis.curves import evaluations
from scaleproof.analysis.kept import silent
from scaleproof.analysis.subject import Subject
from scaleproof.attacks.base import at_least
from scaleproof.contract import Finding
from scaleproof.evaluation import Share
from scaleproof.progress import Report
from scaleproof.store import Arrays, UnitStore


@dataclass(frozen=True, kw_only=True)
class ClassPlan:
    """Steps and restarts of the attacks whose verdicts are counted."""

    steps: int = 20
    restarts: int = 1

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, restarts=self.restarts)


DEFAULT_CLASSES = ClassPlan()


@dataclass(frozen=True, kw_only=True, eq=False)
class Classes:
    """Images of each true class (row) by what they are taken for in the worst case (column): (K, K)."""

    confusion: NDArray[np.int64] = field(repr=False)
    clean_correct: NDArray[np.int64] = field(repr=False)  # (K,)
    attacks: tuple[str, ...]
    source: str
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0

    def robust(self, label: int) -> Share:
        """Images of a class that withstand every attack."""
        return Share(int(self.confusion[label, label]), int(self.confusion[label].sum()))

    def clean(self, label: int) -> Share:
        return Share(int(self.clean_correct[label]), int(self.confusion[label].sum()))

    def as_json(self) -> dict[str, object]:
        return {
            "count": int(self.confusion.sum()),
            "attacks": list(self.attacks),
            "source": self.source,
            "seconds": self.seconds,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"classes__confusion": self.confusion, "classes__clean_correct": self.clean_correct}


def class_robustness(
    subject: Subject,
    plan: ClassPlan = DEFAULT_CLASSES,
    *,
    store: UnitStore | None = None,
    progress: Report = silent,
) -> Classes:
    """Attack all images and count their worst cases by class."""
    attacks = subject.attacks(plan.steps, restarts=plan.restarts)
    evaluation = evaluations(subject, {"verdicts": attacks}, store, progress)["verdicts"]
    counted = classes_of_verdicts(evaluation.arrays(), [one.name for one in attacks], subject.classes)
    names = tuple(f"{one.label} with {plan.steps} steps" for one in attacks)
    return Classes(
        confusion=counted.confusion,
        clean_correct=counted.clean_correct,
        attacks=names,
        source="attacks of the analysis",
        findings=evaluation.findings,
        seconds=evaluation.seconds,
    )


def classes_of_verdicts(
    arrays: Arrays, attacks: Sequence[str], classes: int, source: str = "verdicts"
) -> Classes:
    """Count verdicts by class, from the arrays of an evaluation or of its `verdicts.npz`."""
    labels, clean = arrays["labels"], arrays["clean_prediction"]
    pairs = [(arrays[f"broken__{name}"], arrays[f"prediction__{name}"]) for name in attacks]
    right = np.bincount(labels[clean == labels], minlength=classes)
    return Classes(
        confusion=confusion(labels, worst_predictions(clean, labels, pairs), classes),
        clean_correct=right.astype(np.int64),
        attacks=tuple(attacks),
        source=source,
    )


def worst_predictions(
    clean: NDArray[Any], labels: NDArray[Any], verdicts: Sequence[tuple[NDArray[Any], NDArray[Any]]]
) -> NDArray[np.int64]:
    """What each image is taken for: clean where that is wrong, else by the first attack and restart that broke it."""
    taken: NDArray[np.int64] = clean.astype(np.int64)
    open_rows = taken == labels
    for broken, prediction in verdicts:
        for restart in range(len(broken)):
            hit = open_rows & broken[restart]
            taken[hit] = prediction[restart][hit]
            open_rows &= ~hit
    return taken


def confusion(labels: NDArray[Any], taken: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """How often each true class (row) is taken for each class (column)."""
    table = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(table, (labels, taken), 1)
    return table
