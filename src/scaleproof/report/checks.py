"""The checks of an evaluation: whether its number may be quoted, why not, and what to do next."""

from collections.abc import Sequence
from dataclasses import replace

from scaleproof.report import words
from scaleproof.report.records import Check, Evaluation, Provenance
from scaleproof.report.sections import Section
from scaleproof.report.tables import Column, Row, Table

VERDICTS = {False: "failed", None: "skipped", True: "passed"}
ORDER = (False, None, True)
NOT_EXAMINED = (
    "Nobody examined this number: the run has no checks on record, so nothing here says that the attacks "
    "worked as they should."
)


def checks_sentence(evaluation: Evaluation) -> str:
    """Say in one sentence how the checks ended."""
    checks = evaluation.checks
    if checks is None and evaluation.reliable is None:
        return NOT_EXAMINED
    if not words.trusted(evaluation):
        failed = [check.label for check in checks or () if check.passed is False]
        count = f"{len(failed)} of {words.plural(len(checks or ()), 'check')} failed"
        reason = (
            f"{count} ({', '.join(failed)})" if failed else "the run says so without naming a failed check"
        )
        return f"Unreliable: {reason}. The true robust accuracy may be far lower; do not quote the number."
    passed = sum(check.passed is True for check in checks or ())
    left = len(checks or ()) - passed
    also = f" {words.plural(left, 'check')} {'was' if left == 1 else 'were'} skipped." if left else ""
    return (
        f"{words.plural(passed, 'check')} passed and none failed: nothing is known that makes the number "
        f"unreliable. It is an upper bound all the same.{also}"
    )


def alarm(evaluation: Evaluation | None) -> str:
    """Say why the number must not be quoted, or nothing where it may."""
    if evaluation is None:
        return ""
    if not words.trusted(evaluation):
        return checks_sentence(evaluation)
    said = one_answer(evaluation)
    return f"{said[:1].upper()}{said[1:]}." if said else ""


def one_answer(evaluation: Evaluation) -> str:
    """Say that the network answers one class for everything, or nothing where it does not."""
    found = (finding.meaning for finding in evaluation.findings if finding.name == "one-answer")
    return next(found, "")


def checks_section(run: Provenance, evaluation: Evaluation) -> Section:
    """Build the section on checks: those that failed or were skipped at once, those that passed folded."""
    ordered = sorted(evaluation.checks or (), key=lambda check: ORDER.index(check.passed))
    asking = [check for check in ordered if check.passed is not True]
    good = [check for check in ordered if check.passed is True]
    note = words.provenance_note(run, evaluation.worst_case.count)
    tables = (
        checks_table(caption(asking), asking, note, folded=False),
        checks_table(f"Checks that passed ({len(good)})", good, note, folded=True),
    )
    return Section(
        identifier="checks",
        title="Checks",
        paragraphs=(checks_sentence(evaluation),),
        tables=tuple(table for table in tables if table.rows),
    )


def caption(asking: Sequence[Check]) -> str:
    """Name the table of the checks that did not pass by what became of them."""
    kinds = {check.passed for check in asking}
    named = {False: "failed", None: "were skipped"}
    return f"Checks that {' or '.join(text for passed, text in named.items() if passed in kinds)}"


def checks_table(caption: str, checks: Sequence[Check], note: str, *, folded: bool) -> Table:
    """Build a table of checks: what was seen, what it means and, where there is any advice, what to do."""
    heads: tuple[Column, ...] = (
        Column(title="What was checked", numeric=False, prose=True),
        Column(title="Value"),
        Column(title="Limit"),
        Column(title="Verdict", numeric=False),
        Column(title="Meaning", numeric=False, prose=True),
        Column(title="What to do next", numeric=False, prose=True),
    )
    rows = tuple(map(check_row, checks))
    if all(row.cells[-1] == words.DASH for row in rows):
        heads, rows = heads[:-1], tuple(replace(row, cells=row.cells[:-1]) for row in rows)
    return Table(caption=caption, columns=heads, rows=rows, notes=(note,), folded=folded)


def check_row(check: Check) -> Row:
    """Build the line of one check."""
    marks = {False: "failed", None: "unknown", True: "passed"}
    return Row(
        cells=(
            words.topic(check.label) if check.passed is None else check.label,
            number(check.value),
            number(check.limit),
            VERDICTS[check.passed],
            check.meaning,
            words.DASH if check.passed or not check.advice else check.advice,
        ),
        strong=check.passed is False,
        mark=marks[check.passed],
    )


def number(value: float | None) -> str:
    """Print a number with four significant digits, or a dash where there is none."""
    return words.DASH if value is None else words.significant(value, 4)
