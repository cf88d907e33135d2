"""The paper as data: complete, consistent with itself where the paper is, and with notes where it is not."""

import copy
import json
from collections import Counter, defaultdict
from importlib.resources import files
from typing import Any

import pytest
import typer

from scaleproof.attacks.suites import SUITES, single_attacks, suite
from scaleproof.cli.main import app
from scaleproof.data import catalog
from scaleproof.defenses import METHODS, NAMES, defense, hypersphere, scale_invariant
from scaleproof.models.architectures import checked_architecture
from scaleproof.paper import (
    Claim,
    Measured,
    claim,
    claims,
    experiments,
    find,
    judge,
    printed,
    prose,
    quantities,
    tables,
)
from scaleproof.paper.claims import book_of
from scaleproof.paper.prose import sentences_of
from scaleproof.paper.settings import (
    BATCH_SIZE,
    INNER_STEPS,
    SCHEDULES,
    SINGLE_STEP,
    STATED,
    STEPS,
    STEPS_TO_EDGE,
    TERM_WEIGHTS,
)
from scaleproof.threat import Threat
from scaleproof.training import Steps, recipe

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
CONTRADICTED = {  # sentences that the paper's own tables speak against
    *("si-pgd-strongest-everywhere", "chosen-scale-best", "chosen-beta-best", "margin-term-helps"),
    *("mart-si-best-cifar100", "si-improves-cifar10", "si-improves-cifar100", "si-improves-autoattack"),
    *("si-improves-single-step", "si-improves-rays"),
}
BEYOND_TABLES = {  # sentences that the tables cannot settle
    *("pgd-moves-with-scale", "si-pgd-does-not-move", "si-pgd-stronger-at-every-scale"),
    *("pgd-gradient-vanishes", "si-gradient-never-vanishes", "not-obfuscated-3", "not-obfuscated-4"),
    *("larger-cosines", "weights-stay-small"),
}


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files("scaleproof.paper").joinpath(name).read_text("utf-8"))
    return found


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


def test_sentences_against_the_papers_own_tables() -> None:
    verdicts = {one.id: judge(one, printed()).verdict for one in prose()}
    assert {id for id, verdict in verdicts.items() if verdict == "does not hold"} == CONTRADICTED
    assert {id for id, verdict in verdicts.items() if verdict == "not measured"} == BEYOND_TABLES
    assert set(verdicts.values()) == {"holds", "does not hold", "not measured"}


def test_every_quantity_is_asked_for() -> None:
    asked = {side["quantity"] for one in prose() for side in (one.left, one.right) if "quantity" in side}
    assert asked == {quantity.id for quantity in quantities()}


def sentence(id: str) -> Any:
    return next(one for one in prose() if one.id == id)


def test_verdicts_need_room_beyond_the_error() -> None:
    gain = sentence("svhn-gain-at")
    ((left, right),) = gain.comparisons()

    def verdict(difference: float, error: float) -> str:
        values = {left.key: Measured(value=50.0 + difference, error=error), right.key: Measured(value=50.0)}
        return judge(gain, values).verdict

    assert verdict(2.06, 0.0) == "holds"
    assert verdict(2.05, 0.0) == "does not hold"
    assert verdict(2.5, 1.0) == verdict(1.5, 1.0) == "inconclusive"
    assert verdict(3.5, 1.0) == "holds"
    assert verdict(0.5, 1.0) == "does not hold"
    assert judge(gain, {left.key: Measured(value=60.0)}).verdict == "not measured"


def test_one_counterexample_is_enough_against_all_but_not_against_most() -> None:
    strict, mild = sentence("si-improves-cifar10"), sentence("si-mostly-improves-cifar10")
    values = printed()
    pairs = strict.comparisons()
    assert [(left.key, right.key) for left, right in pairs] == [
        (left.key, right.key) for left, right in mild.comparisons()
    ]
    up = {left.key: Measured(value=values[right.key].value + 1) for left, right in pairs}
    assert judge(strict, values | up).verdict == "holds"
    one_down = values | up | {pairs[0][0].key: Measured(value=0.0)}
    assert judge(strict, one_down).verdict == "does not hold"
    assert judge(mild, one_down).verdict == "holds"
    part = {key: up[key] for key in list(up)[:3]} | {right.key: values[right.key] for _, right in pairs}
    assert judge(strict, part).verdict == judge(mild, part).verdict == "inconclusive"


