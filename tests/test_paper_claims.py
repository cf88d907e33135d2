"""The paper's numbers as data: complete, consistent where the paper is, and with notes where it is not."""

import copy
from collections import Counter, defaultdict
from typing import Any

import pytest

from paper_helpers import document
from scaleproof.paper import Claim, claim, claims, find, tables
from scaleproof.paper.claims import book_of

SHAPES = {  # rows and columns of every table; a cell with a measured value counts, a printed setting does not
    "scale": (8, 5),
    "margin": (8, 5),
    "beta": (8, 5),
    "attacks": (7, 9),
    "multi-step": (32, 5),  # printed as 16 rows with two data sets side by side
    "svhn": (8, 5),
    "single-step": (8, 4),
    "black-box": (8, 5),
    "hypersphere": (9, 4),
}
SUMS = {  # of the values of a table, and of each times its position from 1
    "scale": (2397.26, 48680.28),
    "margin": (2385.05, 48343.95),
    "beta": (2392.42, 48628.63),
    "attacks": (3887.54, 125281.02),
    "multi-step": (7699.82, 542541.26),
    "svhn": (2546.15, 51707.00),
    "single-step": (1855.10, 30222.08),
    "black-box": (1825.0860, 36762.0235),
    "hypersphere": (1672.06, 27232.04),
}


def noted(id: str) -> set[str]:
    return {claim.key for claim in claims() if id in {note.id for note in claim.notes}}


def block(one: Claim) -> tuple[Claim, ...]:
    """The numbers among which a bold mark says which is best."""
    if one.table.id == "attacks":
        return find(table="attacks", row=one.row.id, restarts=one.column.restarts)
    same = {"dataset": one.row.dataset, "architecture": one.row.architecture}
    return find(table=one.table.id, column=one.column.id, **same)


def test_every_table_is_whole() -> None:
    assert {table.id: (len(table.rows), len(table.columns)) for table in tables()} == SHAPES
    assert Counter(one.table.id for one in claims()) == {
        id: rows * cols for id, (rows, cols) in SHAPES.items()
    }
    assert len({one.key for one in claims()}) == len(claims()) == 491
    assert [table.number for table in tables()] == list(range(2, 11))  # the first table has formulas


@pytest.mark.parametrize("table", SHAPES)
def test_sums(table: str) -> None:
    """The sums were taken from the paper's source, the values typed: a digit or a place that changes is noticed."""
    values = [one.value for one in claims(table)]
    weighted = sum(place * value for place, value in enumerate(values, 1))
    assert (sum(values), weighted) == pytest.approx(SUMS[table], abs=1e-6)


def test_a_measurement_printed_twice_has_one_value() -> None:
    values = defaultdict(set)
    for one in claims():
        values[one.measurement].add(one.value)
    assert all(len(found) == 1 for found in values.values())
    repeated = Counter(one.measurement for one in claims())
    trades = claim("scale/trades/pgd")
    assert repeated[trades.measurement] == 5  # three ablations, multi-step, hypersphere
    assert (
        claim("margin/trades-si-m0.2/aa").measurement == claim("hypersphere/cifar10-trades-si/aa").measurement
    )
    assert claim("margin/trades-si-m0.1/aa").measurement != claim("margin/trades-si-m0.2/aa").measurement


def test_attacks_never_help() -> None:
    """An attack leaves no more than the clean accuracy, restarts and AutoAttack no more than one run of PGD."""
    for one in find(metric="robust"):
        clean = find(table=one.table.id, row=one.row.id, column="clean")
        assert all(one.value < other.value for other in clean)
    for one in find(column="aa"):
        assert one.value < min(
            o.value for o in find(table=one.table.id, row=one.row.id, restarts=1) if o != one
        )
    for one in find(restarts=5):
        assert one.value < claim(one.key.removesuffix("-5")).value
    for one in find(attack="spsa-512"):
        assert (
            one.value
            < claim(one.key.replace("512", "256")).value
            < claim(one.key.replace("512", "128")).value
        )


