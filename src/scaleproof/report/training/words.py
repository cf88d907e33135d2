"""What the report of a training says in words, and the epochs that it points to."""

from collections.abc import Iterator

from scaleproof.collapse import Accuracies, collapsed
from scaleproof.report import words
from scaleproof.report.training.records import Checkpoint, Epoch, Standing, Training

PROBES = {"validation": "held-out", "test": "test"}
MOST_ROWS = 20
LEAK = (
    "The weights marked as leaking were chosen by their accuracy on test images, so the test images no longer "
    "measure them fairly: their number is here for comparison and is not to be quoted."
)


def checkpoints(training: Training) -> tuple[Checkpoint, ...]:
    """Return the sets of weights that were attacked."""
    leaking = () if training.leaking is None else (training.leaking,)
    return (training.selected, training.last, *leaking)


def checkpoint_label(training: Training, checkpoint: Checkpoint) -> str:
    """Name a set of weights by how it was chosen."""
    if checkpoint.kind == "selected" and not training.held_out:
        return "Last epoch, as no images were held out"
    labels = {"selected": "Selected on held-out images", "last": "Last epoch"}
    return labels.get(checkpoint.kind, "Best on test images: leaking")


def standing(epoch: Epoch, probe: str) -> Standing | None:
    """Return what a probe found after an epoch."""
    return epoch.validation if probe == "validation" else epoch.test


def standings(training: Training, probe: str) -> list[tuple[int, Standing]]:
    """Return the epochs after which a probe was made, with what it found."""
    found = ((epoch.number, standing(epoch, probe)) for epoch in training.history)
    return [(number, value) for number, value in found if value is not None]


def probes(training: Training) -> list[str]:
    """Return the probes that were made at least once."""
    return [probe for probe in PROBES if standings(training, probe)]


def probe_counts(training: Training) -> dict[str, int]:
    """Return how many images each probe has."""
    return {
        "validation": training.held_out,
        "test": min(training.config.test_probe, training.test.count),
    }


def counts_text(training: Training) -> str:
    """Print how many images each probe has."""
    counts = probe_counts(training)
    return ", ".join(f"n = {counts[probe]} {PROBES[probe]} images" for probe in probes(training))


def term_names(training: Training) -> tuple[str, ...]:
    """Return the names of the loss terms, in the order of their first appearance."""
    return tuple(dict.fromkeys(name for epoch in training.history for name in epoch.terms))


def falls(training: Training) -> tuple[int, ...]:
    """Return the epochs at whose start the learning rate falls, for a schedule of steps."""
    if training.config.schedule != "steps":
        return ()
    before = [training.config.rate, *(epoch.rate for epoch in training.history)]
    return tuple(
        epoch.number
        for rate, epoch in zip(before, training.history, strict=False)
        if epoch.rate < rate * (1 - 1e-9)
    )


def rollbacks(training: Training) -> tuple[int, ...]:
    """Return the epochs after which the guard stepped in."""
    return tuple(epoch.number for epoch in training.history if epoch.guard is not None)


def shown_epochs(training: Training) -> tuple[Epoch, ...]:
    """Return the epochs that a table shows: all of a short run, else some at even distances and the landmarks."""
    count = len(training.history)
    step = next(step for step in strides() if count <= step * MOST_ROWS)
    marks = {1, count, *(one.epoch for one in checkpoints(training)), *rollbacks(training), *falls(training)}
    return tuple(epoch for epoch in training.history if epoch.number % step == 0 or epoch.number in marks)


