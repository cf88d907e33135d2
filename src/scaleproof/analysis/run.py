"""All parts of an analysis together: what is asked for is done, what cannot be done is noted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import NDArray

from scaleproof.analysis.classes import DEFAULT_CLASSES, Classes, ClassPlan, class_robustness
from scaleproof.analysis.cosines import DEFAULT_COSINES, CosinePlan, Cosines, cosine_histograms
from scaleproof.analysis.curves import (
    DEFAULT_EPS,
    DEFAULT_STEPS,
    EpsCurve,
    EpsPlan,
    StepCurve,
    StepPlan,
    accuracy_by_eps,
    accuracy_by_steps,
)
from scaleproof.analysis.kept import Course, silent
from scaleproof.analysis.subject import Subject
from scaleproof.analysis.surfaces import DEFAULT_SURFACES, SurfacePlan, Surfaces, example_surfaces
from scaleproof.analysis.weights import (
    DEFAULT_WEIGHTS,
    WeightPlan,
    WeightSurface,
    movable_weights,
    weight_surface,
)
from scaleproof.images import AnyImages
from scaleproof.look import randomness
from scaleproof.models.classifier import AnyModel
from scaleproof.oracle import Oracle
from scaleproof.progress import Report
from scaleproof.speed import PLAIN, Speed
from scaleproof.store import MemoryStore, UnitStore
from scaleproof.threat import DEFAULT_THREAT, Threat

PARTS = ("surfaces", "weights", "cosines", "eps", "steps", "classes")
Part = Surfaces | WeightSurface | Cosines | EpsCurve | StepCurve | Classes


def checked_parts(parts: Sequence[str]) -> None:
    """Refuse parts that do not exist, or none at all."""
    wrong = [part for part in parts if part not in PARTS]
    if wrong or not parts or len(set(parts)) != len(parts):
        raise ValueError(
            f"parts must be some of {', '.join(PARTS)}, each once, got {','.join(parts) or 'none'}"
        )


def plain(settings: Mapping[str, object]) -> dict[str, object]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which parts, and how each is done."""

    parts: tuple[str, ...] = PARTS
    surfaces: SurfacePlan = DEFAULT_SURFACES
    weights: WeightPlan = DEFAULT_WEIGHTS
    cosines: CosinePlan = DEFAULT_COSINES
    eps: EpsPlan = DEFAULT_EPS
    steps: StepPlan = DEFAULT_STEPS
    classes: ClassPlan = DEFAULT_CLASSES

    def __post_init__(self) -> None:
        checked_parts(self.parts)

    def as_json(self) -> dict[str, object]:
        """The settings of the parts that are asked for, as plain data."""
        return {part: plain(vars(getattr(self, part))) for part in self.parts}


DEFAULT_PLAN = Plan()


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Analysis:
    """The parts that were done, by name, and notes on what a reader should know."""

    parts: Mapping[str, Part]
    notes: tuple[str, ...]
    head: str | None
    count: int
    seconds: float = 0.0

    def __repr__(self) -> str:
        return f"Analysis({', '.join(self.parts)}, n = {self.count}, {self.seconds:.1f} s)"

    def as_json(self) -> dict[str, object]:
        return {
            "count": self.count,
            "notes": list(self.notes),
            "parts": {name: part.as_json() for name, part in self.parts.items()},
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `analysis.npz` keeps."""
        return {
            name: values
            for part in self.parts.values()
            if not isinstance(part, EpsCurve | StepCurve)
            for name, values in part.arrays().items()
        }


def analyse(
    model: AnyModel,
    images: AnyImages,
    plan: Plan = DEFAULT_PLAN,
    *,
    threat: Threat = DEFAULT_THREAT,
    seed: int = 0,
    batch_size: int | None = None,
    speed: Speed | None = None,
    store: UnitStore | None = None,
    progress: Report | None = None,
    allow_train_mode: bool = False,
    classes: Classes | None = None,
) -> Analysis:
    """Every part of a plan on one model and one set of images; `classes` are taken as given where they are known."""
    subject = Subject.of(
        model,
        images,
        threat=threat,
        seed=seed,
        batch_size=batch_size,
        speed=speed,
        allow_train_mode=allow_train_mode,
    )
    missing = left_out(subject, plan)
    wanted = [part for part in plan.parts if part not in missing]
    kept, course = store or MemoryStore(), Course(progress or silent, shares(subject, plan, wanted))
    parts: dict[str, Part] = {}
    for part in wanted:
        if part == "classes" and classes is not None:
            parts[part] = classes
        else:
            parts[part] = work_of(subject, plan, part)(store=kept.part(part), progress=course.piece(part))
    return Analysis(
        parts=parts,
        notes=(*missing.values(), *findings_in_words(subject, parts)),
        head=subject.classifier.head_name,
        count=len(subject.images),
        seconds=sum(part.seconds for part in parts.values()),
    )


def work_of(subject: Subject, plan: Plan, part: str) -> Callable[..., Part]:
    """The function that does a part."""
    functions: dict[str, Callable[..., Part]] = {
        "surfaces": partial(example_surfaces, subject, plan.surfaces),
        "weights": partial(weight_surface, subject, plan.weights),
        "cosines": partial(cosine_histograms, subject, plan.cosines),
        "eps": partial(accuracy_by_eps, subject, plan.eps),
        "steps": partial(accuracy_by_steps, subject, plan.steps),
        "classes": partial(class_robustness, subject, plan.classes),
    }
    return functions[part]


def left_out(subject: Subject, plan: Plan) -> dict[str, str]:
    """The parts that this model does not allow, and why."""
    missing: dict[str, str] = {}
    if "cosines" in plan.parts and subject.doubt is not None:
        missing["cosines"] = f"Cosines are left out: {subject.doubt}"
    elif subject.doubt is not None:
        missing["cosine objectives"] = f"The cosine objective is left out: {subject.doubt}"
    if "weights" in plan.parts and not movable_weights(subject.classifier.net):
        missing["weights"] = "The weight loss surface is left out: no weight has two or more dimensions"
    return missing


def findings_in_words(subject: Subject, parts: Mapping[str, Part]) -> tuple[str, ...]:
    """What the evaluations and the first look found, each once."""
    found = list(subject.findings)
    with subject.at_rest():
        found += randomness(Oracle(subject.classifier, speed=PLAIN), subject.images)
    for part in parts.values():
        if isinstance(part, EpsCurve | StepCurve | Classes):
            found += part.findings
    return tuple(dict.fromkeys(one.meaning for one in found))


def shares(subject: Subject, plan: Plan, wanted: Sequence[str]) -> dict[str, int]:
    """Roughly how many images each part passes through the model."""
    count, attacks = len(subject.images), len(subject.attacks(1))
    weights = plan.weights.directions * plan.weights.points * min(count, plan.weights.images)
    steps = sum(plan.steps.steps) + plan.steps.restarts * plan.steps.restart_steps
    passes = {
        "surfaces": min(count, plan.surfaces.images) * plan.surfaces.points**2 // 3,
        "weights": weights * (plan.weights.steps + 1),
        "cosines": count * (plan.cosines.steps + 1),
        "eps": attacks * count * plan.eps.steps * (len(plan.eps.factors) + 1),
        "steps": attacks * count * steps,
        "classes": attacks * count * plan.classes.steps * plan.classes.restarts,
    }
    return {part: passes[part] for part in wanted}