def test_bold_is_best_but_where_a_note_says_so() -> None:
    for table in tables():
        for one in (found for found in claims(table.id) if found.bold):
            values = [other.value for other in block(one)]
            best = one.value == (min(values) if table.id == "attacks" else max(values))
            assert best != (one.key in noted("bold-not-best") | noted("chosen-not-best")), one.key
    assert noted("bold-not-best") == {
        "multi-step/cifar100-wrn-34-10-trades/clean",
        "multi-step/cifar100-wrn-34-10-mart-si/aa",
        "svhn/trades-si/aa",
    }
    assert {one.row.id for one in claims() if one.bold and one.table.marks == "chosen"} == {
        "trades-si-s15",
        "trades-si-m0.2",
        "trades-si-beta0.2",
    }


def test_one_bold_in_each_column_of_a_block() -> None:
    marked = Counter((one.table.id, one.row.dataset, one.row.architecture, one.column.id)
                     for one in claims() if one.bold and one.table.id != "attacks")  # fmt: skip
    there = {(one.table.id, one.row.dataset, one.row.architecture, one.column.id)
             for one in claims() if one.table.id != "attacks"}  # fmt: skip
    assert marked == dict.fromkeys(there, 1)


def test_notes_are_where_they_belong() -> None:
    lower = set()
    for one in find(mechanism="si", metric=["robust", "distance"]):
        same = {name: one.fields[name] for name in ("table", "dataset", "architecture", "defense", "column")}
        (plain,) = find(mechanism="none", **same)
        lower |= {one.key} if one.value < plain.value else set()
    assert noted("si-lowers") == lower
    pairs = find(table="multi-step", mechanism="si", column="aa")
    assert sum(one.key in lower for one in pairs) == 5
    assert len(pairs) == 16
    own = find(table=["multi-step", "svhn"], mechanism="si", column="si-pgd")
    assert (sum(one.key in noted("si-pgd-not-strongest") for one in own), len(own)) == (17, 20)
    assert noted("extra-data") == {one.key for one in find(extra_data=True)}
    (most,) = (
        one for one in find(table="beta", column="pgd") if one.key in noted("gain-without-margin-term")
    )
    assert most.value == max(one.value for one in find(table="beta", column="pgd"))
    rising = [one.value for one in find(table="scale", mechanism="si", column="si-pgd")]
    assert rising == sorted(rising)


def test_selectors() -> None:
    (found,) = find(table="svhn", defense="at", mechanism="si", column="pgd")
    assert found == claim("svhn/at-si/pgd")
    assert len(find(dataset=["cifar10", "cifar100"], metric="clean", table="multi-step")) == 32
    with pytest.raises(ValueError, match=r"must name fields among .*, got 'tabel'"):
        find(tabel="svhn")
    with pytest.raises(ValueError, match=r"a table must be one of scale, margin.*, got 'svnh'"):
        claims("svnh")
    with pytest.raises(ValueError, match="a key must be table/row/column"):
        claim("svhn/at")


def change(path: list[Any], value: object) -> dict[str, Any]:
    changed = copy.deepcopy(document("claims.json"))
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["tables", 0, "rows", 0, "values", "pgd"], 105.0, "between 0 and 100 with 2 decimals"),
        (["tables", 0, "rows", 0, "values", "pgd"], 55.233, "between 0 and 100 with 2 decimals"),
        (["tables", 7, "rows", 0, "values", "rays-distance"], 3.7, "between 0 and 1 with 4 decimals"),
        (["tables", 0, "rows", 0, "values"], {"pgd": 1.0}, "a row must have the columns of scale"),
        (["tables", 0, "rows", 0, "id"], "trades-si-s10", "rows of scale must be unique"),
        (["tables", 1, "id"], "scale", "tables must be unique"),
        (["tables", 0, "rows", 0, "scale"], 15.0, "s, m and beta go with SI"),
        (["tables", 0, "rows", 0, "mechanism"], "sii", "mechanism must be one of none, si, he"),
        (["tables", 0, "rows", 0, "bold"], ["pdg"], "bold must name columns"),
        (["tables", 0, "columns", 1, "attack"], None, "a column must name an attack unless it is clean"),
        (["notes", 0, "cells"], ["svhn/at/pgdd"], "a note must be about numbers of the paper"),
    ],
)
def test_damage_is_noticed(path: list[Any], value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        book_of(change(path, value))
