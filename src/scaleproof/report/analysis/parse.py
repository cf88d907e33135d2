"""Turn analysis.json and analysis.npz into records, or say which field breaks which rule."""

from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import numpy as np

from scaleproof.report.analysis.records import (
    Analysis,
    Classes,
    Cosines,
    EpsCurve,
    Line,
    Point,
    StepCurve,
    Surfaces,
    WeightSurface,
)
from scaleproof.report.arrays import REMEDY, take
from scaleproof.report.fields import Fields
from scaleproof.report.parse import parse_data, parse_model, parse_provenance, parse_threat
from scaleproof.report.records import Array

FILE = "analysis.npz"
KINDS = ("clean", "adversarial")
SERIES = ("clean_true", "clean_other", "adversarial_true", "adversarial_other")

Arrays = dict[str, Array]
Part = TypeVar("Part")


def parse_analysis(fields: Fields, arrays: Arrays) -> Analysis:
    """Read an analysis with its arrays."""
    parts = fields.child("parts")

    def part(name: str, parse: Callable[[Fields, Arrays], Part]) -> Part | None:
        return parse(parts.child(name), arrays) if name in parts.values else None

    analysis = Analysis(
        run=parse_provenance(fields.child("run")),
        model=parse_model(fields.child("model")),
        data=parse_data(fields.child("data")),
        threat=parse_threat(fields.child("threat")),
        count=fields.whole("count"),
        notes=fields.texts("notes"),
        surfaces=part("surfaces", parse_surfaces),
        weights=part("weights", parse_weights),
        cosines=part("cosines", parse_cosines),
        eps=part("eps", parse_eps),
        steps=part("steps", parse_steps),
        classes=part("classes", parse_classes),
    )
    if not parts.values:
        fields.refuse("parts", "an object with at least one part", {})
    return analysis


def rising(fields: Fields, key: str, least: int = 2) -> tuple[float, ...]:
    """Return a field that must be a list of rising numbers."""
    values = fields.numbers(key)
    if len(values) < least or any(a >= b for a, b in pairwise(values)):
        fields.refuse(key, f"a list of at least {least} rising numbers", list(values))
    return values


def wholes(fields: Fields, key: str) -> tuple[int, ...]:
    """Return a field that must be a list of whole numbers, zero or more."""
    values = fields.items(key)
    found = tuple(v for v in values if isinstance(v, int) and not isinstance(v, bool) and v >= 0)
    return found if len(found) == len(values) else fields.refuse(key, "a list of whole numbers", values)


def parse_surfaces(fields: Fields, arrays: Arrays) -> Surfaces:
    """Read the losses around images."""
    coordinates, rows, labels = (
        rising(fields, "coordinates", 3),
        wholes(fields, "rows"),
        wholes(fields, "labels"),
    )
    if not rows or len(labels) != len(rows):
        fields.refuse("labels", f"as long as rows ({len(rows)}), and not empty", list(labels))
    shape = (len(rows), len(coordinates), len(coordinates))
    objectives = fields.texts("objectives")
    if not objectives:
        fields.refuse("objectives", "a list of at least one objective", [])
    return Surfaces(
        steps=fields.child("plan").whole("steps"),
        coordinates=coordinates,
        rows=rows,
        labels=labels,
        losses={name: take(arrays, FILE, f"surfaces__{name}", shape) for name in objectives},
        margin=take(arrays, FILE, "surfaces__margin", shape),
    )


def parse_weights(fields: Fields, arrays: Arrays) -> WeightSurface:
    """Read the losses around the weights."""
    amounts = rising(fields, "amounts", 3)
    shape = (None, len(amounts))
    return WeightSurface(
        steps=fields.child("plan").whole("steps"),
        amounts=amounts,
        count=fields.whole("count"),
        loss={kind: take(arrays, FILE, f"weights__loss_{kind}", shape) for kind in KINDS},
        accuracy={kind: take(arrays, FILE, f"weights__accuracy_{kind}", shape) for kind in KINDS},
    )


