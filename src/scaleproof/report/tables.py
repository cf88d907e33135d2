"""The tables of a report, before any markup."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scaleproof.report import words
from scaleproof.report.folder import survivors
from scaleproof.report.records import Array, Attack, Evaluation, Provenance, Run, Share, Verdicts


@dataclass(frozen=True, kw_only=True)
class Column:
    """The head of a column; numbers are set flush right, prose may take several lines."""

    title: str
    numeric: bool = True
    prose: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: its cells, whether it is the one to look at, and a mark such as failed."""

    cells: tuple[str, ...]
    strong: bool = False
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its caption and its footnotes."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    folded: bool = False


def columns(*titles: str, texts: int = 1) -> tuple[Column, ...]:
    """Build the heads of a table whose first columns are text, one by default, and whose others are numbers."""
    return tuple(Column(title=title, numeric=place >= texts) for place, title in enumerate(titles))


def attack_row(attack: Attack) -> Row:
    """Build the line of one attack."""
    cosine = on_cosine(attack)
    return Row(
        cells=(
            attack.label,
            words.share_percent(attack.robust),
            words.interval(attack.robust, "–"),
            words.mismatch(attack.cosine_mismatch) if cosine else words.DASH,
            words.share_percent(attack.robust_one_restart),
            words.whole(attack.restarts),
            words.whole(attack.attacked),
        )
    )


def on_cosine(attack: Attack) -> bool:
    """Tell whether an attack of an evaluation climbs the cosines."""
    return words.on_cosines(attack.name, attack.cosine_mismatch)


def bound_row(label: str, share: Share, *, strong: bool, mark: str = "") -> Row:
    """Build the line of a share that belongs to no single attack."""
    known = (label, words.share_percent(share), words.interval(share, "–"))
    return Row(cells=(*known, *[words.DASH] * 4), strong=strong, mark=mark)


def expected_rows(evaluation: Evaluation, mark: str) -> tuple[Row, ...]:
    """Build the line with the number of a randomised model, or none for any other."""
    expected = evaluation.expected
    if expected is None:
        return ()
    value = words.percent(expected.worst_case, words.decimals(evaluation.worst_case.count))
    cells = (f"Expected worst case, {expected.draws} draws", value, *[words.DASH] * 5)
    return (Row(cells=cells, strong=True, mark=mark),)


def attacks_table(run: Provenance, evaluation: Evaluation) -> Table:
    """Build the table of all attacks with the worst case last."""
    after = "Robust after this attack" if evaluation.mode == "cascade" else "Robust, worst of all runs"
    mark = "" if words.trusted(evaluation) else "unreliable"
    expected = expected_rows(evaluation, mark)
    rows = (
        bound_row("No attack", evaluation.clean, strong=False),
        *(attack_row(attack) for attack in evaluation.attacks),
        bound_row(words.worst_label(evaluation), evaluation.worst_case, strong=not expected, mark=mark),
        *expected,
    )
    heads = (
        after,
        "95% interval",
        "Cosine mismatch",
        "Robust, first run",
        "Restarts or targets",
        "Images attacked",
    )
    notes = (f"{attack.label}: {note}" for attack in evaluation.attacks for note in attack.notes)
    return Table(
        caption=f"Accuracy under attack, {words.threat_text(evaluation.threat)}",
        columns=columns("Attack", *heads),
        rows=rows,
        notes=(*notes, words.provenance_note(run, evaluation.worst_case.count)),
    )


def cost_table(run: Run, evaluation: Evaluation) -> Table:
    """Build the table of what each attack cost and of how far it moved the images."""
    rows = tuple(
        Row(
            cells=(
                attack.label,
                words.quotient(attack.forwards, attack.attacked),
                words.quotient(attack.backwards, attack.attacked),
                words.seconds(attack.seconds),
                words.quotient(attack.image_steps_per_second, 1 if attack.image_steps_per_second else 0),
                largest_size(run.verdicts, attack.name),
            )
        )
        for attack in evaluation.attacks
    )
    heads = ("Forwards per image", "Backwards per image", "Seconds", "Image-steps per second", "Largest size")
    return Table(
        caption="Cost of each attack, per attacked image and in all",
        columns=columns("Attack", *heads),
        rows=rows,
        notes=(
            "The largest size is that of the largest perturbation found; the budget is "
            f"{evaluation.threat.eps:.5g}.",
            words.provenance_note(run.run, evaluation.worst_case.count),
        ),
    )