def test_equal_has_a_tolerance() -> None:
    still = sentence("si-pgd-does-not-move")
    ((left, _),) = still.comparisons()
    assert judge(still, {left.key: Measured(value=0.0)}).verdict == "holds"
    assert judge(still, {left.key: Measured(value=0.1)}).verdict == "does not hold"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "larger"}, "must be one of greater, less, equal"),
        ({"of": "some"}, "must be one of all, most"),
        ({"left": {"cells": {"table": "svnh"}}}, "must compare something"),
        ({"left": {"quantity": "swng", "of": {}}}, "quantity of .* must be one of"),
        ({"left": {"quantity": "head-norm", "of": {"model": "resnet18"}}}, "model of .* must be one of"),
        ({"left": {"quantity": "swing", "of": {"model": "x"}}}, "swing must be of"),
        ({"left": {}}, "a side must be cells, a quantity or a constant"),
        ({"by": -1.0}, "must not be negative"),
    ],
)
def test_a_damaged_sentence_is_noticed(change: dict[str, Any], message: str) -> None:
    damaged = document("prose.json")
    damaged["claims"][0] |= change
    with pytest.raises(ValueError, match=message):
        sentences_of(damaged)


def test_every_name_is_one_of_ours() -> None:
    known = {*SUITES, *single_attacks()}
    for one in experiments():
        assert one.dataset in catalog.names()
        checked_architecture(one.architecture)
        assert {name for name, _ in one.attacks} <= known
        assert one.defense in NAMES or not one.trained
    assert {method.name for method in METHODS if method().single_step} == set(SINGLE_STEP)


def test_every_training_can_be_built() -> None:
    """Recipe, SI and HE accept what the rows say, and the command line accepts the words."""
    train = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    for one in (found for found in experiments() if found.trained):
        for name in (one.recipe, STATED):
            found = recipe(one.defense, name=name, architecture=one.architecture)
            assert found.name == name
        if one.mechanism == "si":
            changed = scale_invariant(found.defense, scale=one.scale, margin=one.margin, weight=one.beta)
            assert (changed.margin.scale, changed.margin.margin, changed.margin.weight) == (
                *(one.scale, one.margin, one.beta),
            )
        if one.mechanism == "he":
            assert hypersphere(found.defense).label_margin > 0
        given = train.make_context("train", list(one.command()[1:])).params
        assert (given["method"], given["model"], given["data"]) == (
            one.defense,
            one.architecture,
            one.dataset,
        )
        assert (given["si"], given["he"]) == (one.mechanism == "si", one.mechanism == "he")
        if one.mechanism == "si":
            assert (given["scale"], given["margin"], given["beta"]) == (one.scale, one.margin, one.beta)
    published = [one for one in experiments() if not one.trained]
    assert {one.tables for one in published} == {("attacks",)}
    assert len(published) == 7
    with pytest.raises(ValueError, match="others published"):
        published[0].command()


def test_our_defaults_are_the_papers_settings() -> None:
    eight = Threat()
    for name, weight in TERM_WEIGHTS.items():
        assert defense(name).weight == weight  # type: ignore[attr-defined]
    for name in ("at", *TERM_WEIGHTS):
        inner = defense(name).inner
        assert inner is not None
        assert (inner.steps, inner.threat.eps) == (INNER_STEPS, eight.eps)
        assert inner.step_size == pytest.approx(eight.eps / STEPS_TO_EDGE)
    for attack in suite("paper"):
        assert attack.steps == STEPS  # type: ignore[attr-defined]
    for architecture, said in SCHEDULES.items():
        config = recipe("at", name=STATED, architecture=architecture).config
        assert (config.rate, config.momentum, config.weight_decay) == (
            said.rate,
            said.momentum,
            said.weight_decay,
        )
        assert (config.epochs, config.batch_size) == (said.epochs, BATCH_SIZE)
        assert config.schedule == Steps(said.decays)
    assert set(SCHEDULES) == {one.architecture for one in experiments() if one.trained}


def test_experiments_settle_every_number_once() -> None:
    keys = [one.key for found in experiments() for one in found.claims]
    assert sorted(keys) == sorted(one.key for one in claims())
    names = [found.model for found in experiments()]
    assert len(set(names)) == len(names)
    assert {found.model for found in experiments("svhn")} == {one.row.model for one in claims("svhn")}
    trades = next(found for found in experiments("scale") if found.mechanism == "none")
    assert trades.tables == ("scale", "margin", "beta", "multi-step", "black-box", "hypersphere")
    attacked = next(found for found in experiments("attacks") if found.published == "Carmon2019Unlabeled")
    assert attacked.attacks == (("pgd", 5), ("pgd-cw", 5), ("pgd-dlr", 5), ("si-pgd", 5))
    assert attacked.weights == "robustbench:Carmon2019Unlabeled"
