"""Training records that are wrong or incomplete are refused, with the field named."""

from pathlib import Path
from typing import Any

import pytest

from report_fixtures import change_json
from scaleproof.report import load_run
from training_report_fixtures import write_training


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (
            ("results", "last", "epoch"),
            9,
            r"results.last.epoch must be 10, the last of the history, but is 9",
        ),
        (("results", "selected", "epoch"), 11, r"results.selected.epoch must be an epoch from 1 to 10"),
        (("results", "selected"), None, r"results.selected must be an object"),
        (
            ("results", "last", "evaluation", "worst_case", "correct"),
            900,
            r"results.last.evaluation.worst_case",
        ),
        (
            ("results", "last", "evaluation", "attacks", 0, "name"),
            "x",
            r"results.last.evaluation must be by the",
        ),
        (("history",), [], r"history must be a list of at least one epoch"),
        (("history", 3, "epoch"), 9, r"history must be one line for each epoch from 1 to 10, in order"),
        (("history", 3, "loss"), "low", r"history\[3\].loss must be a number, but is 'low'"),
        (("history", 3, "divergence"), None, r"history\[3\].divergence must be a number"),
        (("history", 3, "test", "pgd"), 101.0, r"history\[3\].test.pgd must be a percentage from 0 to 100"),
        (("history", 3, "validation"), 5, r"history\[3\].validation must be an object"),
        (("config", "epochs"), 12, r"history must be a list of config.epochs = 12 epochs, unless stopped"),
        (("config", "epochs"), 5, r"history must be a list of config.epochs = 5 epochs"),
        (("defense", "batch_norm", "attack"), "both", r"defense.batch_norm.attack must be one of"),
        (("recipe",), "pang", r"recipe must be an object"),
        (("held_out",), -1, r"held_out must be a whole number"),
        (("stopped",), 5, r"stopped must be a string"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, keys: Any, value: Any, message: str) -> None:
    folder = write_training(tmp_path)
    change_json(folder / "training.json", *keys, value=value)
    with pytest.raises(ValueError, match=f"training.json: field {message}"):
        load_run(folder)


@pytest.mark.parametrize(
    "key", ["history", "results", "config", "defense", "test", "threat", "speed", "held_out"]
)
def test_an_absent_field_is_named(tmp_path: Path, key: str) -> None:
    folder = write_training(tmp_path, lambda whole: whole.pop(key))
    with pytest.raises(ValueError, match=rf"training.json: field {key} is required"):
        load_run(folder)
