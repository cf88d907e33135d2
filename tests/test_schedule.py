"""Schedules in runs of other lengths: no decay is lost, and what is said of them is what happens."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scaleproof.cli.main import app
from scaleproof.defenses import Guidance
from scaleproof.training import Cosine, Cyclic, Steps, TrainConfig, recipe

SETTINGS = ["--limit", "60", "--test-limit", "20", "--attacks", "pgd", "--batch-size", "20", "--no-report"]
TINY = ["--model", "resnet-tiny", *SETTINGS, "--precision", "float32"]


@pytest.mark.parametrize(
    ("epochs", "decays"),
    [(1, ()), (2, (2, 2, 2)), (3, (3, 3, 3)), (4, (3, 4, 4)), (7, (5, 6, 7)), (8, (6, 7, 8))],
)
def test_no_decay_is_lost_in_a_short_run_and_none_comes_early(epochs: int, decays: tuple[int, ...]) -> None:
    found = TrainConfig().lasting(epochs)
    assert found.schedule == Steps(decays)
    if epochs > 1:
        assert found.rate_at(epochs - 0.01) == pytest.approx(0.1 * 0.1**3)
        assert found.rate_at(epochs / 2 - 0.01) == found.rate


@pytest.mark.parametrize(
    ("epochs", "decays"), [(6, (3, 4, 5)), (12, (7, 9, 10)), (30, (18, 22, 25)), (240, (150, 180, 200))]
)
def test_runs_with_room_for_all_decays_are_stretched_as_ever(epochs: int, decays: tuple[int, ...]) -> None:
    assert TrainConfig().lasting(epochs).schedule == Steps(decays)


def test_schedules_are_told() -> None:
    assert Steps(()).told() == "no decays"
    assert Steps((75,)).told() == "decay at 75"
    assert Steps((3, 4, 4)).told() == "decays at 3 and 4 (2 at once)"
    assert Steps((18, 22, 25)).told() == "decays at 18, 22 and 25"
    assert Cyclic(0.4).told() == "the rate rises for 40% of the run and then falls to zero"
    assert Cosine().told() == "the rate falls to zero along a cosine"


def test_a_provenance_says_how_its_schedule_was_moved() -> None:
    found = recipe("at")
    assert found.with_config(found.config) == found
    short = found.with_config(found.config.lasting(30))
    assert short.provenance == (f"{found.provenance} Shrunk from 120 to 30 epochs: decays at 18, 22 and 25.")
    assert recipe("free", name="pang").moved == "shrunk from 120 to 15 epochs: decays at 9, 11 and 12"
    warm = recipe("at", name="svhn")
    assert warm.with_config(warm.config.lasting(12)).moved.endswith("7, 9 and 10, eps grows over 2 epochs")


@pytest.mark.parametrize("epochs", [2, 3, 7, 10, 50, 99, 100, 200])
def test_gats_late_weight_comes_with_its_second_decay_in_runs_of_any_length(epochs: int) -> None:
    before = recipe("gat")
    schedule = before.config.lasting(epochs).schedule
    assert isinstance(schedule, Steps)
    assert isinstance(before.defense, Guidance)
    late = before.defense.stretched(partial(before.config.place, epochs)).late_epoch
    assert late == schedule.epochs[1]
    assert epochs != 100 or (schedule.epochs, late) == ((72, 87), 87)


def test_a_place_that_no_decay_has_keeps_its_share_of_the_run() -> None:
    assert [TrainConfig().place(epochs, 87) for epochs in (1, 30, 120)] == [2, 21, 87]
    assert [recipe("rfgsm").config.place(epochs, 5) for epochs in (1, 15, 30)] == [2, 5, 10]
    for epochs in (1, 30, 120, 200):
        assert [TrainConfig().place(epochs, number) for number in (1, 121)] == [1, epochs + 1]


def test_the_late_weight_of_a_command_is_that_of_its_epochs(tmp_path: Path) -> None:
    settings = [*TINY, "--epochs", "3", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, ["train", "gat", *settings], catch_exceptions=False)
    assert done.exit_code == 0
    record = json.loads((tmp_path / "run" / "training.json").read_text())
    assert record["config"]["schedule"]["epochs"] == [3, 3]
    assert record["defense"]["late_epoch"] == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--epochs 4", "shrunk from 120 to 4 epochs: decays at 3 and 4 (2 at once)"),
        ("--epochs 2 --schedule constant", "shrunk from 120 to 2 epochs, by another schedule: no decays"),
        ("--epochs 2 --decays 2", "shrunk from 120 to 2 epochs, by another schedule: decay at 2"),
        (
            "--epochs 1 --schedule cosine",
            "1 epoch, by another schedule: the rate falls to zero along a cosine",
        ),
    ],
)
def test_the_terminal_and_the_record_tell_a_moved_schedule(words: str, told: str, tmp_path: Path) -> None:
    settings = [*TINY, *words.split(), "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, ["train", "at", "--steps", "1", *settings], catch_exceptions=False)
    assert f"{told}." in done.stderr
    record = json.loads((tmp_path / "run" / "training.json").read_text())
    assert record["recipe"]["provenance"].lower().endswith(f"{told}.")
