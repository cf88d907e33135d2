"""A comparison as headline, paragraphs and sections, before any markup."""

from collections.abc import Sequence

from scaleproof.report import words
from scaleproof.report.compare import tables
from scaleproof.report.compare.curves import curves_table, sweeps_table
from scaleproof.report.compare.entries import (
    WORST,
    Entry,
    caveats,
    difference,
    obstacle,
    other_images,
    right,
    share_of,
)
from scaleproof.report.explorer import Column, Explorer, build
from scaleproof.report.sections import Document, Section

BOUND = (
    "Robust accuracy is an upper bound: an attack shows that an image can be broken, never that it cannot. A run "
    "with weaker attacks looks more robust."
)

LEVEL = (
    0.05  # of McNemar's test: where few images differ, the interval alone is too ready to see a difference
)


def compare_document(entries: tuple[Entry, ...]) -> Document:
    """Build the comparison of runs with the first of them."""
    measured = [entry for entry in entries if entry.evaluation is not None]
    doubtful = [entry.label for entry in entries if not entry.trusted]
    alarm = (
        f"Unreliable: a check failed in {' and in '.join(doubtful)}. Differences that involve it say little."
        if doubtful
        else ""
    )
    headline, detail = claim(entries, measured)
    notes = strangers(measured) if len(measured) > 2 else []  # of two the headline says it
    notes += [note for entry in measured[1:] for note in caveats(measured[0], entry)]
    return Document(
        title="Comparison",
        subject="; ".join(f"{entry.label}: {subject(entry)}" for entry in entries),
        headline=f"Unreliable: {headline}" if alarm else headline,
        detail=detail,
        meaning=(*notes, *unexamined(measured), BOUND),
        sections=(
            *evaluation_sections(measured),
            *curve_sections(entries),
            *sweep_sections(entries),
            settings_section(entries),
            Section(identifier="provenance", title="Provenance", tables=(tables.provenance_table(entries),)),
        ),
        alarm=alarm,
    )


def strangers(measured: Sequence[Entry]) -> list[str]:
    """Name the runs on other images than the first."""
    names = [entry.label for entry in measured[1:] if other_images(measured[0], entry)]
    if not names:
        return []
    first = measured[0].label
    return [f"Measured on other images than {first}: {', '.join(names)}. Differences to {first} say little."]


def unexamined(measured: Sequence[Entry]) -> tuple[str, ...]:
    """Name the runs without checks on record: a defense that hides its gradients would look robust in them."""
    names = [
        entry.label for entry in measured if entry.evaluation is not None and entry.evaluation.checks is None
    ]
    if not names:
        return ()
    return (
        f"Not examined: {', '.join(names)}. `scaleproof evaluate` on the folder tells whether the number is real.",
    )


def subject(entry: Entry) -> str:
    """Say in a few words what a run is."""
    evaluation, training, sweep = entry.evaluation, entry.run.training, entry.run.sweep
    if training is not None:
        return f"{training.label}, {training.architecture}, {words.data_text(training.test)}"
    measured = evaluation or sweep
    return f"{measured.model.spec}, {words.data_text(measured.data)}" if measured else words.DASH


def claim(entries: Sequence[Entry], measured: Sequence[Entry]) -> tuple[str, str]:
    """Print the headline: one difference for two runs, the range for more, the kinds for sweeps."""
    if len(measured) == 2:
        return two_runs(measured[0], measured[1])
    if len(measured) > 2:
        worst = [entry.evaluation.worst_case for entry in measured if entry.evaluation]
        ends = sorted(worst, key=lambda share: share.accuracy)
        low, high = words.share_percent(ends[0]), words.share_percent(ends[-1])
        return f"{len(measured)} runs: worst case from {low} to {high}", f"against {measured[0].label}"
    kinds = ", ".join(dict.fromkeys(entry.run.run.kind for entry in entries))
    return f"{len(entries)} runs side by side", kinds


