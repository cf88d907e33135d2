"""What the paper says in words, as comparisons of things that can be measured.

Each side of a comparison is a set of printed numbers (`cells`), a quantity of an analysis (`quantity`) or a `constant`.
Items of the left side meet the items of the right side that agree with them in the fields named by `match`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from scaleproof.paper.claims import claims, find, one_of, unique

KINDS = ("greater", "less", "equal")
SHARES = ("all", "most")  # of the comparisons must hold


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """Something that no table holds, which analysis gives it, and what an item of it is told apart by."""

    id: str
    words: str
    source: str
    fields: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Item:
    """One side of one comparison: the name of a measurement, or a value that needs none."""

    key: str
    fields: Mapping[str, object]
    value: float | None = None


@dataclass(frozen=True, kw_only=True)
class ProseClaim:
    """A sentence: left is greater than, less than or equal to right, by so much, in all or most comparisons."""

    id: str
    section: str
    words: str  # our own
    kind: str
    left: Mapping[str, Any]
    right: Mapping[str, Any]
    match: tuple[str, ...]
    by: float
    tolerance: float
    of: str
    remark: str | None

    def comparisons(self) -> tuple[tuple[Item, Item], ...]:
        """Every pair that the sentence is about, once though several tables print it, and no item with itself."""
        found = {
            (left.key, right.key): (left, right)
            for left in items(self.left)
            for right in items(self.right)
            if left.key != right.key and meet(left, right, self.match)
        }
        return tuple(found.values())


def meet(left: Item, right: Item, match: tuple[str, ...]) -> bool:
    return all(left.fields[name] == right.fields[name] for name in match)


def items(side: Mapping[str, Any]) -> Iterator[Item]:
    """The items of one side, in the order of the paper or of the values given."""
    if "constant" in side:
        yield Item(key=f"constant/{side['constant']:g}", fields={}, value=float(side["constant"]))
    elif "cells" in side:
        for claim in find(**side["cells"]):
            yield Item(key=claim.measurement, fields=claim.fields)
    else:
        lists = [value if isinstance(value, list) else [value] for value in side["of"].values()]
        for values in product(*lists):
            words = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
            key = "/".join([side["quantity"], *words])
            yield Item(key=key, fields=dict(zip(side["of"], values, strict=True)))


@cache
def sentences() -> tuple[tuple[Quantity, ...], tuple[ProseClaim, ...]]:
    """All of prose.json, read and checked once."""
    return sentences_of(json.loads(files(__package__).joinpath("prose.json").read_text("utf-8")))


def quantities() -> tuple[Quantity, ...]:
    """What has to be measured beside the tables."""
    return sentences()[0]


def prose() -> tuple[ProseClaim, ...]:
    """Every sentence of the paper that can be checked, in its order."""
    return sentences()[1]


def sentences_of(document: Mapping[str, Any]) -> tuple[tuple[Quantity, ...], tuple[ProseClaim, ...]]:
    """What a document in the form of prose.json says; an error where it asks for what is not there."""
    known = {
        entry["id"]: Quantity(**{**entry, "fields": tuple(entry["fields"])})
        for entry in document["quantities"]
    }
    found = tuple(ProseClaim(**{**entry, "match": tuple(entry["match"])}) for entry in document["claims"])
    unique("quantities", [entry["id"] for entry in document["quantities"]])
    unique("sentences", [claim.id for claim in found])
    models = {claim.row.model for claim in claims()}
    for claim in found:
        one_of(f"kind of {claim.id}", claim.kind, KINDS)
        one_of(f"of in {claim.id}", claim.of, SHARES)
        for side in (claim.left, claim.right):
            check_side(claim.id, side, known, models)
        if not claim.comparisons():
            raise ValueError(f"a sentence must compare something, {claim.id} finds no two numbers that meet")
        if claim.by < 0 or claim.tolerance < 0 or (claim.kind == "equal" and claim.by):
            raise ValueError(f"by and tolerance must not be negative, nor equal have a by; see {claim.id}")
    return tuple(known.values()), found


def check_side(name: str, side: Mapping[str, Any], known: Mapping[str, Quantity], models: set[str]) -> None:
    """A side has one form, and what it names is there."""
    if "quantity" not in side:
        if set(side) not in ({"cells"}, {"constant"}):
            raise ValueError(f"a side must be cells, a quantity or a constant, {name} has {sorted(side)}")
        return
    one_of(f"quantity of {name}", side["quantity"], known)
    if tuple(side["of"]) != known[side["quantity"]].fields:
        raise ValueError(f"{side['quantity']} must be of {known[side['quantity']].fields}, not so in {name}")
    one_of(f"model of {name}", side["of"]["model"], models)
