"""Trainings over several seeds side by side: mean differences of pairs with one seed, and how sure they are."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from scaleproof.files import read_json
from scaleproof.report import words
from scaleproof.report.compare.names import labels
from scaleproof.report.compare.tables import points
from scaleproof.report.fields import Fields
from scaleproof.report.records import Threat
from scaleproof.report.sections import Document, Section
from scaleproof.report.tables import Row, Table, columns
from scaleproof.statistics import student_t

FILE = "seeds.json"
WORST = "worst case"
TITLES = {"selected": "Weights selected on held-out images", "last": "Weights of the last epoch"}
MEANING = (
    "The interval says where the mean difference of ever more trainings would lie, on these test images; it does not "
    "cover the choice of the images.",
    "Robust accuracy is an upper bound: an attack shows that an image can be broken, never that it cannot.",
)


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """What `train --seeds` left in a folder: for each set of weights and attack the accuracies by seed."""

    label: str
    method: str
    threat: Threat
    count: int
    images: str | None  # the digest of the test images, where a run of them is at hand
    accuracies: Mapping[str, Mapping[str, Mapping[int, float]]]
    one_answer: Mapping[str, Collection[int]]


@dataclass(frozen=True, kw_only=True)
class Gap:
    """The mean of differences by seed; without an interval where all are the same."""

    value: float
    interval: tuple[float, float] | None
    pairs: int


def of_seeds(folders: Sequence[Path]) -> bool:
    """Tell whether all folders hold several seeds of a training."""
    return all((folder / FILE).is_file() for folder in folders)


def load_seeds(folders: Sequence[Path]) -> tuple[Seeds, ...]:
    """Read folders that can be compared: under one threat, on as many images, with two seeds in common."""
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError("each folder of seeds must be another one, got one of them twice: leave it out")
    names = labels(folders, [folder.resolve().name for folder in folders])
    found = tuple(read_seeds(folder / FILE, name) for folder, name in zip(folders, names, strict=True))
    first = found[0]
    for other in found[1:]:
        shared = seeds_of(first) & seeds_of(other)
        if len(shared) < 2:
            raise ValueError(
                f"trainings over seeds need two seeds in common, {first.label} has {told(seeds_of(first))} and "
                f"{other.label} {told(seeds_of(other))}: train those that are missing, with --seeds"
            )
        strangers = None not in (first.images, other.images) and first.images != other.images
        if strangers or (first.threat, first.count) != (other.threat, other.count):
            kind = "other images" if strangers else "images"
            facts = [f"{words.threat_text(one.threat)}, {one.count} {kind}" for one in (first, other)]
            raise ValueError(
                f"trainings over seeds must be measured alike, {first.label} was by {facts[0]} and {other.label} by "
                f"{facts[1]}: compare their seeds one by one, which says what differs"
            )
        attacks = [", ".join(one.accuracies["selected"]) for one in (first, other)]
        if attacks[0] != attacks[1]:
            raise ValueError(
                f"trainings over seeds must be measured by the same attacks, {first.label} has {attacks[0]} and "
                f"{other.label} {attacks[1]}: `scaleproof evaluate` their seeds alike, and compare those"
            )
    return found


def read_seeds(path: Path, label: str) -> Seeds:
    """Read what several seeds of a training gave together."""
    fields = Fields(file=str(path), place="", values=read_json(path))
    threat, results = fields.child("threat"), fields.child("results")
    seeds = [run.whole("seed") for run in fields.children("runs")]
    accuracies: dict[str, dict[str, dict[int, float]]] = {}
    for kind in TITLES:
        for column in results.children(kind):
            values = column.numbers("accuracies")
            if len(values) != len(seeds):
                column.refuse("accuracies", f"one number a seed, {len(seeds)}", list(values))
            by_seed = dict(zip(seeds, values, strict=True))
            accuracies.setdefault(kind, {})[column.text("label")] = by_seed
        if WORST not in accuracies.get(kind, {}):
            results.refuse(kind, f"columns, {WORST} among them", sorted(accuracies.get(kind, {})))
    alike = fields.child("one_answer") if "one_answer" in fields.values else None
    return Seeds(
        label=label,
        method=fields.text("label"),
        threat=Threat(norm=threat.text("norm"), eps=threat.number("eps")),
        count=fields.whole("count"),
        images=images_of([path.parent / run.text("folder") for run in fields.children("runs")]),
        accuracies=accuracies,
        one_answer={kind: tuple(map(int, alike.numbers(kind))) if alike else () for kind in TITLES},
    )


def images_of(runs: Sequence[Path]) -> str | None:
    """Find the digest of the test images in the first of these runs that is there."""
    for training in (run / "training.json" for run in runs):
        if training.is_file():
            return (
                Fields(file=str(training), place="", values=read_json(training)).child("test").text("sha256")
            )
    return None


def seeds_of(one: Seeds) -> set[int]:
    """Tell which seeds there are."""
    return set(one.accuracies["selected"][WORST])


def told(seeds: Collection[int]) -> str:
    """Print seeds in a row."""
    return ", ".join(map(str, sorted(seeds)))


def gap(before: Mapping[int, float], after: Mapping[int, float]) -> Gap:
    """Take the mean of the differences by seed, and its 95% interval by Student's t."""
    pairs = [after[seed] - before[seed] for seed in sorted(before.keys() & after.keys())]
    value, spread = fmean(pairs), stdev(pairs)
    if spread < 1e-12:
        return Gap(value=value, interval=None, pairs=len(pairs))
    error = student_t(len(pairs) - 1) * spread / sqrt(len(pairs))
    return Gap(value=value, interval=(value - error, value + error), pairs=len(pairs))


