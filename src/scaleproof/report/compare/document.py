"""A comparison as headline, paragraphs and sections, before any markup."""

from collections.abc import Sequence

from scaleproof.report import words
from scaleproof.report.compare import tables
from scaleproof.report.compare.curves import curves_table, sweeps_table
from scaleproof.report.compare.entries import (
    WORST,
    Entry,
    caveats,
    obstacle,
    other_images,
    other_threats,
    right,
)
from scaleproof.report.compare.headline import alarm, claim
from scaleproof.report.explorer import Column, Explorer, build
from scaleproof.report.sections import Document, Section

BOUND = (
    "Robust accuracy is an upper bound: an attack shows that an image can be broken, never that it cannot. A run "
    "with weaker attacks looks more robust."
)


def compare_document(entries: tuple[Entry, ...]) -> Document:
    """Build the comparison of runs with the first of them."""
    measured = [entry for entry in entries if entry.evaluation is not None]
    headline, detail = claim(entries, measured)
    notes = strangers(measured) if len(measured) > 2 else []  # of two the headline says it
    notes += [note for entry in measured[1:] for note in caveats(measured[0], entry)]
    return Document(
        title="Comparison",
        subject="; ".join(f"{entry.label}: {subject(entry)}" for entry in entries),
        headline=headline if all(entry.trusted for entry in entries) else f"Unreliable: {headline}",
        detail=detail,
        meaning=(*notes, *unexamined(measured), *legend(entries), BOUND),
        sections=(
            *evaluation_sections(measured),
            *curve_sections(entries),
            *sweep_sections(entries),
            settings_section(entries),
            Section(identifier="provenance", title="Provenance", tables=(tables.provenance_table(entries),)),
        ),
        alarm=alarm(entries),
    )


def strangers(measured: Sequence[Entry]) -> list[str]:
    """Name the runs on other images than the first, and those under another threat."""
    first, *others = measured
    names = [entry.label for entry in others if other_images(first, entry)]
    said = f"Measured on other images than {first.label}: {', '.join(names)}. Differences to {first.label} say little."
    found = [said] if names else []
    threats = ((entry, other_threats(first, entry)) for entry in others)
    return found + [
        f"{entry.label} faced another threat than {first.label} ({told}): their difference says little."
        for entry, told in threats
        if told
    ]


def legend(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Say which runs the short names in tables mean, where there are any."""
    pairs = [f"{entry.short} is {entry.label}" for entry in entries if entry.short != entry.label]
    return (f"In tables and figures {', '.join(pairs)}.",) if pairs else ()


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
    names = [entry.short for entry in chosen]
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
