"""A reproduction as Markdown: measured beside printed, table by table, then the sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from scaleproof.paper.claims import Column, Row, Table
from scaleproof.paper.judge import FAILS, HOLDS, MISSING, SEEDS, UNCLEAR, Judgement
from scaleproof.paper.measured import Measurement
from scaleproof.paper.reproduction import VERDICTS, Outcome, OwnRow, Reproduction, counted
from scaleproof.paper.scales import FULL

USUAL = {"s": 15.0, "m": 0.2, "beta": 0.2}  # of SI in the paper, outside its ablations
LEGEND = (
    "Each cell: measured ± error (printed in the paper, difference). The error is half a 95% interval: of the images "
    "for one seed, else of where a new run would fall. A number *holds* (✓) or *does not hold* (bold) by at least "
    "three seeds; with fewer it is *inconclusive*, as are numbers marked ~: a training of another length, stopped, "
    "or by other settings than its recipe has today, or a part of the test images."
)


def page(found: Reproduction) -> str:
    """The whole page, without a title."""
    parts = [summary(found), LEGEND + "\n"]
    for table in found.tables:
        parts += [table_part(table, found), own_part(table, found.own)]
    return "\n".join([*parts, sentences_part(found.judgements)])


def summary(found: Reproduction) -> str:
    """In words first; then how many numbers and sentences got which verdict."""
    said = (
        in_words(found.outcomes) if found.scale == FULL.name else ""
    )  # of a smoke test there is nothing to say
    counts = {table.title: counted(found.of(table)) for table in found.tables}
    counts |= {"all numbers": counted(found.outcomes), "sentences": counted(found.judgements)}
    return said + verdicts(counts)


def in_words(outcomes: Sequence[Outcome]) -> str:
    """Where the measured numbers lie so far, beside the printed ones."""
    gaps = [
        one.difference
        for one in outcomes
        if one.difference is not None and one.claim.column.unit == "percent"
    ]
    if not gaps:
        return ""
    few = max(len(one.runs) for one in outcomes) < SEEDS
    return (
        f"Of {len(gaps)} measured accuracies {sum(gap < 0 for gap in gaps)} lie below what the paper prints; measured "
        f"minus printed goes from {min(gaps):+.1f} to {max(gaps):+.1f} points, {median(gaps):+.1f} in the middle."
        + (f" Each stands on fewer than {SEEDS} seeds, so none can be settled yet." if few else "")
        + "\n\n"
    )


def totals(found: Reproduction) -> str:
    """How many numbers and sentences something was measured of, and how many are settled, in words."""
    parts = []
    for name, counts in (("numbers", counted(found.outcomes)), ("sentences", counted(found.judgements))):
        whole = sum(counts.values())
        settled = (
            f"{counts[HOLDS]} hold, {counts[FAILS]} do not"
            if counts[HOLDS] + counts[FAILS]
            else "none settled"
        )
        parts.append(f"{whole - counts[MISSING]} of {whole} {name} ({settled})")
    return f"Measured so far, in whole or in part: {' and '.join(parts)}; {SEEDS} seeds settle one.\n"


def verdicts(counts: Mapping[str, Mapping[str, int]]) -> str:
    rows = [[name, *(str(count[verdict]) for verdict in VERDICTS)] for name, count in counts.items()]
    return grid(["verdicts", *VERDICTS], rows)


def table_part(table: Table, found: Reproduction) -> str:
    """One table of the paper, the rows of which something was measured."""
    outcomes, compared = found.of(table), found.scale == FULL.name
    title = f"### Table {table.number}: {table.title}\n"
    rows = [row for row in table.rows if any(one.runs for one in outcomes if one.claim.row.id == row.id)]
    if not rows:
        return f"{title}\nNot measured yet: {len(table.rows)} rows, {len(outcomes)} numbers.\n"
    cells = {(one.claim.row.id, one.claim.column.id): one for one in outcomes}
    lines = [
        [
            row_name(row),
            *(cell(cells[row.id, column.id], compared) for column in table.columns),
            seeds(row, outcomes),
        ]
        for row in rows
    ]
    absent = [row_name(row) for row in table.rows if row not in rows]
    left = f"\nNot measured yet: {'; '.join(absent)}.\n" if absent else ""
    head = ["measured (printed)", *map(heading, table.columns), "runs"]
    return f"{title}\n{grid(head, lines)}{left}\n{facts(outcomes)}\n"


def excerpt(table: Table, outcomes: Sequence[Outcome], dataset: str, architecture: str) -> str:
    """The measured rows of one data set and network, measured (printed); and which are not measured yet."""
    own = [row for row in table.rows if (row.dataset, row.architecture) == (dataset, architecture)]
    cells = {(one.claim.row.id, one.claim.column.id): one for one in outcomes}
    rows = [row for row in own if any(cells[row.id, one.id].runs for one in table.columns)]
    lines = [[row.name, *(short_cell(cells[row.id, column.id]) for column in table.columns)] for row in rows]
    shown = [one for one in outcomes if one.claim.row.id in {row.id for row in rows}]
    absent = [row.name for row in own if row not in rows]
    head = [f"{dataset}, {architecture}: measured (printed)", *map(heading, table.columns)]
    said = [*dict.fromkeys(seeds(row, outcomes) for row in rows), *([facts(shown)] if rows else [])]
    said += [f"Not measured yet: {', '.join(absent)}."] if absent else []
    return f"{grid(head, lines)}\n{' '.join(said)}"


def short_cell(outcome: Outcome) -> str:
    decimals = outcome.claim.column.decimals
    return f"{own_cell(outcome.value, decimals, outcome.partial)} ({outcome.claim.value:.{decimals}f})"


def own_part(table: Table, own: Sequence[OwnRow]) -> str:
    """Our own models under the columns of a table of published ones."""
    rows = [row for row in own if row.table == table.id]
    if not rows:
        return ""
    lines = [
        [
            row.model,
            *(own_cell(row.values[column.id], column.decimals, row.partial) for column in table.columns),
            variants(row.runs),
        ]
        for row in rows
    ]
    head = ["our own, measured", *map(heading, table.columns), "runs"]
    return grid(head, lines)


def own_cell(value: float | None, decimals: int, partial: bool) -> str:
    return "-" if value is None else f"{value:.{decimals}f}" + ("~" if partial else "")


def heading(column: Column) -> str:
    return column.name if column.restarts < 2 else f"{column.name}, {column.restarts} restarts"


def row_name(row: Row) -> str:
    settings = {"s": row.scale, "m": row.margin, "beta": row.beta}
    other = [f", {name} = {value:g}" for name, value in settings.items() if value not in (None, USUAL[name])]
    return f"{row.name}, {row.dataset}, {row.architecture}{''.join(other)}"


def cell(outcome: Outcome, compared: bool) -> str:
    """Measured, with its error, beside what is printed; bold where the verdict is that the number does not hold.

    The difference of what cannot be `compared`, as that of a smoke test, would mean nothing.
    """
    decimals, printed = outcome.claim.column.decimals, outcome.claim.value
    if outcome.value is None or outcome.difference is None:
        return f"- ({printed:.{decimals}f})"
    value = own_cell(outcome.value, decimals, outcome.partial)
    marked = {FAILS: f"**{value}**", HOLDS: f"{value} ✓"}.get(outcome.verdict, value)
    error = "" if outcome.error is None else f" ± {outcome.error:.{decimals}f}"
    difference = f", {outcome.difference:+.{decimals}f}" if compared else ""
    return f"{marked}{error} ({printed:.{decimals}f}{difference})"


def seeds(row: Row, outcomes: Sequence[Outcome]) -> str:
    return variants([run for one in outcomes if one.claim.row.id == row.id for run in one.runs])


def variants(runs: Sequence[Measurement]) -> str:
    """Recipes with their lengths, and seeds."""
    names, found = sorted({run.variant for run in runs}), sorted({run.seed for run in runs})
    reasons = sorted({run.reason for run in runs if run.reason})
    said = f" (~ {', '.join(reasons)})" if reasons else ""
    return f"{', '.join(names)}; seed {', '.join(map(str, found))}{said}"


def facts(outcomes: Iterable[Outcome]) -> str:
    """Images, hardware and commits behind a table."""
    runs = [run for outcome in outcomes for run in outcome.runs]
    counts = sorted({run.count for run in runs}, reverse=True)
    hardware, commits = sorted({run.hardware for run in runs}), sorted({run.commit or "?" for run in runs})
    return (
        f"(n = {' and '.join(f'{n:,}' for n in counts)}; {', '.join(hardware)}; commits {', '.join(commits)})"
    )


def sentences_part(judgements: Sequence[Judgement]) -> str:
    """Every sentence with its verdict, and how its comparisons came out."""
    order = {verdict: place for place, verdict in enumerate((FAILS, HOLDS, UNCLEAR, MISSING))}
    rows = [
        [one.claim.words, one.verdict, leaning(one)]
        for one in sorted(judgements, key=lambda one: order[one.verdict])
    ]
    return "### What the paper says in words\n\n" + grid(["sentence", "verdict", "comparisons"], rows)


def leaning(judgement: Judgement) -> str:
    """How many comparisons point its way so far, settled or not."""
    measured = [one for one in judgement.comparisons if one.surplus is not None]
    agree = sum(one.verdict == HOLDS or (one.surplus or 0) > 0 for one in measured)
    if not measured:
        return f"0 of {len(judgement.comparisons)} measured"
    return f"{agree} of {len(measured)} measured point its way ({len(judgement.comparisons)} in all)"


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