def two_runs(first: Entry, other: Entry) -> tuple[str, str]:
    """Print the headline for two runs: which one is more accurate in the worst case, by how much, how surely."""
    found, base, share = difference(first, other, WORST), share_of(first, WORST), share_of(other, WORST)
    assert found is not None
    assert base is not None
    assert share is not None
    counts = str(base.count) if base.count == share.count else f"{base.count} against {share.count}"
    if other_images(first, other):
        return (
            f"{first.label} and {other.label} were measured on different images: their difference says little",
            f"worst case {words.share_percent(base)} against {words.share_percent(share)}, unpaired, n = {counts}",
        )
    size = f"{abs(100 * found.value):.{words.decimals(share.count)}f} points"
    sure = (found.interval[0] > 0 or found.interval[1] < 0) and (found.p is None or found.p < LEVEL)
    side = "above" if found.value > 0 else "below"
    told = (
        f"{other.label} lies {size} {side} {first.label} in the worst case"
        if sure
        else f"No difference shown between {other.label} and {first.label} in the worst case"
    )
    how = f"paired, McNemar p {p_phrase(found.p)}" if found.paired else "unpaired"
    spread = tables.interval_text(found, share.count)
    return (
        told,
        f"{tables.points(found.value, share.count)} points, 95% interval {spread}, {how}, n = {counts}",
    )


def p_phrase(p: float | None) -> str:
    """Print a p-value after its name."""
    text = tables.p_text(p)
    return text if text.startswith("<") else f"= {text}"


def evaluation_sections(measured: Sequence[Entry]) -> tuple[Section, ...]:
    """Build the sections on accuracies, differences and single images."""
    if not measured:
        return ()
    first, *others = measured
    runs = Section(identifier="runs", title="Runs", tables=(tables.runs_table(measured),))
    if not others:
        return (runs,)
    differences = Section(
        identifier="differences",
        title=f"Differences to {first.label}",
        paragraphs=tuple(tables.pairing_sentences(first, others)),
        tables=tuple(tables.differences_table(first, entry) for entry in others),
    )
    pairs = [entry for entry in others if not obstacle(first, entry)]
    if not pairs:
        return (runs, differences)
    images = Section(
        identifier="images",
        title="Image by image",
        paragraphs=(
            "In the worst case an image is right if it is classified correctly without attack and under every "
            "attack and restart of a run.",
        ),
        tables=(tables.agreement_table(first, pairs), tables.disputed_table(first, pairs)),
    )
    return (runs, differences, images)


def runs_explorer(entries: Sequence[Entry]) -> Explorer | None:
    """Build the table of images with a column for each run that saw the same ones as the first."""
    measured = [entry for entry in entries if entry.evaluation is not None]
    if len(measured) < 2:
        return None
    first, *others = measured
    chosen = [first, *(entry for entry in others if not obstacle(first, entry))]
    if len(chosen) < 2 or first.evaluation is None or first.run.verdicts is None:
        return None
    columns = [Column(label=entry.marked, broken=~right(entry, WORST), prediction=None) for entry in chosen]
    names = [entry.label for entry in chosen]
    choices = [
        ("differ", "Verdicts differ"),
        ("holds", "Right in every run"),
        *((f"by {k}", f"Wrong in {name}") for k, name in enumerate(names)),
        *((f"only {k}", f"Wrong only in {name}") for k, name in enumerate(names)),
    ]
    note = "“right”: right in the worst case of that run; “wrong”: wrong, be it without or under attack."
    return build(first.evaluation.data.classes, first.run.verdicts.labels, None, columns, choices, note)


def curve_sections(entries: Sequence[Entry]) -> tuple[Section, ...]:
    """Build the section on trainings, where there are any."""
    trained = [entry for entry in entries if entry.run.training is not None]
    if not trained:
        return ()
    table = curves_table(trained)
    return (Section(identifier="curves", title="Training curves", tables=(table,)),)


def sweep_sections(entries: Sequence[Entry]) -> tuple[Section, ...]:
    """Build the section on sweeps over the scale of the logits, where there are any."""
    swept = [entry for entry in entries if entry.run.sweep is not None]
    if not swept:
        return ()
    table = sweeps_table(swept)
    return (Section(identifier="scale", title="Scale of the logits", tables=(table,)),)


def settings_section(entries: Sequence[Entry]) -> Section:
    """Build the section on the settings that differ."""
    table = tables.settings_table(entries)
    if not table.rows:
        sentence = "All settings on record are the same."
        return Section(identifier="settings", title="Settings that differ", paragraphs=(sentence,))
    return Section(identifier="settings", title="Settings that differ", tables=(table,))
