"""The tables of a comparison, before any markup."""

import re
from collections.abc import Sequence

import numpy as np

from scaleproof.report import words
from scaleproof.report.compare.entries import (
    CLEAN,
    WORST,
    Entry,
    difference,
    measures,
    obstacle,
    other_images,
    other_threats,
    right,
    share_of,
    unlike,
)
from scaleproof.report.compare.statistics import Difference
from scaleproof.report.sections import attack_pairs, run_pairs
from scaleproof.report.tables import Row, Table, columns, flatten

MOST_LISTED = 15


def runs_table(entries: Sequence[Entry]) -> Table:
    """Build the table of measured runs: clean, under each attack, in the worst case, and against the first."""
    kinds = measures(entries)
    heads = (*(label for _, label in kinds), "95% interval", "Points to first", "n")
    return Table(
        caption="Accuracy of each run",
        columns=columns("Run", *heads),
        rows=tuple(run_row(entries[0], entry, [key for key, _ in kinds]) for entry in entries),
        notes=(
            "Robust accuracy is an upper bound: a stronger attack can only lower it.",
            *left_notes(entries),
        ),
    )


def left_notes(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Say of which runs the columns of attacks are what a cascade left, where there are any."""
    measured = [(entry.short, entry.evaluation) for entry in entries if entry.evaluation is not None]
    names = [label for label, one in measured if one.mode == "cascade" and len(one.attacks) > 1]
    if not names:
        return ()
    return (
        f"Cascade ({', '.join(names)}): the number of an attack is left by this attack and those before it.",
    )


def run_row(first: Entry, entry: Entry, keys: Sequence[str]) -> Row:
    """Build the line of one run."""
    shares = [share_of(entry, key) for key in keys]
    worst = shares[-1]
    assert worst is not None
    against = None if entry is first or unlike(first, entry) else difference(first, entry, WORST)
    return Row(
        cells=(
            entry.marked,
            *(words.DASH if share is None else words.share_percent(share) for share in shares),
            words.interval(worst, "–"),
            words.DASH if against is None else points(against.value, worst.count),
            words.whole(worst.count),
        ),
        mark="" if entry.sound else "unreliable",
    )


def summary_table(entries: Sequence[Entry]) -> Table:
    """Build the short table for a terminal: clean, worst case, and its difference to the first run."""
    first = next((entry for entry in entries if entry.evaluation is not None), entries[0])
    heads = ("Clean", "Worst", "Points", "95% interval", "p")
    return Table(
        caption=f"Accuracy in %, and points to {first.short}",
        columns=columns("Run", *heads),
        rows=tuple(Row(cells=(entry.marked, *summary_cells(first, entry))) for entry in entries),
    )


def summary_cells(first: Entry, entry: Entry) -> tuple[str, ...]:
    """Print the numbers of one run for the short table."""
    clean, worst = share_of(entry, CLEAN), share_of(entry, WORST)
    known = tuple(words.DASH if one is None else words.share_percent(one) for one in (clean, worst))
    found = None if entry is first else difference(first, entry, WORST)
    if found is None or worst is None:
        return (*known, *[words.DASH] * 3)
    if unlike(first, entry):
        return (*known, words.DASH, words.DASH, unlike(first, entry))
    p = p_text(found.p) if found.paired else "unpaired"
    return (*known, points(found.value, worst.count), interval_text(found, worst.count), p)


def points(fraction: float, count: int) -> str:
    """Print a difference in percentage points with its sign."""
    text = f"{100 * fraction:+.{words.decimals(count)}f}"
    return text.lstrip("+-") if float(text) == 0 else text


def interval_text(found: Difference, count: int) -> str:
    """Print the interval of a difference in points."""
    return " to ".join(points(end, count) for end in found.interval)


def p_text(p: float | None) -> str:
    """Print a p-value, or a dash where there is none."""
    if p is None:
        return words.DASH
    return "<0.0001" if p < 1e-4 else f"{p:.2g}" if p < 0.01 else f"{p:.3f}"


def differences_table(first: Entry, entry: Entry) -> Table:
    """Build the table of differences of one run to the first, measure by measure."""
    mark = "" if entry.sound and first.sound else "unreliable"
    rows = []
    for key, label in measures([first, entry]):
        found, share, base = difference(first, entry, key), share_of(entry, key), share_of(first, key)
        if found is not None and share is not None and base is not None:
            cells = (
                label,
                words.share_percent(base),
                words.share_percent(share),
                points(found.value, share.count),
                interval_text(found, share.count),
                p_text(found.p),
                words.DASH if found.lost is None else words.whole(found.lost),
                words.DASH if found.gained is None else words.whole(found.gained),
            )
            rows.append(Row(cells=cells, strong=key == WORST, mark=mark if key == WORST else ""))
    names = first.marked, entry.marked
    numbers = ("Difference, points", "95% interval", "McNemar p")
    paired = not obstacle(first, entry)
    return Table(
        caption=f"{entry.short} against {first.short}, {'paired' if paired else 'unpaired'}",
        columns=columns("Measure", *names, *numbers, "Right only in the first", "Right only here"),
        rows=tuple(rows),
        notes=(
            PAIRED if paired else STRANGE if other_images(first, entry) else UNPAIRED,
            *([THREATS] if other_threats(first, entry) else []),
            COVERED,
            *left_notes([first, entry]),
        ),
    )


PAIRED = (
    "Both runs saw the same images: interval by Tango’s score method, p by McNemar’s exact two-sided test on the "
    "images whose verdict differs. A difference is shown where the interval leaves out zero and p is below 0.05."
)
UNPAIRED = (
    "The images are not known to be the same: interval by Newcombe’s method 10 from two Wilson intervals, wider "
    "because it cannot use pairs."
)
STRANGE = (
    "The images are not the same, so a difference may be one of the images as well as one of the models: interval by "
    "Newcombe’s method 10 from two Wilson intervals."
)
THREATS = (
    "The threats are not the same, so a difference may be one of the threats as well as one of the models."
)
COVERED = (
    "Intervals and p-values cover the choice of images, not the seeds of training nor the weakness of attacks. "
    "They are not corrected for the number of comparisons."
)


def agreement_table(first: Entry, others: Sequence[Entry]) -> Table:
    """Build the table of how often two runs agree on an image in the worst case."""
    rows = []
    for entry in others:
        one, two = right(first, WORST), right(entry, WORST)
        parts = (one & two, ~one & two, one & ~two, ~one & ~two)
        counts = [int(part.sum()) for part in parts]
        same = words.share_of(counts[0] + counts[3], len(one))
        mark = "" if entry.sound and first.sound else "unreliable"
        rows.append(
            Row(
                cells=(
                    entry.marked,
                    words.share_percent(same),
                    words.interval(same, "–"),
                    *map(words.whole, counts),
                ),
                mark=mark,
            )
        )
    heads = ("Right in both", "Wrong only in the first", "Wrong only here", "Wrong in both")
    return Table(
        caption=f"Agreement with {first.short}, image by image in the worst case",
        columns=columns("Run", "Same verdict", "95% interval", *heads),
        rows=tuple(rows),
        notes=(f"n = {len(right(first, WORST))}; the first run is {first.short}.",),
    )


def disputed_table(first: Entry, others: Sequence[Entry]) -> Table:
    """Build the table of the images on which two runs disagree, the first few by number."""
    rows = []
    for entry in others:
        one, two = right(first, WORST), right(entry, WORST)
        for label, flags in (
            (f"Wrong only in {first.short}", ~one & two),
            (f"Wrong only in {entry.short}", one & ~two),
        ):
            rows.append(Row(cells=(label, listed(np.flatnonzero(flags).tolist()))))
    heads = columns("Which", "Images", texts=2)
    return Table(caption="Images on which the verdicts differ", columns=heads, rows=tuple(rows), folded=True)


def listed(numbers: Sequence[int]) -> str:
    """Print the first few numbers and how many there are in all."""
    if not numbers:
        return "none"
    more = f", … ({len(numbers)} in all)" if len(numbers) > MOST_LISTED else ""
    return ", ".join(map(str, numbers[:MOST_LISTED])) + more


def settings_table(entries: Sequence[Entry]) -> Table:
    """Build the table of the settings that differ."""
    found = [dict(settings_of(entry)) for entry in entries]
    names = list(dict.fromkeys(name for one in found for name in one))
    rows = [
        Row(cells=(name, *(one.get(name, words.DASH) for one in found)))
        for name in names
        if len({one.get(name) for one in found}) > 1
    ]
    return side_by_side("Settings that differ", "Setting", entries, rows)


def side_by_side(caption: str, first: str, entries: Sequence[Entry], rows: Sequence[Row]) -> Table:
    """Build a table with a column of text for each run."""
    heads = (first, *(entry.short for entry in entries))
    return Table(caption=caption, columns=columns(*heads, texts=len(heads)), rows=tuple(rows))


def settings_of(entry: Entry) -> list[tuple[str, str]]:
    """List the settings of a run, its attacks by name rather than by position."""
    plain = {name: value for name, value in entry.run.run.settings.items() if name != "attacks"}
    ran, run = entry.evaluation.speed.precision if entry.evaluation else "", entry.run.run
    if run.kind == "evaluation" and run.device == "cpu" and ran in ("tf32", "float32"):
        plain |= dict.fromkeys(plain.keys() & {"precision"}, "float32")  # a CPU has no TF32
    pairs = [("kind", entry.run.run.kind), ("seed", str(entry.run.run.seed)), *flatten(plain)]
    pairs += attack_pairs(entry.evaluation)
    if entry.evaluation is not None:
        pairs.append(("weights SHA-256", entry.evaluation.model.weights_sha256))
    return [(name, re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b", r"\1…", value)) for name, value in pairs]


def provenance_table(entries: Sequence[Entry]) -> Table:
    """Build the table of where each run came from."""
    found = [dict(run_pairs(entry.run.run)) for entry in entries]
    rows = [Row(cells=(name, *(one[name] for one in found))) for name in found[0]]
    return side_by_side("Where these numbers come from", "What", entries, rows)


def pairing_sentences(first: Entry, others: Sequence[Entry]) -> list[str]:
    """Say for each run that is not paired with the first why not."""
    reasons = ((entry, obstacle(first, entry)) for entry in others)
    return [f"{entry.label} is not paired with {first.label}: {why}." for entry, why in reasons if why]
