"""Accuracy against the size of the perturbation, and against the steps and restarts of the attack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from scaleproof.analysis.kept import Course, silent
from scaleproof.analysis.subject import Subject
from scaleproof.attacks.base import at_least
from scaleproof.attacks.pgd import PGD
from scaleproof.contract import Finding
from scaleproof.evaluation import Evaluation, Share
from scaleproof.evaluator import evaluate
from scaleproof.progress import Report
from scaleproof.store import MemoryStore, UnitStore
from scaleproof.threat import Threat

FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0)
STEPS = (1, 2, 5, 10, 20, 50)


@dataclass(frozen=True, kw_only=True)
class EpsPlan:
    """Budgets as multiples of eps; no attack (0) and the unbounded budget are always there."""

    factors: tuple[float, ...] = FACTORS
    steps: int = 20

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps)
        if not all(0 < factor < float("inf") for factor in self.factors):
            raise ValueError(f"factors must be finite and > 0, got {list(self.factors)}")

    def radii(self, threat: Threat, entries: int) -> list[float]:
        """The budgets above 0 in rising order; the last one holds every image."""
        most = threat.reach(entries)
        return sorted({threat.eps * factor for factor in self.factors if threat.eps * factor < most} | {most})


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """Numbers of steps to compare, and restarts of an attack with `restart_steps` steps."""

    steps: tuple[int, ...] = STEPS
    restarts: int = 5
    restart_steps: int = 10

    def __post_init__(self) -> None:
        if not self.steps:
            raise ValueError("steps must be at least one number, got none")
        at_least(1, steps=min(self.steps), restarts=self.restarts, restart_steps=self.restart_steps)


DEFAULT_EPS, DEFAULT_STEPS = EpsPlan(), StepPlan()


@dataclass(frozen=True, kw_only=True)
class Point:
    """The robust accuracy that one attack leaves at one place of a curve."""

    at: float
    robust: Share
    within: Share  # the same, also counting what was broken at smaller places

    def as_json(self) -> dict[str, object]:
        return {"at": self.at, "robust": self.robust.as_json(), "within": self.within.as_json()}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One attack along a curve."""

    attack: str
    label: str
    scale_invariant: bool
    points: tuple[Point, ...]

    def as_json(self) -> dict[str, object]:
        return {**vars(self), "points": [point.as_json() for point in self.points]}


@dataclass(frozen=True, kw_only=True)
class EpsCurve:
    """Accuracy from no perturbation to the unbounded budget."""

    plan: EpsPlan
    clean: Share
    lines: tuple[Line, ...]
    unbounded: float
    findings: tuple[Finding, ...]
    seconds: float

    def as_json(self) -> dict[str, object]:
        return {
            "plan": {"factors": list(self.plan.factors), "steps": self.plan.steps},
            "clean": self.clean.as_json(),
            "unbounded": self.unbounded,
            "lines": [line.as_json() for line in self.lines],
            "seconds": self.seconds,
        }


@dataclass(frozen=True, kw_only=True)
class StepCurve:
    """Accuracy against the number of steps, and against the number of restarts."""

    plan: StepPlan
    clean: Share
    steps: tuple[Line, ...]
    restarts: tuple[Line, ...]
    findings: tuple[Finding, ...]
    seconds: float

    def as_json(self) -> dict[str, object]:
        return {
            "plan": {**vars(self.plan), "steps": list(self.plan.steps)},
            "clean": self.clean.as_json(),
            "steps": [line.as_json() for line in self.steps],
            "restarts": [line.as_json() for line in self.restarts],
            "seconds": self.seconds,
        }


