"""From run folders to verdicts on the paper's numbers and sentences."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from scaleproof.paper import Measured, claim, claims, experiments, judge, prose, tables
from scaleproof.paper.figures import figures
from scaleproof.paper.judge import compared, distance
from scaleproof.paper.measured import Measurement, evaluated_values, measurements, rays_values
from scaleproof.paper.observed import observed
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
        "partial": False,
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


def share(correct: int, count: int = 10_000) -> dict[str, Any]:
    return {"correct": correct, "count": count, "accuracy": correct / count, "interval": [0, 1]}


def test_an_evaluation_by_hand(tmp_path: Path) -> None:
    attack = {"name": "pgd", "restarts": 5, "robust": share(80, 200), "robust_one_restart": share(90, 200)}
    document = {"clean": share(160, 200), "attacks": [attack], "worst_case": share(70, 200)}
    write_json(tmp_path / "evaluation.json", document)
    values, count, reliable = evaluated_values(tmp_path, "attack")
    assert (count, reliable) == (200, True)
    assert values == {"none/0/clean": 80.0, "pgd/5/robust": 40.0, "pgd/1/robust": 45.0}
    values, _, _ = evaluated_values(tmp_path, "standard")
    assert values == {"none/0/clean": 80.0, "standard/1/robust": 35.0}


def trained(root: Path, variant: str, seed: int, pgd: float, stopped: str | None = None) -> Path:
    """A finished training of AT with a PGD accuracy in percent of 10,000 images."""
    folder = root / "cifar10-resnet18-at" / variant / f"seed-{seed}" / "train"
    left = share(round(100 * pgd))
    attack = {"name": "pgd", "restarts": 1, "robust": left, "robust_one_restart": left}
    evaluation = {"clean": share(8000), "attacks": [attack]}
    folder.mkdir(parents=True)
    selected = {"evaluation": evaluation, "weights_sha256": "one"}
    document = {"results": {"selected": selected}, "stopped": stopped, "history": [{"weight_norm": 2.0}]}
    write_json(folder / "training.json", document)
    write_json(folder / "run.json", {"commit": "abc", "hardware": {"name": "chip"}})
    return folder


def pgd_of(root: Path, variants: dict[str, str] | None = None) -> list[tuple[int, float, bool]]:
    found = measurements(root, [AT], variants or {})
    return [(one.seed, one.value, one.partial) for one in found if one.name.endswith("pgd/1/robust")]


def test_the_training_as_long_as_stated_counts(tmp_path: Path) -> None:
    trained(tmp_path, "pang-30", 0, 45)
    assert pgd_of(tmp_path) == [(0, 45.0, True)]
    trained(tmp_path, "pang-120", 0, 50)
    trained(tmp_path, "pang-120", 1, 52, stopped="epoch 9")
    for variant, pgd in (("pang-200", 60), ("paper-literal-120", 30), ("small", 1), ("pang-120-old", 2)):
        trained(tmp_path, variant, 0, pgd)
    (tmp_path / "cifar10-resnet18-at" / "pang-120" / "seed-0.bak").mkdir()
    assert pgd_of(tmp_path) == [(0, 50.0, False), (1, 52.0, True)]  # who was stopped settles nothing
    assert pgd_of(tmp_path, {AT.model: "small"}) == [(0, 1.0, True)]
    assert pgd_of(tmp_path, {AT.model: "pang-200"}) == [(0, 60.0, True)]
    assert pgd_of(tmp_path, {AT.model: "paper-literal-120"}) == [(0, 30.0, False)]
    assert pgd_of(tmp_path, {AT.model: "mart-120"}) == []


def evaluated(folder: Path, weights: str, robust: int, count: int = 10_000, **other: object) -> None:
    folder.mkdir()
    facts = {"clean": share(count // 2, count), "attacks": [], "worst_case": share(robust, count)}
    write_json(folder / "evaluation.json", {**facts, "model": {"weights_sha256": weights}, **other})
    write_json(folder / "run.json", {"commit": "abc", "hardware": {"name": "chip"}})


@pytest.mark.parametrize(
    ("weights", "count", "other", "expected"),
    [
        ("one", 10_000, {}, [(40.0, False)]),
        ("other", 10_000, {}, []),  # of weights that were trained anew since
        ("one", 1000, {}, [(40.0, True)]),  # a part of the test images
        ("one", 10_000, {"reliable": False}, [(40.0, True)]),  # a check failed
    ],
)
def test_which_evaluations_count(
    weights: str, count: int, other: dict[str, Any], expected: list[Any], tmp_path: Path
) -> None:
    train = trained(tmp_path, "pang-120", 0, 50)
    evaluated(train.parent / "standard", weights, count * 4 // 10, count, **other)
    found = measurements(tmp_path, [AT], {})
    assert [(one.value, one.partial) for one in found if "standard" in one.name] == expected


def test_numbers_of_an_unsaid_setting_are_never_settled() -> None:
    found = next(one for one in claims() if any(note.id == "he-scale-unsaid" for note in one.notes))
    runs = tuple(measured(found.value + 0.1 * seed, seed) for seed in range(3))
    assert Outcome(claim=found, runs=runs).verdict == "inconclusive"


def test_quantities_of_trainings(tmp_path: Path) -> None:
    for seed in range(3):
        trained(tmp_path, "pang-120", seed, 50)
    found = observed(tmp_path, figures(), [AT], {})
    assert found[f"head-norm/{AT.model}"] == Measured(value=2.0, seeds={0: 2.0, 1: 2.0, 2: 2.0})
    trained(tmp_path, "pang-120", 3, 50, stopped="epoch 3")
    assert not observed(tmp_path, figures(), [AT], {})[f"head-norm/{AT.model}"].full


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


def test_the_page_says_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    trained(tmp_path, "pang-120", 0, 50)
    chosen = [table for table in tables() if table.id in ("multi-step", "svhn")]
    found = reproduction(chosen, claims(), measurements(tmp_path, experiments(), {}), scale="full")
    text = page(found)
    printed = claim(some_claim().key).value
    assert f"| 50.00 ± 0.98 ({printed:.2f}, {50 - printed:+.2f}) |" in text
    assert "Not measured yet: 8 rows, 40 numbers." in text
    assert "(n = 10,000; chip; commits abc)" in text
    document = json.loads(json.dumps(found.as_json(tmp_path), allow_nan=False))
    (number,) = [one for one in document["numbers"] if one["claim"] == some_claim().key]
    assert (number["measured"], number["seeds"], number["verdict"]) == (50.0, 1, "inconclusive")
    assert number["runs"][0]["folder"] == "cifar10-resnet18-at/pang-120/seed-0/train"
    assert len(document["sentences"]) == len(prose())
    assert {entry["id"]: sum(entry["verdicts"].values()) for entry in document["tables"]} == {
        "multi-step": 160,
        "svhn": 40,
    }
