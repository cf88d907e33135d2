"""A reproduction: every number of the paper beside what was measured, and every sentence with a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from scaleproof.paper.claims import Claim, Table, claims, measurement_name
from scaleproof.paper.judge import FAILS, HOLDS, MISSING, SEEDS, UNCLEAR, Judgement, Measured, judge
from scaleproof.paper.measured import Measurement, by_claim
from scaleproof.paper.prose import prose
from scaleproof.paper.settings import own_models
from scaleproof.statistics import student_t, wilson_half_width

UNSAID = ("he-scale-unsaid", "scale-saturates")  # notes on numbers whose setting the paper leaves open
SCHEDULE_UNSAID = "own-schedule-unsaid"  # a note on numbers, not on what compares two of one schedule
VERDICTS = (HOLDS, FAILS, UNCLEAR, MISSING)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One printed number and the runs that measured it, one a seed."""

    claim: Claim
    runs: tuple[Measurement, ...]

    @property
    def value(self) -> float | None:
        return fmean(run.value for run in self.runs) if self.runs else None

    @property
    def difference(self) -> float | None:
        return None if self.value is None else self.value - self.claim.value

    @property
    def error(self) -> float | None:
        """Half an interval of 95%: where a new run would fall, by the spread of seeds; of the images for one run."""
        values = [run.value for run in self.runs]
        if len(values) > 1:
            return self.reach(values)
        if not values or self.claim.column.unit != "percent":
            return None
        return 100 * wilson_half_width(values[0] / 100, self.runs[0].count)

    def reach(self, values: Sequence[float]) -> float:
        """How far from their mean another value may fall; at least half the last digit that the paper prints."""
        spread = student_t(len(values) - 1) * stdev(values) * math.sqrt(1 + 1 / len(values))
        return max(spread, 0.5 * 10.0**-self.claim.column.decimals)

    def fits(self, values: Sequence[float]) -> bool:
        """Whether the printed number could be one more of these."""
        return abs(fmean(values) - self.claim.value) <= self.reach(values)

    @property
    def readings(self) -> list[list[float]]:
        """The values of all seeds: of the selected weights, and of the others where each seed has them."""
        return [
            [run.value for run in self.runs],
            *map(list, zip(*(run.others for run in self.runs), strict=False)),
        ]

    @property
    def partial(self) -> bool:
        return any(run.partial for run in self.runs)

    @property
    def verdict(self) -> str:
        """A number holds where it could be one of our runs; too few, or partial ones, settle nothing.

        Nor can a number be settled that was measured under one of two readings, where the paper does not say which:
        it may mean other weights of a training than the selected ones, too, and some attacks never saw those.
        """
        if self.difference is None:
            return MISSING
        open_setting = any(note.id in (*UNSAID, SCHEDULE_UNSAID) for note in self.claim.notes)
        if len(self.runs) < SEEDS or self.partial or open_setting:
            return UNCLEAR
        selected, *others = (self.fits(values) for values in self.readings)
        unseen = self.claim.row.trained and not others
        return HOLDS if selected else UNCLEAR if any(others) or unseen else FAILS

    def as_json(self, root: Path) -> dict[str, object]:
        return {
            "claim": self.claim.key,
            "printed": self.claim.value,
            "unit": self.claim.column.unit,
            "measured": self.value,
            "difference": self.difference,
            "error": self.error,
            "seeds": len(self.runs),
            "partial": self.partial,
            "verdict": self.verdict,
            "notes": [note.id for note in self.claim.notes],
            "runs": [run.as_json(root) for run in self.runs],
        }


@dataclass(frozen=True, kw_only=True)
class OwnRow:
    """A model of our own in a table of published ones: mean over seeds by column, None where nothing was measured."""

    table: str
    model: str
    values: Mapping[str, float | None]
    partial: bool
    runs: tuple[Measurement, ...]

    def as_json(self, root: Path) -> dict[str, object]:
        return {**vars(self), "runs": [run.as_json(root) for run in self.runs]}


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """The numbers of some tables, the sentences of the paper, and what was measured of both."""

    scale: str
    tables: tuple[Table, ...]
    outcomes: tuple[Outcome, ...]
    judgements: tuple[Judgement, ...]
    own: tuple[OwnRow, ...]  # models of our own beside published ones

    def of(self, table: Table) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.claim.table.id == table.id)

    def as_json(self, root: Path) -> dict[str, object]:
        return {
            "schema": "scaleproof.reproduction/1",
            "scale": self.scale,
            "tables": [{"id": table.id, "verdicts": counted(self.of(table))} for table in self.tables],
            "numbers": [outcome.as_json(root) for outcome in self.outcomes],
            "own": [row.as_json(root) for row in self.own],
            "sentences": [judgement_as_json(judgement) for judgement in self.judgements],
        }


def reproduction(
    tables: Sequence[Table],
    numbers: Iterable[Claim],
    found: Sequence[Measurement],
    *,
    scale: str,
    quantities: Mapping[str, Measured] | None = None,
) -> Reproduction:
    """Put claims and measurements together; `quantities` are those of the figures."""
    wanted = {table.id for table in tables}
    chosen = [claim for claim in numbers if claim.table.id in wanted]
    runs = by_claim(chosen, found)
    measured = {**measured_by_name(found), **(quantities or {})}
    return Reproduction(
        scale=scale,
        tables=tuple(tables),
        outcomes=tuple(Outcome(claim=claim, runs=tuple(runs[claim.key])) for claim in chosen),
        judgements=tuple(judge(sentence, measured) for sentence in prose()),
        own=tuple(
            row
            for table in tables
            for model in own_models(table.id)
            if (row := own_row(table, model.model, found))
        ),
    )


def own_row(table: Table, model: str, found: Sequence[Measurement]) -> OwnRow | None:
    """What was measured of one of our own models by the columns of a table, if anything was."""
    names = {column.id: measurement_name(model, column) for column in table.columns}
    runs = tuple(run for run in found if run.name in names.values())
    values = {
        id: fmean(seen) if (seen := [run.value for run in runs if run.name == name]) else None
        for id, name in names.items()
    }
    partial = any(run.partial for run in runs)
    return OwnRow(table=table.id, model=model, values=values, partial=partial, runs=runs) if runs else None


def unsaid() -> frozenset[str]:
    """Measurements that no table prints under a setting that is clear: they settle nothing."""
    clear = {one.measurement for one in claims() if not any(note.id in UNSAID for note in one.notes)}
    return frozenset(one.measurement for one in claims() if one.measurement not in clear)


def measured_by_name(found: Iterable[Measurement]) -> dict[str, Measured]:
    """The mean over seeds of every measurement, with the value of each seed."""
    left_open = unsaid()
    seeds: dict[str, dict[int, float]] = {}
    full: dict[str, bool] = {}
    for run in found:
        seeds.setdefault(run.name, {})[run.seed] = run.value
        full[run.name] = full.get(run.name, run.name not in left_open) and not run.partial
    return {
        name: Measured(value=fmean(values.values()), seeds=values, full=full[name])
        for name, values in seeds.items()
    }


def counted(judged: Sequence[Outcome] | Sequence[Judgement]) -> dict[str, int]:
    """How many of some numbers or sentences got which verdict."""
    return {verdict: sum(one.verdict == verdict for one in judged) for verdict in VERDICTS}


def judgement_as_json(judgement: Judgement) -> dict[str, object]:
    return {
        "id": judgement.claim.id,
        "words": judgement.claim.words,
        "verdict": judgement.verdict,
        "comparisons": [vars(comparison) for comparison in judgement.comparisons],
    }