def accuracy_by_eps(
    subject: Subject,
    plan: EpsPlan = DEFAULT_EPS,
    *,
    store: UnitStore | None = None,
    progress: Report = silent,
) -> EpsCurve:
    """One evaluation a budget; the starts of an attack are the same at every budget, up to its size."""
    x, _ = subject.images.select(np.arange(1, dtype=np.int64))
    radii = plan.radii(subject.threat, prod(x.shape[1:]))
    attacks = {
        radius: subject.attacks(plan.steps, threat=replace(subject.threat, eps=radius)) for radius in radii
    }
    found = evaluations(subject, {f"eps-{radius!r}": attacks[radius] for radius in radii}, store, progress)
    first = found[f"eps-{radii[0]!r}"]
    return EpsCurve(
        plan=plan,
        clean=first.clean,
        lines=lines_of(radii, list(found.values())),
        unbounded=radii[-1],
        findings=findings_of(found),
        seconds=sum(evaluation.seconds for evaluation in found.values()),
    )


def accuracy_by_steps(
    subject: Subject,
    plan: StepPlan = DEFAULT_STEPS,
    *,
    store: UnitStore | None = None,
    progress: Report = silent,
) -> StepCurve:
    """One evaluation a number of steps, from the same starts; one more for all restarts."""
    numbers = sorted(set(plan.steps))
    wanted = {f"steps-{number}": subject.attacks(number) for number in numbers}
    wanted["restarts"] = subject.attacks(plan.restart_steps, restarts=plan.restarts)
    found = evaluations(subject, wanted, store, progress)
    repeated = found["restarts"]
    return StepCurve(
        plan=plan,
        clean=repeated.clean,
        steps=lines_of(numbers, [found[f"steps-{number}"] for number in numbers]),
        restarts=restart_lines(repeated, plan.restarts),
        findings=findings_of(found),
        seconds=sum(evaluation.seconds for evaluation in found.values()),
    )


def evaluations(
    subject: Subject, attacks: Mapping[str, Sequence[PGD]], store: UnitStore | None, progress: Report
) -> dict[str, Evaluation]:
    """One evaluation for each named list of attacks, each with its own part of the store."""
    kept = store or MemoryStore()
    shares = {name: sum((one.steps + 1) * one.restarts for one in some) for name, some in attacks.items()}
    course = Course(progress, shares)
    return {
        name: evaluate(
            subject.classifier,
            subject.images,
            some,
            mode="independent",
            seed=subject.seed,
            batch_size=subject.batch_size,
            speed=subject.speed,
            store=kept.part(name),
            progress=course.piece(name, spoken(name)),
            allow_train_mode=bool(subject.findings),
        )
        for name, some in attacks.items()
    }


def spoken(name: str) -> str:
    """The name of an evaluation for people: four digits of its number will do."""
    kind, _, number = name.partition("-")
    return f"{kind} {float(number):.4g}" if number else kind


def lines_of(places: Sequence[float], found: Sequence[Evaluation]) -> tuple[Line, ...]:
    """The verdicts of each attack along the places, alone and with those before."""
    lines = []
    for result in found[0].attacks:
        alive, points = found[0].clean_correct.copy(), []
        for place, evaluation in zip(places, found, strict=True):
            alive &= evaluation.survivors(result.name)
            within = Share(int(alive.sum()), evaluation.count)
            points.append(Point(at=place, robust=evaluation.robust(result.name), within=within))
        lines.append(line_of(result, points))
    return tuple(lines)


def restart_lines(evaluation: Evaluation, restarts: int) -> tuple[Line, ...]:
    """The worst case of each attack over its first restarts."""
    lines = []
    for result in evaluation.attacks:
        shares = [evaluation.robust(result.name, number) for number in range(1, restarts + 1)]
        points = [Point(at=at, robust=share, within=share) for at, share in enumerate(shares, start=1)]
        lines.append(line_of(result, points))
    return tuple(lines)


def line_of(result: Any, points: Sequence[Point]) -> Line:
    return Line(
        attack=result.name, label=result.label, scale_invariant=result.scale_invariant, points=tuple(points)
    )


def findings_of(found: Mapping[str, Evaluation]) -> tuple[Finding, ...]:
    """What the evaluations found, each once."""
    return tuple(dict.fromkeys(one for evaluation in found.values() for one in evaluation.findings))
