"""What a comparison says first: its one claim, and why that may be worth little."""

from collections.abc import Sequence

from scaleproof.report import words
from scaleproof.report.compare import tables
from scaleproof.report.compare.entries import (
    WORST,
    Entry,
    difference,
    other_images,
    other_threats,
    share_of,
)
from scaleproof.report.compare.statistics import Difference
from scaleproof.report.records import Share

LEVEL = (
    0.05  # of McNemar's test: where few images differ, the interval alone is too ready to see a difference
)


def alarm(entries: Sequence[Entry]) -> str:
    """Name the runs that failed a check and those with one answer for everything, or nothing where there are none."""
    failed = [entry.label for entry in entries if not entry.trusted]
    said = [f"Unreliable: a check failed in {' and in '.join(failed)}."] if failed else []
    said += one_answer_sentence([entry for entry in entries if entry.one_answer])
    several = sum(not entry.sound for entry in entries) > 1
    return (
        " ".join([*said, f"Differences that involve {'them' if several else 'it'} say little."])
        if said
        else ""
    )


def one_answer_sentence(found: Sequence[Entry]) -> list[str]:
    """Name the runs with one answer for everything: of one run in its own words, of several in words for all."""
    if not found:
        return []
    meaning = (
        found[0].one_answer
        if len(found) == 1
        else "such a network tells next to nothing apart, and its accuracy, attacked or not, is next to the share of "
        "one class"
    )
    return [f"One answer for everything in {', '.join(entry.label for entry in found)}: {meaning}."]


def claim(entries: Sequence[Entry], measured: Sequence[Entry]) -> tuple[str, str]:
    """Print the headline: one difference for two runs, the range for more, the kinds for sweeps."""
    if len(measured) == 2:
        return two_runs(measured[0], measured[1])
    if len(measured) > 2:
        worst = [entry.evaluation.worst_case for entry in measured if entry.evaluation]
        ends = sorted(worst, key=lambda share: share.accuracy)
        low, high = words.share_percent(ends[0]), words.share_percent(ends[-1])
        mixed = any(other_threats(measured[0], entry) for entry in measured)
        runs = f"{len(measured)} runs{' under different threats' if mixed else ''}"
        return f"{runs}: worst case from {low} to {high}", f"against {measured[0].label}"
    kinds = ", ".join(dict.fromkeys(entry.run.run.kind for entry in entries))
    return f"{len(entries)} runs side by side", kinds


def two_runs(first: Entry, other: Entry) -> tuple[str, str]:
    """Print the headline for two runs: which one is more accurate in the worst case, by how much, how surely."""
    found, base, share = difference(first, other, WORST), share_of(first, WORST), share_of(other, WORST)
    assert found is not None
    assert base is not None
    assert share is not None
    counts = f"n = {base.count}" if base.count == share.count else f"n = {base.count} against {share.count}"
    if doubts := worthless(first, other):
        accuracies = f"worst case {words.share_percent(base)} against {words.share_percent(share)}"
        facts = (accuracies, other_threats(first, other), "" if found.paired else "unpaired", counts)
        return f"{doubts} says little", ", ".join(filter(None, facts))
    told = (
        f"{other.label} lies {size_text(found, share)} {first.label} in the worst case"
        if shown(found)
        else f"No difference shown between {other.label} and {first.label} in the worst case"
    )
    how = f"paired, McNemar p {p_phrase(found.p)}" if found.paired else "unpaired"
    difference_text = f"{tables.points(found.value, share.count)} points"
    spread = f"95% interval {tables.interval_text(found, share.count)}"
    return told, f"{difference_text}, {spread}, {how}, {counts}{disagreement(found)}"


def worthless(first: Entry, other: Entry) -> str:
    """Say what takes the worth from the difference of two runs, up to that difference, or nothing."""
    both = (
        ("were measured on different images", other_images(first, other)),
        ("faced different threats", other_threats(first, other)),
    )
    names = f"{first.label} and {other.label}"
    shared = " and ".join(text for text, holds in both if holds)
    said = [f"{names} {shared}"] if shared else []
    if first.one_answer and other.one_answer:
        said.append(f"{names} give one answer for everything")
    elif first.one_answer or other.one_answer:
        alike, measure = (first, other) if first.one_answer else (other, first)
        said.append(f"{alike.label} gives one answer for everything")
        if not shared:
            return f"{said[0]}: its difference to {measure.label}"
    return f"{'; '.join(said)}: their difference" if said else ""


def size_text(found: Difference, share: Share) -> str:
    """Print how far one run lies above or below another."""
    size = f"{abs(100 * found.value):.{words.decimals(share.count)}f} points"
    return f"{size} {'above' if found.value > 0 else 'below'}"


def leaves_out_zero(found: Difference) -> bool:
    """Tell whether the interval of a difference lies on one side of zero."""
    return found.interval[0] > 0 or found.interval[1] < 0


def shown(found: Difference) -> bool:
    """Tell whether a difference is shown: the interval leaves out zero and the exact test, if any, agrees."""
    return leaves_out_zero(found) and (found.p is None or found.p < LEVEL)


def disagreement(found: Difference) -> str:
    """Say that the exact test does not agree with an interval that leaves out zero, or nothing where it does."""
    if shown(found) or not leaves_out_zero(found) or found.gained is None or found.lost is None:
        return ""
    return (
        f"; the interval leaves out zero, but the exact test on the {found.gained + found.lost} images whose "
        "verdict differs does not agree, and both must"
    )


def p_phrase(p: float | None) -> str:
    """Print a p-value after its name."""
    text = tables.p_text(p)
    return text if text.startswith("<") else f"= {text}"
