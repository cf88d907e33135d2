"""The paper's sentences as data, judged by its own tables and by measurements."""

from dataclasses import replace
from typing import Any

import pytest

from paper_helpers import document
from scaleproof.paper import Measured, judge, printed, prose, quantities
from scaleproof.paper.prose import sentences_of

CONTRADICTED = {  # sentences that the paper's own tables speak against
    *("si-pgd-strongest-everywhere", "chosen-scale-best", "chosen-beta-best", "margin-term-helps"),
    *("mart-si-best-cifar100", "si-improves-cifar10", "si-improves-cifar100", "si-improves-autoattack"),
    *("si-improves-single-step", "si-improves-rays"),
}
BEYOND_TABLES = {  # sentences that the tables cannot settle
    *("pgd-moves-with-scale", "si-pgd-does-not-move", "si-pgd-stronger-at-every-scale"),
    *("pgd-gradient-vanishes", "si-gradient-never-vanishes", "not-obfuscated-3", "not-obfuscated-4"),
    *("larger-cosines", "weights-stay-small", "si-training-keeps-gradients"),
}


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
    gain = replace(sentence("svhn-gain-at"), by=2.06, tolerance=0.005)
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
