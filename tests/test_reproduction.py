"""From run folders to verdicts on the paper's numbers and sentences."""

import math
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from reproduction_work import AT, some_claim
from scaleproof.paper import Measured, claims, judge, prose
from scaleproof.paper.judge import compared, distance
from scaleproof.paper.measured import Measurement
from scaleproof.paper.reproduction import Outcome, reproduction
from scaleproof.statistics import student_t


def measured(value: float, seed: int, **other: Any) -> Measurement:
    facts: dict[str, Any] = {
        "name": f"{AT.model}/pgd/1/robust",
        "count": 10_000,
        "variant": "pang-120",
        "others": (0.0,),  # far from anything printed
        "partial": False,
        "folder": Path("root/x"),
        "commit": "abc",
        "hardware": "chip",
    }
    return Measurement(value=value, seed=seed, **{**facts, **other})


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 30, 101])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_students_t_is_scipys(degrees: int, confidence: float) -> None:
    assert student_t(degrees, confidence) == pytest.approx(
        stats.t.ppf((1 + confidence) / 2, degrees), rel=1e-9
    )


def test_student_refuses() -> None:
    with pytest.raises(ValueError, match="degrees must be >= 1"):
        student_t(0)


def test_a_number_holds_where_it_could_be_one_of_our_runs() -> None:
    """Three seeds with mean m and deviation s: a new run falls within m +- 4.303 s sqrt(4/3), by hand."""
    printed = some_claim().value
    for shift, verdict in ((0.0, "holds"), (0.49, "holds"), (0.51, "does not hold")):
        values = [printed + shift + 0.1 * step for step in (-1, 0, 1)]  # the deviation is 0.1
        found = Outcome(claim=some_claim(), runs=tuple(measured(v, seed) for seed, v in enumerate(values)))
        assert found.error == pytest.approx(4.302653 * 0.1 * math.sqrt(4 / 3), rel=1e-5)
        assert found.verdict == verdict
        assert found.difference == pytest.approx(shift)


def test_few_or_partial_runs_settle_nothing() -> None:
    value = some_claim().value
    three = [measured(value + 0.1 * seed, seed) for seed in range(3)]
    assert Outcome(claim=some_claim(), runs=()).verdict == "not measured"
    assert Outcome(claim=some_claim(), runs=tuple(three[:2])).verdict == "inconclusive"
    one = Outcome(claim=some_claim(), runs=(measured(50.0, 0),))
    assert one.verdict == "inconclusive"
    assert one.error == pytest.approx(0.98, abs=0.01)  # 1.96 sqrt(.25 / 10,000) in percent
    cut = [measured(value, seed, partial=True) for seed in range(3)]
    assert Outcome(claim=some_claim(), runs=tuple(cut)).verdict == "inconclusive"


def test_differences_are_taken_seed_by_seed() -> None:
    """The seeds vary by points, the pairs hardly: paired, the difference is clear."""
    left = Measured(value=51.0, seeds={0: 50.0, 1: 51.0, 2: 52.0})
    right = Measured(value=50.0, seeds={0: 49.1, 1: 50.0, 2: 50.9})
    difference, error = distance(left, right)
    assert difference == pytest.approx(1.0)
    assert error == pytest.approx(4.302653 * 0.1 / math.sqrt(3), rel=1e-5)
    few, unclear = distance(left, Measured(value=49.1, seeds={0: 49.1, 7: 0.0}))
    assert few == pytest.approx(0.9)
    assert unclear is None
    assert distance(left, Measured(value=1.0, seeds={9: 1.0}))[1] is None  # no seed in common
    assert distance(left, Measured(value=50.0))[0] == pytest.approx(1.0)  # a constant goes with every seed
    assert distance(left, Measured(value=50.0, seeds=right.seeds, full=False))[1] is None


def test_a_sentence_over_seeds() -> None:
    sentence = next(
        one for one in prose() if one.kind == "greater" and "cells" in one.left and "cells" in one.right
    )
    pairs = sentence.comparisons()

    def values(seeds: int, gap: float) -> dict[str, Measured]:
        found: dict[str, Measured] = {}
        for left, right in pairs:
            found[right.key] = Measured(value=10.0, seeds={seed: 10.0 + 0.01 * seed for seed in range(seeds)})
            found[left.key] = Measured(value=10 + gap, seeds=dict.fromkeys(range(seeds), 10 + gap))
        return found

    assert judge(sentence, values(3, 50.0)).verdict == "holds"
    assert judge(sentence, values(3, -50.0)).verdict == "does not hold"
    assert judge(sentence, values(2, 50.0)).verdict == "inconclusive"


