"""The tables behind the curves of a comparison: trainings, and sweeps over the scale of the logits."""

from collections.abc import Sequence

from scaleproof.report import scale, words
from scaleproof.report.compare.entries import Entry
from scaleproof.report.tables import Row, Table, columns
from scaleproof.report.training.words import probes, standings


def curves_table(entries: Sequence[Entry]) -> Table:
    """Build the table of trainings: which epoch was selected, and how the probes ended."""
    rows = []
    for entry in entries:
        training = entry.run.training
        assert training is not None
        cells = [entry.marked, training.label, f"{training.selected.epoch} of {len(training.history)}"]
        for probe in ("validation", "test"):
            found = standings(training, probe)
            best = max((one.pgd for _, one in found), default=None)
            cells.append(words.DASH if best is None else f"{best:.1f}%")
            cells.append(words.DASH if not found else f"{found[-1][1].pgd:.1f}%")
        cells.append(words.seconds(sum(epoch.seconds for epoch in training.history)))
        rows.append(Row(cells=tuple(cells), mark="" if entry.sound else "unreliable"))
    numbers = (
        "Selected epoch",
        "Best PGD, held-out",
        "Last PGD, held-out",
        "Best PGD, test",
        "Last PGD, test",
        "Seconds",
    )
    return Table(
        caption="Trainings",
        columns=columns("Run", "Defense", *numbers, texts=2),
        rows=tuple(rows),
        notes=("PGD accuracies are those of the probes after each epoch; they serve to compare epochs.",),
    )


def with_curves(entries: Sequence[Entry]) -> list[Entry]:
    """Return the trainings that have at least one probe."""
    return [entry for entry in entries if entry.run.training is not None and probes(entry.run.training)]


def sweeps_table(entries: Sequence[Entry]) -> Table:
    """Build the table of sweeps: from where to where the verdict of each attack moves."""
    rows = []
    for entry in entries:
        sweep = entry.run.sweep
        assert sweep is not None
        for name in scale.attack_names(sweep):
            robust = [row.robust for row in scale.rows_of(sweep, name)]
            ordered = sorted(robust, key=lambda share: share.accuracy)
            ends = words.share_percent(ordered[0]), words.share_percent(ordered[-1])
            known = {row.alpha: words.share_percent(row.robust) for row in scale.rows_of(sweep, name)}
            same = "yes" if scale.identical(sweep, name) else "no"
            cells = (
                entry.marked,
                scale.titled(sweep, name),
                known.get(1.0, words.DASH),
                *ends,
                scale.points(sweep, name),
                same,
            )
            rows.append(Row(cells=cells))
    numbers = ("At α = 1", "Lowest", "Highest", "Moves by, points", "Same bits")
    return Table(
        caption="Robust accuracy over the scales of the logits",
        columns=columns("Run", "Attack", *numbers, texts=2),
        rows=tuple(rows),
        notes=(
            "Take the lowest: robust accuracy is an upper bound. Same bits: the adversarial examples are "
            "bit-identical at all scales.",
        ),
    )