def largest_size(verdicts: Verdicts | None, name: str) -> str:
    """Print the size of the largest perturbation of an attack, where the verdicts are at hand and it found one."""
    sizes = verdicts.size[name] if verdicts else np.empty(0)
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    return f"{sizes.max():.5g}" if sizes.size else words.DASH


def class_row(label: str, members: Array, clean: Array, alive: Array) -> Row:
    """Build the line of one class."""
    count = int(members.sum())
    robust = words.share_of(int(alive[members].sum()), count)
    return Row(
        cells=(
            label,
            words.whole(count),
            words.share_percent(words.share_of(int(clean[members].sum()), count)),
            words.share_percent(robust),
            words.interval(robust, "–"),
        )
    )


def class_table(run: Run, evaluation: Evaluation, verdicts: Verdicts) -> Table:
    """Build the table of robust accuracy per class, over every attack and restart."""
    alive, labels = survivors(verdicts), verdicts.labels
    present = [number for number in range(len(evaluation.data.classes)) if (labels == number).any()]
    names = evaluation.data.classes
    absent = len(names) - len(present)
    notes = (f"Classes without images, left out: {absent}.",) if absent else ()
    return Table(
        caption="Clean and worst-case robust accuracy per class",
        columns=columns("Class", "Images", "Clean", robust_head(evaluation), "95% interval"),
        rows=tuple(class_row(names[k], labels == k, verdicts.clean_correct, alive) for k in present),
        notes=(*notes, words.provenance_note(run.run, evaluation.worst_case.count)),
        folded=len(present) > 20,
    )


def robust_head(evaluation: Evaluation) -> str:
    """Head a column of worst cases, with the warning that belongs to them."""
    return "Robust at most" if words.trusted(evaluation) else "Robust at most (unreliable)"


def overlap_table(run: Provenance, evaluation: Evaluation, verdicts: Verdicts) -> Table:
    """Build the table of what each attack adds: the images that it breaks, and those that no other breaks."""
    broken = np.stack([verdicts.broken[attack.name].any(axis=0) for attack in evaluation.attacks])
    broken &= verdicts.clean_correct
    alone = broken & (broken.sum(axis=0) == 1)
    worst, count = evaluation.worst_case.correct, evaluation.worst_case.count
    rows = tuple(
        Row(
            cells=(
                attack.label,
                words.whole(int(broken[k].sum())),
                words.whole(int(alone[k].sum())),
                words.share_percent(words.share_of(worst + int(alone[k].sum()), count)),
            )
        )
        for k, attack in enumerate(evaluation.attacks)
    )
    without = "Worst case without it" + ("" if words.trusted(evaluation) else " (unreliable)")
    return Table(
        caption="What each attack adds to the others",
        columns=columns("Attack", "Images broken", "Broken by it alone", without),
        rows=rows,
        notes=(words.provenance_note(run, count),),
    )


def flatten(settings: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Turn nested settings into pairs of a dotted name and a value."""
    pairs: list[tuple[str, str]] = []
    for name, value in settings.items():
        if name == "first_logits":  # many numbers that say nothing to a reader
            digest = hashlib.sha256(str(value).encode()).hexdigest()[:12]
            pairs.append(("the model’s answers on the first images", f"digest {digest}" if value else "none"))
        elif isinstance(value, Mapping) and value:
            pairs += flatten(value, f"{prefix}{name}.")
        else:
            pairs.append((prefix + name, "none" if value is None else str(value)))
    return pairs


def pair_table(caption: str, heads: tuple[str, str], pairs: list[tuple[str, str]]) -> Table:
    """Build a table of names and values."""
    rows = tuple(Row(cells=pair) for pair in pairs)
    return Table(caption=caption, columns=columns(*heads, texts=2), rows=rows)