def test_one_of_many_comparisons_may_fail_by_chance() -> None:
    """Seeds that differ by 1 and by about 2.5 standard errors of t: clear alone, by chance among 138."""
    sentence = next(
        one for one in prose() if one.id == "si-pgd-strongest-everywhere" or len(one.comparisons()) > 100
    )
    left, right = sentence.comparisons()[0]
    sign = 1 if sentence.kind == "greater" else -1
    values = {
        left.key: Measured(value=50 - sign, seeds={0: 50 - sign * 0.8, 1: 50.0 - sign, 2: 50 - sign * 1.2}),
        right.key: Measured(value=50.0, seeds={0: 50.0, 1: 50.0, 2: 50.0}),
    }
    assert compared(sentence, left, right, values).verdict == "does not hold"  # 1 +- 0.5
    assert compared(sentence, left, right, values, total=138).verdict == "inconclusive"  # 1 +- 6


@pytest.mark.parametrize("note", ["he-scale-unsaid", "scale-saturates", "own-schedule-unsaid"])
def test_numbers_of_an_unsaid_setting_are_never_settled(note: str) -> None:
    found = next(one for one in claims() if any(said.id == note for said in one.notes))
    for shift in (0.0, 20.0):
        runs = tuple(measured(found.value + shift + 0.1 * seed, seed) for seed in range(3))
        assert Outcome(claim=found, runs=runs).verdict == "inconclusive"


def test_sentences_about_an_unsaid_setting_are_never_settled() -> None:
    """Three seeds of everything, HE far below SI: still, what HE's numbers were measured under is not said."""
    runs = [
        measured(
            one.value - (30 if one.row.mechanism == "he" else 0) + 0.01 * seed, seed, name=one.measurement
        )
        for one in claims("hypersphere")
        for seed in range(3)
    ]
    found = reproduction([], claims(), runs, scale="full")
    verdicts = {one.claim.id: one.verdict for one in found.judgements}
    assert verdicts["si-beats-he"] == "inconclusive"


@pytest.mark.parametrize(
    ("others", "verdict"), [((), "inconclusive"), ((-3.0, -6.0), "inconclusive"), ((5, 9), "does not hold")]
)
def test_a_number_may_be_that_of_other_weights(others: tuple[float, ...], verdict: str) -> None:
    """Ours are 3 points above what is printed; the last weights, or those best on test images, may not be."""
    runs = tuple(
        measured(
            some_claim().value + 3 + 0.1 * seed,
            seed,
            others=tuple(some_claim().value + 3 + by for by in others),
        )
        for seed in range(3)
    )
    assert Outcome(claim=some_claim(), runs=runs).verdict == verdict


def test_runs_exactly_at_what_is_printed_hold() -> None:
    """Shares of 10,000 images, as they come out of a division: none may fall by the noise of floating point."""
    for one in claims("multi-step"):
        runs = tuple(measured(100 * (round(one.value * 100) / 10_000), seed) for seed in range(3))
        assert Outcome(claim=one, runs=runs).verdict == "holds", one.key


def test_equal_differences_say_nothing_about_their_spread() -> None:
    """One image more of 10,000 in each of three seeds is no proof; no difference at all is what it is."""
    right = Measured(value=50.0, seeds={0: 50.0, 1: 51.0, 2: 49.0})
    left = Measured(value=50.01, seeds={seed: value + 0.01 for seed, value in right.seeds.items()})
    assert distance(left, right)[1] is None
    assert distance(right, right) == (0.0, 0.0)


def test_a_tie_is_no_counterexample() -> None:
    """No flat gradient anywhere, before or after: the sentence that asks for fewer is not refuted by it."""
    sentence = next(one for one in prose() if one.id == "si-training-keeps-gradients")
    zeros = Measured(value=0.0, seeds={0: 0.0, 1: 0.0, 2: 0.0})
    values = {item.key: zeros for pair in sentence.comparisons() for item in pair}
    assert judge(sentence, values).verdict == "inconclusive"


def test_what_never_saw_the_other_weights_is_not_refuted() -> None:
    """AutoAttack runs on the selected weights alone; for a network that others published there are no others."""
    for table, verdict in (("multi-step", "inconclusive"), ("attacks", "does not hold")):
        claim = next(one for one in claims(table) if one.row.trained == (table == "multi-step"))
        runs = tuple(measured(claim.value - 9 + 0.1 * seed, seed, others=()) for seed in range(3))
        assert Outcome(claim=claim, runs=runs).verdict == verdict