def strides() -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50 and so on."""
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


def leave_out_note(training: Training) -> tuple[str, ...]:
    """Say where the epochs are that a table leaves out."""
    shown, count = len(shown_epochs(training)), len(training.history)
    return (f"{shown} of {count} epochs are shown; metrics.jsonl has them all.",) if shown < count else ()


def overfitting(training: Training) -> str:
    """Say in one sentence whether the last epoch is worse than the selected one, and what that is called."""
    selected, last = training.selected, training.last
    high, low = selected.evaluation.worst_case, last.evaluation.worst_case
    fall = f"{100 * (high.accuracy - low.accuracy):.{words.decimals(high.count)}f} points"
    if not training.held_out:
        return "No images were held out, so there was nothing to select with: these are the last weights."
    if selected.epoch == last.epoch:
        return "The selected epoch is the last one, so no robust overfitting shows."
    if training.stopped is not None:
        return (
            f"The last weights are those of epoch {last.epoch}, in which the guard stopped: their worst case is "
            f"{words.share_percent(low)}, against {words.share_percent(high)} of the selected epoch "
            f"{selected.epoch}."
        )
    if low.correct >= high.correct:
        return (
            f"The last epoch, {last.epoch}, is no worse than the selected epoch {selected.epoch} "
            f"({words.share_percent(low)} against {words.share_percent(high)} in the worst case), so no robust "
            "overfitting shows."
        )
    return (
        "Robust overfitting is the fall of robust accuracy on images the network never trained on while "
        f"training goes on: here the worst case falls from {words.share_percent(high)} at the selected epoch "
        f"{selected.epoch} to {words.share_percent(low)} at the last epoch {last.epoch}, by "
        f"{fall}{collapse(training)}."
    )


def collapse(training: Training) -> str:
    """Add that the fall on held-out images is as deep as the guard takes for catastrophic overfitting."""
    found = dict(standings(training, "validation"))
    first, final = found.get(training.selected.epoch), found.get(training.last.epoch)
    drop = training.config.guard_drop
    if first is None or final is None or training.defense["defense"] == "standard":
        return ""
    best, now = (Accuracies(one.clean, one.pgd) for one in (first, final))
    if not collapsed(best, now, drop, count=training.held_out):
        return ""
    far = first.pgd - final.pgd > drop
    depth = f"more than the {drop:g} from which" if far else f"to {final.pgd:.1f}%: then"
    return (
        f"; under PGD on held-out images it falls by {first.pgd - final.pgd:.1f} points, {depth} the guard speaks of "
        "catastrophic overfitting"
    )


def guard_sentences(training: Training) -> tuple[str, ...]:
    """Say what the guard did, where it did anything."""
    if training.stopped is not None:
        done, planned = len(training.history), training.config.epochs
        return (
            f"The guard against catastrophic overfitting ended the training after {done} of {planned} epochs: "
            f"{training.stopped}.",
        )
    times = len(rollbacks(training))
    if not times:
        return ()
    return (
        f"The guard against catastrophic overfitting stepped in {words.plural(times, 'time')}; see below.",
    )


def batch_norm_pairs(training: Training) -> list[tuple[str, str]]:
    """Say in words which statistics BatchNorm used in training, and which passes moved them."""
    policy = training.batch_norm
    attack = {
        "eval": "eval mode, so it sees the running statistics",
        "train": "train mode, so it sees the statistics of its own batch",
    }[policy.attack]
    moved = "update the running statistics" if policy.attack_updates else "leave the running statistics alone"
    updates = {
        "all": "all passes",
        "clean": "only the passes on clean images",
        "adversarial": "only the passes on perturbed images",
    }
    return [
        ("BatchNorm in the training attack", f"{attack}; its passes {moved}"),
        (
            "BatchNorm in the outer passes",
            f"train mode; {updates[policy.updates]} update the running statistics",
        ),
    ]


def precision_text(training: Training) -> str:
    """Print the precision of training, and that of its attack where it ran in another way."""
    attack = training.attack_precision or training.precision
    if attack.startswith(training.precision) and not training.folded:
        return training.precision
    return f"{training.precision}, its attack in {attack}{' with folded weights' if training.folded else ''}"


def graph_text(training: Training) -> str:
    """Say whether the steps of training were captured as one graph."""
    return (
        "each step replayed as one captured CUDA graph" if training.graph else "step by step, without a graph"
    )
