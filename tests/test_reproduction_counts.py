"""What counts: which run folders say something about the paper, and which settle nothing."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reproduction_work import AT, SETTINGS, change, evaluated, share, some_claim, trained
from scaleproof.paper import Measured, claim, claims, experiments, prose, tables
from scaleproof.paper.figures import figure, figures
from scaleproof.paper.measured import evaluated_values, measurements, rays_values
from scaleproof.paper.observed import figure_folders, is_whole, observed
from scaleproof.paper.page import excerpt, page, row_name, totals
from scaleproof.paper.reproduction import reproduction
from scaleproof.paper.runner import run_steps
from scaleproof.paper.steps import DONE, STALE, Step
from scaleproof.store import write_arrays, write_json


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


def test_an_evaluation_by_hand(tmp_path: Path) -> None:
    attack = {"name": "pgd", "restarts": 5, "robust": share(80, 200), "robust_one_restart": share(90, 200)}
    document = {"clean": share(160, 200), "attacks": [attack], "worst_case": share(70, 200)}
    write_json(tmp_path / "evaluation.json", document)
    values, count = evaluated_values(tmp_path, "attack")
    assert count == 200
    assert values == {"none/0/clean": 80.0, "pgd/5/robust": 40.0, "pgd/1/robust": 45.0}
    values, _ = evaluated_values(tmp_path, "standard")
    assert values == {"none/0/clean": 80.0, "standard/1/robust": 35.0}


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
    assert pgd_of(tmp_path, {AT.model: "paper-literal-120"}) == [(0, 30.0, True)]  # not the stated recipe
    assert pgd_of(tmp_path, {AT.model: "mart-120"}) == []


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


def test_quantities_of_trainings(tmp_path: Path) -> None:
    for seed in range(3):
        trained(tmp_path, "pang-120", seed, 50)
    found = observed(tmp_path, figures(), [AT], {})
    assert found[f"head-norm/{AT.model}"] == Measured(value=2.0, seeds={0: 2.0, 1: 2.0, 2: 2.0})
    trained(tmp_path, "pang-120", 3, 50, stopped="epoch 3")
    assert not observed(tmp_path, figures(), [AT], {})[f"head-norm/{AT.model}"].full


def test_rows_of_an_ablation_are_told_apart() -> None:
    for table in tables():
        assert len({row_name(row) for row in table.rows}) == len(table.rows), table.id
    (usual,) = [row for row in tables()[0].rows if row.scale == 15]
    assert row_name(usual) == "TRADES-SI, cifar10, resnet18"


def test_the_page_says_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    trained(tmp_path, "pang-120", 0, 50)
    chosen = [table for table in tables() if table.id in ("multi-step", "svhn")]
    found = reproduction(chosen, claims(), measurements(tmp_path, experiments(), {}), scale="full")
    text = page(found)
    printed = claim(some_claim().key).value
    assert f"| 50.00 ± 0.98 ({printed:.2f}, {50 - printed:+.2f}) |" in text
    assert "Not measured yet: 8 rows, 40 numbers." in text
    assert "(n = 10,000; chip; commits abc)" in text
    short = excerpt(chosen[0], found.of(chosen[0]), "cifar10", "resnet18")
    assert f"| AT | 80.00 (85.57) | 50.00 ({printed:.2f}) | - (" in short
    assert len([line for line in short.splitlines() if line.startswith("|")]) == 2 + 1
    assert short.endswith("Not measured yet: AT-SI, TRADES, TRADES-SI, ALP, ALP-SI, MART, MART-SI.")
    assert "pang-120; seed 0 (n = 10,000; chip; commits abc)" in short
    assert "2 of 200 numbers (none settled) and 0 of" in totals(found)
    assert "lie below what the paper prints" in text
    smoke = reproduction(chosen, claims(), measurements(tmp_path, experiments(), {}), scale="small")
    assert "lie below" not in page(smoke)
    assert f"| 50.00 ± 0.98 ({printed:.2f}) |" in page(smoke)
    document = json.loads(json.dumps(found.as_json(tmp_path), allow_nan=False))
    (number,) = [one for one in document["numbers"] if one["claim"] == some_claim().key]
    assert (number["measured"], number["seeds"], number["verdict"]) == (50.0, 1, "inconclusive")
    assert number["runs"][0]["folder"] == "cifar10-resnet18-at/pang-120/seed-0/train"
    assert len(document["sentences"]) == len(prose())
    assert {entry["id"]: sum(entry["verdicts"].values()) for entry in document["tables"]} == {
        "multi-step": 160,
        "svhn": 40,
    }


def test_attacks_count_as_long_as_their_training_is_there(tmp_path: Path) -> None:
    evaluated(tmp_path / "cifar10-resnet18-at" / "pang-120" / "seed-0" / "standard", "one", 4000)
    assert measurements(tmp_path, [AT], {}) == []


SEED_1 = ("run.json", "seed", 1)
WEAK = ("evaluation.json", "attacks", 1, "settings", "eps", 4 / 255)
SHORT = ("evaluation.json", "attacks", 0, "settings", "steps", 1)
ROUND = ("evaluation.json", "attacks", 3, "settings", "norm", "l2")
TRAINING_IMAGES = ("evaluation.json", "data", "split", "train")
ONE_STAGE = ("evaluation.json", "attacks", [{"name": "apgd-ce", "settings": SETTINGS["apgd-ce"]}])


@pytest.mark.parametrize("departure", [SEED_1, WEAK, SHORT, ROUND, TRAINING_IMAGES, ONE_STAGE])
def test_an_evaluation_of_something_else_settles_nothing(departure: tuple[Any, ...], tmp_path: Path) -> None:
    train = trained(tmp_path, "pang-120", 0, 50)
    evaluated(train.parent / "standard", "one", 4000)
    file, *keys, value = departure
    change(train.parent / "standard", file, *keys, to=value)
    found = {one.name: one.partial for one in measurements(tmp_path, [AT], {})}
    assert found[f"{AT.model}/standard/1/robust"]
    assert not found[f"{AT.model}/pgd/1/robust"]


ATTACK_OF_TRAINING = ("results", "selected", "evaluation", "attacks", 0, "settings")


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        ((*ATTACK_OF_TRAINING, "eps"), 0.031),
        ((*ATTACK_OF_TRAINING, "steps"), 10),
        ((*ATTACK_OF_TRAINING, "step_size"), 1e-6),
        (("results", "selected", "evaluation", "mode"), "cascade"),
        (("test", "name"), "svhn"),
        (("data", "count"), 10_000),
        (("config", "rate"), 0.01),
        (("config", "schedule", "factor"), 0.2),
        (("defense", "inner", "steps"), 7),
        (("defense", "batch_norm", "attack"), "train"),
    ],
)
def test_a_training_of_something_else_settles_nothing(
    keys: tuple[Any, ...], value: object, tmp_path: Path
) -> None:
    change(trained(tmp_path, "pang-120", 0, 50), "training.json", *keys, to=value)
    assert pgd_of(tmp_path) == [(0, 50.0, True)]


def test_a_failed_check_marks_every_number_of_its_network(tmp_path: Path) -> None:
    train = trained(tmp_path, "pang-120", 0, 50)
    assert observed(tmp_path, figures(), [AT], {})[f"head-norm/{AT.model}"].full
    evaluated(train.parent / "standard", "one", 4000, reliable=False)
    assert pgd_of(tmp_path) == [(0, 50.0, True)]
    assert not observed(tmp_path, figures(), [AT], {})[f"head-norm/{AT.model}"].full


def test_a_damaged_folder_is_told_and_the_others_count(tmp_path: Path) -> None:
    train = trained(tmp_path, "pang-120", 0, 50)
    evaluated(train.parent / "rays", "one", 4000)  # a finished run without its verdicts
    with pytest.warns(UserWarning, match="rays does not count, it is damaged .*verdicts.npz is absent"):
        assert pgd_of(tmp_path) == [(0, 50.0, False)]


def test_the_numbers_of_the_other_weights_are_kept(tmp_path: Path) -> None:
    train = trained(tmp_path, "pang-120", 0, 50)
    results = json.loads((train / "training.json").read_text())["results"]
    last = json.loads(json.dumps(results["selected"]))
    last["evaluation"]["attacks"][0] |= {"robust": share(4700), "robust_one_restart": share(4700)}
    change(train, "training.json", "results", "last", to=last)
    (found,) = [one for one in measurements(tmp_path, [AT], {}) if "pgd" in one.name]
    assert (found.value, found.others) == (50.0, (47.0,))


def analysed(folder: Path, weights: str) -> Step:
    folder.mkdir(parents=True)
    write_json(folder / "analysis.json", {"model": {"weights_sha256": weights}})
    write_json(folder / "run.json", {})
    return Step(kind=folder.name, folder=folder, words=("analyse",))


def test_a_figure_of_other_weights_is_left_out_and_done_again(tmp_path: Path) -> None:
    shown = figure("fig-loss-surface")
    train = trained(tmp_path, "pang-120", 0, 50)
    step = analysed(train.parent / shown.id, "one")
    assert step.state == DONE
    assert list(figure_folders(tmp_path, shown, [AT], {})) == [0]
    change(step.folder, "analysis.json", "model", "weights_sha256", to="other")
    assert step.state == STALE
    assert figure_folders(tmp_path, shown, [AT], {}) == {}
    told: list[str] = []
    assert run_steps([step], lambda one: (0, str(analysed(one.folder, "one"))), told.append) == []
    assert step.state == DONE
    assert (train.parent / "fig-loss-surface.old-1" / "analysis.json").exists()
    assert list(figure_folders(tmp_path, shown, [AT], {})) == [0]
    (train / "run.json").unlink()  # without its training nobody knows what the figure shows
    assert figure_folders(tmp_path, shown, [AT], {}) == {}
    assert "is of other weights than were trained since: moved to" in told[0]


def test_a_figure_of_fewer_images_settles_nothing(tmp_path: Path) -> None:
    step = analysed(trained(tmp_path, "pang-120", 0, 50).parent / "fig-cosines", "one")
    whole = {"data": {"count": 10_000}, "threat": {"norm": "linf", "eps": 8 / 255}}
    write_json(step.folder / "analysis.json", whole)
    write_json(step.folder / "run.json", {"seed": 0})
    assert is_whole(step.folder, 0, AT)
    assert not is_whole(step.folder, 1, AT)
    evaluated(step.folder.parent / "standard", "one", 4000, reliable=False)
    assert not is_whole(step.folder, 0, AT)
    shutil.rmtree(step.folder.parent / "standard")
    for other in ({"data": {"count": 4}}, {"threat": {"norm": "linf", "eps": 4 / 255}}):
        write_json(step.folder / "analysis.json", whole | other)
        assert not is_whole(step.folder, 0, AT)


def test_nothing_is_started_after_all_were_stopped(tmp_path: Path) -> None:
    steps = [Step(kind=name, folder=tmp_path / name, words=()) for name in ("one", "two", "three")]
    begun: list[str] = []

    def execute(step: Step) -> tuple[int, str]:
        begun.append(step.kind)
        return 0, ""

    assert run_steps(steps, execute, lambda words: None, lambda: len(begun) == 1) == []
    assert begun == ["one"]


def test_a_sentence_that_asks_for_no_difference_has_it(tmp_path: Path) -> None:
    """Swings of exactly zero: the page must not say that none points the sentence's way."""
    key = "swing/cifar10/resnet18/trades/si-pgd"
    still = {key: Measured(value=0.0, seeds={0: 0.0, 1: 0.0, 2: 0.0})}
    found = reproduction([], [], [], scale="full", quantities=still)
    (judged,) = [one for one in found.judgements if one.claim.id == "si-pgd-does-not-move"]
    assert judged.verdict == "holds"
    assert f"| {judged.claim.words} | holds | 1 of 1 measured point its way" in page(found)
