"""The tables of a training, before any markup."""

import math
from collections.abc import Callable, Sequence

from scaleproof.report import words
from scaleproof.report.records import Provenance
from scaleproof.report.tables import Row, Table, columns, flatten, on_cosine, pair_table
from scaleproof.report.training.records import Checkpoint, Epoch, Standing, Training
from scaleproof.report.training.words import (
    PROBES,
    batch_norm_pairs,
    checkpoint_label,
    checkpoints,
    counts_text,
    leave_out_note,
    probes,
    shown_epochs,
    standing,
    term_names,
)

Cells = Callable[[Epoch], Sequence[str]]


def checkpoints_table(run: Provenance, training: Training) -> Table:
    """Build the table of the sets of weights: clean, under each attack and in the worst case."""
    attacks = training.selected.evaluation.attacks
    heads = ("Epoch", "Clean", "Worst case", "95% interval", *(attack.label for attack in attacks))
    return Table(
        caption=f"Accuracy on test images of each set of weights, {words.threat_text(training.threat)}",
        columns=columns("Weights", *heads),
        rows=tuple(checkpoint_row(training, checkpoint) for checkpoint in checkpoints(training)),
        notes=(
            *mismatch_notes(training),
            words.provenance_note(run, training.selected.evaluation.worst_case.count),
        ),
    )


def checkpoint_row(training: Training, checkpoint: Checkpoint) -> Row:
    """Build the line of one set of weights."""
    evaluation = checkpoint.evaluation
    return Row(
        cells=(
            checkpoint_label(training, checkpoint)
            + ("" if words.trusted(evaluation) else ": unreliable, a check failed"),
            str(checkpoint.epoch),
            words.share_percent(evaluation.clean),
            words.share_percent(evaluation.worst_case),
            words.interval(evaluation.worst_case, "–"),
            *(words.share_percent(attack.robust) for attack in evaluation.attacks),
        ),
        strong=checkpoint.kind == "selected",
        mark="" if words.trusted(evaluation) else "unreliable",
    )


def mismatch_notes(training: Training) -> list[str]:
    """Print the cosine mismatch of every attack on cosines, for each set of weights."""
    notes = []
    for position, attack in enumerate(training.selected.evaluation.attacks):
        if on_cosine(attack):
            each = (
                f"{one.kind} {words.mismatch(one.evaluation.attacks[position].cosine_mismatch)}"
                for one in checkpoints(training)
            )
            notes.append(f"Cosine mismatch of {attack.label}: {', '.join(each)}.")
    return notes


def epochs_table(training: Training, caption: str, heads: Sequence[str], cells: Cells, note: str) -> Table:
    """Build a table with a line for each epoch shown, the selected one strong."""
    rows = tuple(
        Row(cells=(str(epoch.number), *cells(epoch)), strong=epoch.number == training.selected.epoch)
        for epoch in shown_epochs(training)
    )
    notes = (*leave_out_note(training), note)
    return Table(caption=caption, columns=columns("Epoch", *heads), rows=rows, notes=notes, folded=True)


def probe_cells(training: Training, epoch: Epoch, value: Callable[[Standing], str]) -> list[str]:
    """Print one value of each probe of an epoch, or a dash where it was not made."""
    found = (standing(epoch, probe) for probe in probes(training))
    return [words.DASH if one is None else value(one) for one in found]


def curve_table(run: Provenance, training: Training) -> Table:
    """Build the table behind the curve of accuracies."""
    sides = [PROBES[probe] for probe in probes(training)]
    heads = ["Learning rate", *(f"Clean, {side}" for side in sides), *(f"PGD, {side}" for side in sides)]
    return epochs_table(
        training,
        "Accuracy of the probes over the epochs",
        heads,
        lambda epoch: [
            words.significant(epoch.rate),
            *probe_cells(training, epoch, lambda one: f"{one.clean:.1f}%"),
            *probe_cells(training, epoch, lambda one: f"{one.pgd:.1f}%"),
        ],
        f"{counts_text(training)}; {words.origin_note(run)}",
    )


def losses_table(run: Provenance, training: Training) -> Table:
    """Build the table of the loss, its terms and the accuracy on what was trained on."""
    names = term_names(training)
    return epochs_table(
        training,
        "Loss and its terms over the epochs, as means over the training images",
        ("Learning rate", "Loss", *names, "Accuracy in training"),
        lambda epoch: [
            words.significant(epoch.rate),
            three_digits(epoch.loss),
            *(three_digits(epoch.terms[name]) if name in epoch.terms else words.DASH for name in names),
            words.percent(epoch.train_accuracy),
        ],
        words.provenance_note(run, training.data.count - training.held_out),
    )


def geometry_table(run: Provenance, training: Training) -> Table:
    """Build the table of lengths and cosines in the last layer."""
    sides = [PROBES[probe] for probe in probes(training)]
    parts = ("|z|", "Cosine", "Zero gradients")
    return epochs_table(
        training,
        "Lengths and cosines in the last layer over the epochs",
        ("|W|", *(f"{part}, {side}" for part in parts for side in sides)),
        lambda epoch: [
            three_digits(epoch.weight_norm),
            *probe_cells(training, epoch, lambda one: three_digits(one.feature_norm)),
            *probe_cells(training, epoch, lambda one: three_digits(one.true_cosine)),
            *probe_cells(training, epoch, lambda one: f"{one.zero_gradients:.1f}%"),
        ],
        "; ".join(filter(None, (counts_text(training), words.origin_note(run)))),
    )


def three_digits(value: float) -> str:
    """Print a number with three digits, zeros at its end included."""
    return f"{value:#.3g}" if math.isfinite(value) else "not finite"


def time_table(training: Training) -> Table:
    """Build the table of what training cost."""
    seconds = [epoch.seconds for epoch in training.history]
    total, images = sum(seconds), sum(epoch.seconds * epoch.images_per_second for epoch in training.history)
    rate = f"{images / total:,.0f}" if total else words.DASH
    pairs = [
        ("Epochs", f"{len(seconds)} of {training.config.epochs}"),
        ("Seconds in all", words.seconds(total)),
        ("Seconds an epoch, mean", f"{total / len(seconds):,.1f}"),
        (
            "Seconds an epoch, least to most",
            f"{min(seconds):,.1f} to {max(seconds):,.1f}",
        ),
        ("Images a second, mean", rate),
    ]
    return pair_table("Time of the training steps", ("What", "Value"), pairs)


def settings_tables(training: Training) -> tuple[Table, ...]:
    """Build the tables of the defense and its recipe, and of the configuration."""
    defense = {
        name: value for name, value in training.defense.items() if name not in ("defense", "batch_norm")
    }
    pairs = [
        ("Defense", training.label),
        ("Recipe", training.recipe),
        ("Recipe from", training.recipe_source),
        ("Loss", " + ".join(term_names(training)) or words.DASH),
        *batch_norm_pairs(training),
        *flatten(defense, "defense."),
    ]
    heads = ("Setting", "Value")
    return (
        pair_table("Defense, recipe and BatchNorm policy", heads, pairs),
        pair_table("Configuration of the training", heads, flatten(training.config.settings)),
    )
