"""The tables and the sentences of a sweep over scales of the logits."""

from scaleproof.report import words
from scaleproof.report.records import Provenance, Sweep, SweepRow
from scaleproof.report.tables import Column, Row, Table, columns

SCALE_SENTENCES = (
    "Only the scale of the logits changes from line to line: the classifier’s decisions, and so its true "
    "robustness, stay the same. An attack whose verdict moves measures the scale as well as the classifier.",
    "CW and DLR are scale-invariant too: up to rounding, multiplying the logits leaves the direction of "
    "their gradients as it is, so a flat line is no privilege of attacks on cosines.",
    "Robust accuracy is an upper bound: each number says what this attack failed to break, and a stronger "
    "attack can only lower it.",
)


def attack_names(sweep: Sweep) -> tuple[str, ...]:
    """Return the attacks of a sweep, in the order of their first rows."""
    return tuple(dict.fromkeys(row.attack for row in sweep.rows))


def rows_of(sweep: Sweep, attack: str) -> tuple[SweepRow, ...]:
    """Return the rows of one attack by rising scale."""
    return tuple(sorted((row for row in sweep.rows if row.attack == attack), key=lambda row: row.alpha))


def label_of(sweep: Sweep, attack: str) -> str:
    """Return the label of an attack."""
    return rows_of(sweep, attack)[0].label


def titled(sweep: Sweep, attack: str) -> str:
    """Return the label of an attack, with the cosine mismatch beside it where it climbs cosines."""
    label = label_of(sweep, attack)
    if not words.on_cosines(attack):
        return label
    return f"{label} (mismatch {words.mismatch(sweep.cosine_mismatch)})"


def spread(sweep: Sweep, attack: str) -> float:
    """Return the largest minus the smallest robust accuracy of an attack over all scales."""
    accuracies = [row.robust.accuracy for row in rows_of(sweep, attack)]
    return max(accuracies) - min(accuracies)


def points(sweep: Sweep, attack: str) -> str:
    """Print the spread of an attack in percentage points."""
    return f"{100 * spread(sweep, attack):.{words.decimals(sweep.clean.count)}f}"


def movement(sweep: Sweep, attack: str) -> str:
    """Say how far the verdict of an attack moves."""
    return "does not move" if spread(sweep, attack) == 0 else f"moves by {points(sweep, attack)} points"


def identical(sweep: Sweep, attack: str) -> bool:
    """Tell whether an attack found the very same adversarial examples at all scales."""
    return len({row.digest for row in rows_of(sweep, attack)}) == 1


def scale_table(run: Provenance, sweep: Sweep) -> Table:
    """Build the table of robust accuracy: scales down, attacks across."""
    names = attack_names(sweep)
    found = {(row.alpha, row.attack): row.robust for row in sweep.rows}
    rows = [
        Row(cells=(f"{alpha:g}", *(words.share_percent(found[alpha, name]) for name in names)))
        for alpha in sorted(sweep.alphas)
    ]
    moved = tuple(points(sweep, name) for name in names)
    same = tuple("yes" if identical(sweep, name) else "no" for name in names)
    rows.append(Row(cells=("Largest minus smallest, in points", *moved), strong=True))
    rows.append(Row(cells=("Adversarial examples bit-identical", *same), strong=True))
    return Table(
        caption=f"Robust accuracy against the scale of the logits, {words.threat_text(sweep.threat)}",
        columns=columns("Scale α", *(titled(sweep, name) for name in names)),
        rows=tuple(rows),
        notes=(
            f"Clean accuracy {words.share_percent(sweep.clean)}, 95% interval "
            f"{words.interval(sweep.clean)}; the intervals of the other cells are in the next table.",
            words.provenance_note(run, sweep.clean.count),
        ),
    )


def detail_table(run: Provenance, sweep: Sweep) -> Table:
    """Build the table of intervals and gradients behind the sweep."""
    ordered = sorted(sweep.rows, key=lambda row: (attack_names(sweep).index(row.attack), row.alpha))
    rows = tuple(
        Row(
            cells=(
                row.label,
                f"{row.alpha:g}",
                words.share_percent(row.robust),
                words.interval(row.robust, "–"),
                words.significant(row.gradient_size),
                words.percent(row.zero_gradients),
                row.digest[:12],
            )
        )
        for row in ordered
    )
    heads = columns("Attack", "Scale α", "Robust", "95% interval", "Gradient size", "Zero entries")
    return Table(
        caption="Intervals, input gradients and digests behind the sweep",
        columns=(*heads, Column(title="Digest of examples", numeric=False)),
        rows=rows,
        notes=(
            "Gradient size is the mean ℓ₁ norm of the objective’s gradient at the clean image; zero entries "
            "is the share of its entries that are exactly 0.",
            words.provenance_note(run, sweep.clean.count),
        ),
        folded=True,
    )


def scale_sentences(sweep: Sweep) -> tuple[str, ...]:
    """Say what a sweep shows, and what the cosine mismatch is where it has one."""
    first, *others = SCALE_SENTENCES
    return (first, *((words.COSINES,) if on_cosines(sweep) else ()), *others)


def on_cosines(sweep: Sweep) -> bool:
    """Tell whether an attack of a sweep climbs the cosines."""
    return any(words.on_cosines(name) for name in attack_names(sweep))


def scale_detail(sweep: Sweep) -> str:
    """Print what belongs beside the headline: the number of images and, for attacks on cosines, the mismatch."""
    count = f"n = {sweep.clean.count}"
    if not on_cosines(sweep):
        return count
    return f"{count}, cosine mismatch {words.mismatch(sweep.cosine_mismatch)}"


def scale_headline(sweep: Sweep) -> str:
    """Print the headline of a sweep: which verdict moved most with the scale, and which stood still."""
    names = attack_names(sweep)
    mover = max(names, key=lambda name: spread(sweep, name))
    if spread(sweep, mover) == 0:
        return "No attack’s robust accuracy moves with the scale of the logits"
    robust = [row.robust for row in rows_of(sweep, mover)]
    low, high = min(robust, key=lambda s: s.accuracy), max(robust, key=lambda s: s.accuracy)
    still = [name for name in names if words.on_cosines(name) and name != mover]
    others = "".join(f"; {label_of(sweep, name)}’s {movement(sweep, name)}" for name in still)
    return (
        f"{label_of(sweep, mover)}’s robust accuracy ranges from {words.share_percent(low)} to "
        f"{words.share_percent(high)} with the scale of the logits alone{others}"
    )
