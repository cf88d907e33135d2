"""From run folders to verdicts on the paper's numbers and sentences."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from scaleproof.paper import Measured, claim, claims, experiments, judge, prose, tables
from scaleproof.paper.judge import distance
from scaleproof.paper.measured import Measurement, evaluated_values, measurements, rays_values
from scaleproof.paper.page import page
from scaleproof.paper.reproduction import Outcome, reproduction
from scaleproof.statistics import student_t
from scaleproof.store import write_arrays, write_json

AT = next(one for one in experiments() if one.model == "cifar10/resnet18/at")


def measured(value: float, seed: int, **other: Any) -> Measurement:
    facts: dict[str, Any] = {
        "name": f"{AT.model}/pgd/1/robust",
        "count": 10_000,
        "variant": "pang-120",
        "short": False,
        "folder": Path("root/x"),
        "commit": "abc",
        "hardware": "chip",
    }
    return Measurement(value=value, seed=seed, **{**facts, **other})


def some_claim() -> Any:
    return next(one for one in claims("multi-step") if one.measurement == f"{AT.model}/pgd/1/robust")


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


def test_few_or_short_runs_settle_nothing() -> None:
    value = some_claim().value
    three = [measured(value + 0.1 * seed, seed) for seed in range(3)]
    assert Outcome(claim=some_claim(), runs=()).verdict == "not measured"
    assert Outcome(claim=some_claim(), runs=tuple(three[:2])).verdict == "inconclusive"
    one = Outcome(claim=some_claim(), runs=(measured(50.0, 0),))
    assert one.verdict == "inconclusive"
    assert one.error == pytest.approx(0.98, abs=0.01)  # 1.96 sqrt(.25 / 10,000) in percent
    cut = [measured(value, seed, short=True) for seed in range(3)]
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
            found[right.key] = Measured(value=10.0, seeds=dict.fromkeys(range(seeds), 10.0))
            found[left.key] = Measured(value=10 + gap, seeds=dict.fromkeys(range(seeds), 10 + gap))
        return found

    assert judge(sentence, values(3, 50.0)).verdict == "holds"
    assert judge(sentence, values(3, -50.0)).verdict == "does not hold"
    assert judge(sentence, values(2, 50.0)).verdict == "inconclusive"


def rays_run(folder: Path) -> Path:
    """Five images: wrong when clean; broken at 0.02; broken at 0.05; never found; broken at exactly 8/255."""
    sizes = np.array([[np.nan, 0.02, 0.05, np.nan, 8 / 255]], dtype=np.float32)
    arrays = {
        "clean_correct": np.array([False, True, True, True, True]),
        "size__rays": sizes,
        "broken__rays": np.array([[False, True, True, False, True]]),
    }
    write_arrays(folder / "verdicts.npz", arrays)
    return folder


def test_rays_by_hand(tmp_path: Path) -> None:
    found = rays_values(rays_run(tmp_path))
    assert found["rays/1/distance"] == pytest.approx((0 + 0.02 + 0.05 + 1 + 8 / 255) / 5)
    assert found["rays/1/robust"] == pytest.approx(100 * 2 / 5)
    (tmp_path / "verdicts.npz").write_bytes(b"no")
    with pytest.raises(ValueError, match="is absent or damaged: run the step again"):
        rays_values(tmp_path)


def share(correct: int, count: int = 200) -> dict[str, Any]:
    return {"correct": correct, "count": count, "accuracy": correct / count, "interval": [0, 1]}


def test_an_evaluation_by_hand(tmp_path: Path) -> None:
    attack = {"name": "pgd", "restarts": 5, "robust": share(80), "robust_one_restart": share(90)}
    document = {"clean": share(160), "attacks": [attack], "worst_case": share(70)}
    write_json(tmp_path / "evaluation.json", document)
    values, count = evaluated_values(tmp_path, "attack")
    assert count == 200
    assert values == {"none/0/clean": 80.0, "pgd/5/robust": 40.0, "pgd/1/robust": 45.0}
    values, _ = evaluated_values(tmp_path, "standard")
    assert values == {"none/0/clean": 80.0, "standard/1/robust": 35.0}


def trained(root: Path, variant: str, seed: int, pgd: int) -> None:
    folder = root / "cifar10-resnet18-at" / variant / f"seed-{seed}" / "train"
    attack = {"name": "pgd", "restarts": 1, "robust": share(pgd), "robust_one_restart": share(pgd)}
    evaluation = {"clean": share(160), "attacks": [attack]}
    folder.mkdir(parents=True)
    write_json(folder / "training.json", {"results": {"selected": {"evaluation": evaluation}}})
    write_json(folder / "run.json", {"commit": "abc", "hardware": {"name": "chip"}})


def test_the_longest_training_by_the_stated_recipe_counts(tmp_path: Path) -> None:
    trained(tmp_path, "pang-30", 0, 90)
    found = {one.name: one for one in measurements(tmp_path, [AT])}
    assert found[f"{AT.model}/pgd/1/robust"].value == 45.0
    assert found[f"{AT.model}/pgd/1/robust"].short
    trained(tmp_path, "pang-120", 0, 100)
    trained(tmp_path, "pang-120", 1, 104)
    trained(tmp_path, "paper-literal-120", 0, 60)
    trained(tmp_path, "small", 0, 2)
    several = [one for one in measurements(tmp_path, [AT]) if one.name.endswith("pgd/1/robust")]
    assert [(one.seed, one.value, one.short) for one in several] == [(0, 50.0, False), (1, 52.0, False)]
    (small,) = [one for one in measurements(tmp_path, [AT], "small") if one.name.endswith("pgd/1/robust")]
    assert (small.value, small.short) == (1.0, True)


def test_the_page_says_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    trained(tmp_path, "pang-120", 0, 100)
    chosen = [table for table in tables() if table.id in ("multi-step", "svhn")]
    found = reproduction(chosen, claims(), measurements(tmp_path, experiments()), scale="full")
    text = page(found)
    printed = claim(some_claim().key).value
    assert f"| 50.00 ({printed:.2f}) |" in text
    assert "Not measured yet: 8 rows, 40 numbers." in text
    assert "(n = 200; chip; commits abc)" in text
    document = json.loads(json.dumps(found.as_json(tmp_path), allow_nan=False))
    (number,) = [one for one in document["numbers"] if one["claim"] == some_claim().key]
    assert (number["measured"], number["seeds"], number["verdict"]) == (50.0, 1, "inconclusive")
    assert number["runs"][0]["folder"] == "cifar10-resnet18-at/pang-120/seed-0/train"
    assert len(document["sentences"]) == len(prose())
    assert {entry["id"]: sum(entry["verdicts"].values()) for entry in document["tables"]} == {
        "multi-step": 160,
        "svhn": 40,
    }
