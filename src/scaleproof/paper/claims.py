"""Claims: the numbers of the paper's result tables, each with what it is about and what is known against it.

A number's key is `table/row/column`. Several tables print one measurement again: `Claim.measurement` is the same there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

MECHANISMS = ("none", "si", "he")
METRICS = ("clean", "robust", "distance")
MARKS = ("best", "chosen")  # what bold means in a table
LARGEST = {"percent": 100.0, "distance": 1.0}


@dataclass(frozen=True, kw_only=True)
class Note:
    """Something that speaks against a number, or that the paper leaves unsaid about it."""

    id: str
    words: str


@dataclass(frozen=True, kw_only=True)
class Column:
    """What was measured: the clean accuracy, the accuracy that an attack left, or the distance it found."""

    id: str
    name: str  # as printed
    metric: str
    attack: str | None  # the name of an attack or a suite here
    restarts: int
    unit: str
    decimals: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """Which model was measured; s, m and beta where the SI mechanism has them."""

    id: str
    name: str  # as printed
    dataset: str
    architecture: str
    defense: str
    mechanism: str
    scale: float | None
    margin: float | None
    beta: float | None
    trained: bool  # by the paper's authors; others published the rest
    extra_data: bool
    published: str | None  # under which name RobustBench has it

    @property
    def model(self) -> str:
        """One name for one model, in whichever table it stands."""
        if not self.trained:
            return f"{self.dataset}/{self.architecture}/{self.defense}/published"
        settings = {"s": self.scale, "m": self.margin, "beta": self.beta}
        given = [f"{name}={value:g}" for name, value in settings.items() if value is not None]
        mechanism = "" if self.mechanism == "none" else f"-{self.mechanism}"
        return "/".join([self.dataset, self.architecture, self.defense + mechanism, *given])


@dataclass(frozen=True, kw_only=True)
class Table:
    """A result table: where it stands in the paper, what its bold marks mean, its rows and columns in order."""

    id: str
    title: str
    label: str  # in the TeX source
    number: int
    section: str
    marks: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One printed number."""

    table: Table = field(repr=False)
    row: Row
    column: Column
    value: float
    bold: bool
    notes: tuple[Note, ...]

    @property
    def key(self) -> str:
        return f"{self.table.id}/{self.row.id}/{self.column.id}"

    @property
    def measurement(self) -> str:
        """The same for two numbers that one measurement settles: model, attack, restarts and metric."""
        return measurement_name(self.row.model, self.column)

    @cached_property
    def fields(self) -> Mapping[str, object]:
        """What a selector sees: the ids of table, row and column, and what the last two hold."""
        row = {name: getattr(self.row, name) for name in OF_ROW}
        column = {name: getattr(self.column, name) for name in OF_COLUMN}
        return {"table": self.table.id, "row": self.row.id, "column": self.column.id, **row, **column}


def measurement_name(model: str, column: Column) -> str:
    """One name for one measurement: model, attack, restarts and metric."""
    return f"{model}/{column.attack or 'none'}/{column.restarts}/{column.metric}"


OF_ROW = tuple(part.name for part in fields(Row) if part.name not in ("id", "name"))
OF_COLUMN = tuple(part.name for part in fields(Column) if part.name not in ("id", "name"))
SELECTABLE = ("table", "row", "column", *OF_ROW, *OF_COLUMN)


@dataclass(frozen=True, kw_only=True)
class Book:
    """The tables of claims.json, and every number in them."""

    tables: tuple[Table, ...]
    claims: tuple[Claim, ...]


@cache
def book() -> Book:
    """The paper's numbers, read and checked once."""
    return book_of(json.loads(files(__package__).joinpath("claims.json").read_text("utf-8")))


def tables() -> tuple[Table, ...]:
    """The nine result tables, in the paper's order."""
    return book().tables


def claims(table: str | None = None) -> tuple[Claim, ...]:
    """Every number, or those of one table."""
    if table is None:
        return book().claims
    known = [found.id for found in tables()]
    if table not in known:
        raise ValueError(f"a table must be one of {', '.join(known)}, got {table!r}")
    return find(table=table)


def claim(key: str) -> Claim:
    """The number with a key, table/row/column."""
    found = [claim for claim in book().claims if claim.key == key]
    if not found:
        raise ValueError(
            f"a key must be table/row/column of a number in the paper, got {key!r}: see claims()"
        )
    return found[0]