def seeds_document(found: Sequence[Seeds]) -> Document:
    """Build the comparison of trainings over seeds with the first of them."""
    first, *others = found
    headline, detail = claim(first, others)
    return Document(
        title="Comparison over seeds",
        subject="; ".join(f"{one.label}: {one.method}, seeds {told(seeds_of(one))}" for one in found),
        headline=headline,
        detail=detail,
        meaning=MEANING,
        sections=tuple(
            Section(
                identifier=kind, title=title, tables=tuple(seeds_table(first, one, kind) for one in others)
            )
            for kind, title in TITLES.items()
        ),
        alarm=alarm(found),
    )


def claim(first: Seeds, others: Sequence[Seeds]) -> tuple[str, str]:
    """Print which of two is more accurate in the worst case, by how much; of more, how many there are."""
    if len(others) > 1:
        return f"{len(others) + 1} trainings over seeds", f"against {first.label}, n = {first.count}"
    other = others[0]
    found = gap(*(one.accuracies["selected"][WORST] for one in (first, other)))
    size = f"{abs(100 * found.value):.{words.decimals(first.count)}f} points"
    side = "above" if found.value > 0 else "below"
    alike = [one.label for one in (first, other) if one.one_answer["selected"]]
    facts = f"{points(found.value, first.count)} points, 95% interval {spread_text(found, first.count)}"
    if alike:
        return (
            f"One answer for everything in {' and '.join(alike)}: the difference of {other.label} to {first.label} "
            "says little"
        ), f"{facts}, n = {first.count}"
    return (
        f"{other.label} lies {size} {side} {first.label} in the worst case"
        if is_shown(found)
        else f"No difference shown between {other.label} and {first.label} in the worst case"
    ), f"{facts}, {words.plural(found.pairs, 'pair')} of one seed each, n = {first.count}"


def is_shown(found: Gap) -> bool:
    """Tell whether the interval leaves out zero."""
    return found.interval is not None and (found.interval[0] > 0 or found.interval[1] < 0)


def spread_text(found: Gap, count: int) -> str:
    """Print the interval, or that there is none."""
    if found.interval is None:
        return "unknown (all pairs differ alike)"
    return " to ".join(points(end, count) for end in found.interval)


def alarm(found: Sequence[Seeds]) -> str:
    """Name the seeds whose selected weights answer one class for everything."""
    alike = [
        f"{one.label} (seeds {told(one.one_answer['selected'])})"
        for one in found
        if one.one_answer["selected"]
    ]
    return (
        f"One answer for everything in {'; '.join(alike)}: such weights tell nothing apart." if alike else ""
    )


def seeds_table(first: Seeds, other: Seeds, kind: str) -> Table:
    """Build the table of two trainings: what each attack leaves, and the difference."""
    here, there = first.accuracies[kind], other.accuracies[kind]
    rows = []
    for label in here:
        if label in there:
            found = gap(here[label], there[label])
            cells = (mean_text(here[label], first.count), mean_text(there[label], other.count))
            mean = points(found.value, first.count)
            spread = words.DASH if found.interval is None else spread_text(found, first.count)
            rows.append(Row(cells=(label, *cells, mean, spread), strong=label == WORST))
    pairs = told(seeds_of(first) & seeds_of(other))
    return Table(
        caption=f"{TITLES[kind]}: accuracy in %, mean ± deviation over seeds, and points to {first.label}",
        columns=columns("Attack", first.label, other.label, "Points", "95% interval"),
        rows=tuple(rows),
        notes=(f"Differences are paired by the seeds {pairs}; n = {first.count} test images.",),
    )


def mean_text(values: Mapping[int, float], count: int) -> str:
    """Print the mean and the deviation (n - 1) over seeds."""
    places = words.decimals(count)
    return f"{100 * fmean(values.values()):.{places}f} ± {100 * stdev(values.values()):.{places}f}"