def parse_cosines(fields: Fields, _: Arrays) -> Cosines:
    """Read the histograms of cosines."""
    edges, count = rising(fields, "edges"), fields.whole("count")
    inner, means, mismatch = fields.child("counts"), fields.child("means"), fields.child("mismatch")
    counts = {name: wholes(inner, name) for name in SERIES}
    for name, values in counts.items():
        if len(values) != len(edges) - 1 or sum(values) != count:
            inner.refuse(name, f"{len(edges) - 1} numbers that add up to count = {count}", list(values))
    every = fields.child("all_classes") if "all_classes" in fields.values else None
    return Cosines(
        steps=fields.child("plan").whole("steps"),
        edges=edges,
        count=count,
        counts=counts,
        all_classes={} if every is None else {kind: bins(every, kind, len(edges) - 1) for kind in KINDS},
        means={name: means.number(name) for name in SERIES},
        mismatch={kind: mismatch.fraction(kind) for kind in KINDS},
    )


def bins(fields: Fields, key: str, length: int) -> tuple[int, ...]:
    """Return a field that must be one count for each bin."""
    values = wholes(fields, key)
    return values if len(values) == length else fields.refuse(key, f"{length} numbers", list(values))


def parse_line(fields: Fields) -> Line:
    """Read one attack along a curve."""
    points = tuple(
        Point(at=point.number("at"), robust=point.share("robust"), within=point.share("within"))
        for point in fields.children("points")
    )
    places = [point.at for point in points]
    if not points or places != sorted(set(places)):
        fields.refuse("points", "a list of at least one point at rising places", places)
    for position, point in enumerate(points):
        if point.within.correct > point.robust.correct:
            fields.refuse(f"points[{position}].within", "at most robust", point.within.correct)
    return Line(
        attack=fields.text("attack"),
        label=fields.text("label"),
        scale_invariant=fields.flag("scale_invariant"),
        points=points,
    )


def parse_lines(fields: Fields, key: str) -> tuple[Line, ...]:
    """Read the attacks of a curve, all at the same places."""
    lines = tuple(parse_line(line) for line in fields.children(key))
    if len({tuple(point.at for point in line.points) for line in lines}) != 1:
        fields.refuse(key, "a list of at least one line, all at the same places", len(lines))
    return lines


def parse_eps(fields: Fields, _: Arrays) -> EpsCurve:
    """Read accuracy against the size of the perturbation."""
    return EpsCurve(
        steps=fields.child("plan").whole("steps"),
        clean=fields.share("clean"),
        unbounded=fields.number("unbounded"),
        lines=parse_lines(fields, "lines"),
    )


def parse_steps(fields: Fields, _: Arrays) -> StepCurve:
    """Read accuracy against steps and restarts."""
    return StepCurve(
        restart_steps=fields.child("plan").whole("restart_steps"),
        clean=fields.share("clean"),
        steps=parse_lines(fields, "steps"),
        restarts=parse_lines(fields, "restarts"),
    )


def parse_classes(fields: Fields, arrays: Arrays) -> Classes:
    """Read which class becomes which."""
    name, count = "classes__confusion", fields.whole("count")
    table = take(arrays, FILE, name, (None, None))
    table = take(arrays, FILE, name, (len(table), len(table)))
    correct = take(arrays, FILE, "classes__clean_correct", (len(table),))
    whole = table.dtype.kind in "iu" and correct.dtype.kind in "iu"
    if not whole or (table < 0).any() or int(table.sum()) != count:
        raise ValueError(
            f"{FILE}: array {name!r} must count {count} images, as analysis.json states, but counts "
            f"{table.sum()}; {REMEDY}"
        )
    if (correct > table.sum(axis=1)).any() or (correct < np.diagonal(table)).any():
        raise ValueError(
            f"{FILE}: array 'classes__clean_correct' must lie between the robust images and all images of "
            f"each class, but is {correct.tolist()[:10]}; {REMEDY}"
        )
    return Classes(
        count=count,
        attacks=fields.texts("attacks"),
        source=fields.text("source"),
        confusion=table,
        clean_correct=correct,
    )