def find(**where: object) -> tuple[Claim, ...]:
    """The numbers whose fields are as given; a list or tuple allows several values."""
    unknown = [name for name in where if name not in SELECTABLE]
    if unknown:
        raise ValueError(f"a selector must name fields among {', '.join(SELECTABLE)}, got {unknown[0]!r}")
    return tuple(claim for claim in book().claims if fits(claim.fields, where))


def fits(seen: Mapping[str, object], where: Mapping[str, object]) -> bool:
    """Whether every field asked for has the value, or one of the values, asked for."""
    allowed = {name: value if isinstance(value, list | tuple) else [value] for name, value in where.items()}
    return all(seen[name] in values for name, values in allowed.items())


def book_of(document: Mapping[str, Any]) -> Book:
    """What a document in the form of claims.json says; an error where it contradicts itself."""
    notes = {entry["id"]: Note(id=entry["id"], words=entry["words"]) for entry in document["notes"]}
    cells = {entry["id"]: frozenset(entry["cells"]) for entry in document["notes"]}
    pairs = [(table_of(entry), entry["rows"]) for entry in document["tables"]]
    found: list[Claim] = []
    for table, rows in pairs:
        for row, entry in zip(table.rows, rows, strict=True):
            same("columns", table.id, [column.id for column in table.columns], entry["values"])
            for column in table.columns:
                key = f"{table.id}/{row.id}/{column.id}"
                against = tuple(notes[id] for id, concerned in cells.items() if key in concerned)
                found.append(claim_of(table, row, column, entry, against))
    unique("tables", [table.id for table, _ in pairs])
    unique("labels", [table.label for table, _ in pairs])
    unique("notes", [entry["id"] for entry in document["notes"]])
    lost = frozenset().union(*cells.values()) - {claim.key for claim in found}
    if lost:
        raise ValueError(f"a note must be about numbers of the paper, {sorted(lost)[0]} is none")
    tables = tuple(table for table, _ in pairs)
    return Book(tables=tables, claims=tuple(found))


def table_of(entry: Mapping[str, Any]) -> Table:
    parts = {part.name: entry[part.name] for part in fields(Table)}
    names = {part.name for part in fields(Row)}
    columns = tuple(Column(**column) for column in entry["columns"])
    rows = tuple(Row(**{name: row[name] for name in names}) for row in entry["rows"])
    unique(f"rows of {entry['id']}", [row.id for row in rows])
    unique(f"columns of {entry['id']}", [column.id for column in columns])
    one_of("marks", entry["marks"], MARKS)
    for column in columns:
        one_of("metric", column.metric, METRICS)
        one_of("unit", column.unit, LARGEST)
        if (column.attack is None) != (column.metric == "clean") or (column.restarts == 0) != (
            not column.attack
        ):
            raise ValueError(
                f"a column must name an attack unless it is clean, {entry['id']}/{column.id} does not"
            )
    for row in rows:
        one_of("mechanism", row.mechanism, MECHANISMS)
        settings = [value is not None for value in (row.scale, row.margin, row.beta)]
        if settings != [row.mechanism == "si"] * 3:
            raise ValueError(f"s, m and beta go with SI and SI with them, not so in {entry['id']}/{row.id}")
    return Table(**{**parts, "rows": rows, "columns": columns})


def claim_of(
    table: Table, row: Row, column: Column, entry: Mapping[str, Any], notes: tuple[Note, ...]
) -> Claim:
    value, largest = float(entry["values"][column.id]), LARGEST[column.unit]
    if not 0 <= value <= largest or round(value, column.decimals) != value:
        raise ValueError(
            f"a value must lie between 0 and {largest:g} with {column.decimals} decimals, "
            f"{table.id}/{row.id}/{column.id} is {value}"
        )
    stray = sorted({*entry["bold"]} - {*entry["values"]})
    if stray:
        raise ValueError(f"bold must name columns of its table, {table.id}/{row.id} has {stray[0]!r}")
    return Claim(
        table=table, row=row, column=column, value=value, bold=column.id in entry["bold"], notes=notes
    )


def one_of(what: str, value: object, known: Iterable[object]) -> None:
    if value not in known:
        raise ValueError(f"{what} must be one of {', '.join(map(str, known))}, got {value!r}")


def unique(what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"{what} must be unique, {twice[0]!r} is there more than once")


def same(what: str, where: str, wanted: list[str], given: Mapping[str, object]) -> None:
    if wanted != list(given):
        raise ValueError(f"a row must have the {what} of {where}, {wanted}, got {list(given)}")
