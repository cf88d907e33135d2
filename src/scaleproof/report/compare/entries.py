"""The runs of a comparison: their names, their numbers, and whether two of them saw the same images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scaleproof.report import words
from scaleproof.report.checks import one_answer
from scaleproof.report.compare.names import labels, shortened
from scaleproof.report.compare.statistics import Difference, paired_difference, unpaired_difference
from scaleproof.report.folder import load_run, survivors
from scaleproof.report.records import Evaluation, Flags, Run, Share

CLEAN, WORST = "clean", "worst case"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One run of a comparison under the name that sets it apart from the others, and a short one for tables."""

    label: str
    short: str
    folder: Path
    run: Run

    @property
    def evaluation(self) -> Evaluation | None:
        """Return the evaluation: that of the selected weights for a training, none for a sweep."""
        return self.run.training.selected.evaluation if self.run.training else self.run.evaluation

    @property
    def trusted(self) -> bool:
        """Tell whether no check on record failed."""
        return self.evaluation is None or words.trusted(self.evaluation)

    @property
    def one_answer(self) -> str:
        """Say that the network answers one class for everything, or nothing where it does not."""
        return one_answer(self.evaluation) if self.evaluation else ""

    @property
    def sound(self) -> bool:
        """Tell whether nothing on record takes the worth from its numbers."""
        return self.trusted and not self.one_answer

    @property
    def marked(self) -> str:
        """Return the short name, with the warnings that belong to it."""
        doubts = (("unreliable", not self.trusted), ("one answer", bool(self.one_answer)))
        said = ", ".join(doubt for doubt, holds in doubts if holds)
        return f"{self.short} ({said})" if said else self.short


def load_entries(folders: Sequence[Path]) -> tuple[Entry, ...]:
    """Read the run folders of a comparison."""
    paths = [Path(folder) for folder in folders]
    if len(paths) < 2:
        raise ValueError(f"a comparison needs at least two run folders, got {len(paths)}: name another one")
    if len({path.resolve() for path in paths}) != len(paths):
        raise ValueError(f"run folders must differ, got {', '.join(map(str, paths))}: name each once")
    runs = [load_run(path) for path in paths]
    names = labels(paths, [run.run.name for run in runs])
    return tuple(
        Entry(label=label, short=short, folder=path, run=run)
        for label, short, path, run in zip(names, shortened(names), paths, runs, strict=True)
    )


def measures(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """List what was measured, by key and label: clean, each attack of any run, and the worst case."""
    attacks: dict[str, str] = {}
    for entry in entries:
        for attack in entry.evaluation.attacks if entry.evaluation else ():
            attacks.setdefault(attack.name, attack.label)
    return [(CLEAN, "Clean"), *attacks.items(), (WORST, "Worst case")]


def share_of(entry: Entry, measure: str) -> Share | None:
    """Return the share of images that are right under a measure, where the run has it."""
    evaluation = entry.evaluation
    if evaluation is None:
        return None
    known = {CLEAN: evaluation.clean, WORST: evaluation.worst_case}
    return (known | {attack.name: attack.robust for attack in evaluation.attacks}).get(measure)


def right(entry: Entry, measure: str) -> Flags:
    """Tell for each image whether it is right under a measure; in a cascade, after all attacks up to that one."""
    verdicts, evaluation = entry.run.verdicts, entry.evaluation
    assert verdicts is not None
    assert evaluation is not None
    if measure == CLEAN:
        return verdicts.clean_correct
    if measure == WORST:
        return np.asarray(survivors(verdicts), dtype=np.bool_)
    names = [attack.name for attack in evaluation.attacks]
    counting = names[: names.index(measure) + 1] if evaluation.mode == "cascade" else [measure]
    alive = verdicts.clean_correct.copy()
    for name in counting:
        alive &= ~verdicts.broken[name].any(axis=0)
    return alive


def other_images(first: Entry, other: Entry) -> str:
    """Say that two runs saw different images, with the names of both sets, or nothing where this is not known.

    More or fewer images of one set are no others: a run may have been limited to the first of them. Equal digests are
    the same images, whatever the sets are called.
    """
    one, two = first.evaluation, other.evaluation
    if one is None or two is None or one.data.sha256 == two.data.sha256:
        return ""
    names = f"{words.data_text(one.data)}, against {words.data_text(two.data)}"
    if (one.data.name, one.data.split) != (two.data.name, two.data.split):
        return f"they were measured on different data ({names})"
    if one.worst_case.count == two.worst_case.count:
        return f"the images are not the same ({names}; their digests differ)"
    return ""


def other_threats(first: Entry, other: Entry) -> str:
    """Say which two threats two runs faced, or nothing where it was the same one."""
    one, two = first.evaluation, other.evaluation
    if one is None or two is None or one.threat == two.threat:
        return ""
    return f"{words.threat_text(one.threat)} against {words.threat_text(two.threat)}"


def unlike(first: Entry, other: Entry) -> str:
    """Name in two words what keeps the numbers of two runs from being compared, or nothing where nothing does."""
    if other_images(first, other):
        return "other images"
    return "other threat" if other_threats(first, other) else ""


def obstacle(first: Entry, other: Entry) -> str:
    """Say why two runs cannot be compared image by image, or nothing where they can."""
    for entry in (first, other):
        if entry.evaluation is None:
            return f"{entry.label} is a sweep, which keeps no verdicts on single images"
    if other_images(first, other):
        return other_images(first, other)
    for entry in (first, other):
        if entry.run.verdicts is None:
            return f"{entry.label} has no file of verdicts on single images"
    one, two = first.evaluation, other.evaluation
    assert one is not None
    assert two is not None
    if one.worst_case.count != two.worst_case.count:
        counts = f"{one.worst_case.count} against {two.worst_case.count}"
        return f"they have different numbers of images ({counts})"
    assert first.run.verdicts is not None
    assert other.run.verdicts is not None
    if not np.array_equal(first.run.verdicts.labels, other.run.verdicts.labels):
        return "the labels of the images differ"
    return ""


def difference(first: Entry, other: Entry, measure: str) -> Difference | None:
    """Compare two runs under one measure, image by image where they saw the same ones."""
    one, two = share_of(first, measure), share_of(other, measure)
    if one is None or two is None:
        return None
    if obstacle(first, other):
        return unpaired_difference(one, two)
    return paired_difference(right(first, measure), right(other, measure))


def caveats(first: Entry, other: Entry) -> list[str]:
    """Say what else than images and threat makes the difference of two runs hard to read."""
    one, two = first.evaluation, other.evaluation
    if one is None or two is None:
        return []
    found = []
    if attacks_text(one) != attacks_text(two):
        found.append(
            f"{first.label} was attacked by {attacks_text(one)}, {other.label} by {attacks_text(two)}: a "
            "difference of the worst cases may come from the attacks alone."
        )
    elif one.mode != two.mode:
        found.append(
            f"{first.label} ran its attacks as {one.mode}, {other.label} as {two.mode}: lines of single "
            "attacks do not compare."
        )
    changed = [a.label for a, b in zip(one.attacks, two.attacks, strict=False) if a.settings != b.settings]
    if changed and attacks_text(one) == attacks_text(two):
        found.append(f"Settings of {', '.join(changed)} differ between {first.label} and {other.label}.")
    return found


def attacks_text(evaluation: Evaluation) -> str:
    """Name the attacks of an evaluation."""
    return ", ".join(attack.label for attack in evaluation.attacks)
