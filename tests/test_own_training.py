"""A defense of one's own, trained from the command line as those of the package are."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scaleproof.cli.main import app
from scaleproof.defenses import AdversarialTraining, defense, defense_settings
from scaleproof.training import recipe
from test_train_command import QUICK, TESTS, killed_and_resumed


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TESTS)


def train(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["train", *arguments])
    return done.exit_code, f"{done.output}\n{done.exception}"


def record(folder: Path, name: str = "training.json") -> Any:
    return json.loads((folder / name).read_text())


def test_it_is_killed_and_resumed_as_any_other(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, [2], "own_defenses:Smooth", "--si", *QUICK, "--checkpoint-seconds", "0")
    found = record(tmp_path / "cut-0")
    assert found["label"] == "AT, smoothed labels-SI"
    assert found["recipe"]["name"] == "pang"
    assert (found["defense"]["defense"], found["defense"]["class"]) == ("smooth", "own_defenses.Smooth")
    assert re.fullmatch("[0-9a-f]{64}", found["defense"]["source_sha256"])
    assert found["defense"]["margin"]["margin"] == 0.2
    assert found["defense"] == record(tmp_path / "cut-0", "run.json")["settings"]["defense"]
    assert "own_defenses.Smooth" in (tmp_path / "cut-0" / "report.html").read_text()


@pytest.mark.parametrize(("name", "smoothing"), [("Smooth", 0.1), ("READY", 0.2), ("smoother", 0.3)])
def test_classes_instances_and_functions_name_one(name: str, smoothing: float) -> None:
    assert vars(defense(f"own_defenses:{name}"))["smoothing"] == smoothing


def test_one_of_ours_with_other_settings_is_what_it_is() -> None:
    found = recipe("own_defenses:longer")
    assert found.defense.inner is not None
    assert found.defense.inner.steps == 2
    assert defense_settings(found.defense) == found.defense.describe()


def test_options_and_seeds_arrive(tmp_path: Path) -> None:
    words = [*QUICK, "--epochs", "1", "--eps", "4/255", "--steps", "2", "--seeds", "0,1", "--recipe", "mart"]
    code, said = train("own_defenses:smoother", *words, "--no-report", "--out", str(tmp_path / "run"))
    assert code == 0, said
    for seed in (0, 1):
        found = record(tmp_path / "run" / f"seed-{seed}")
        assert found["defense"]["inner"]["eps"] == pytest.approx(4 / 255)
        assert (found["defense"]["inner"]["steps"], found["defense"]["smoothing"]) == (2, 0.3)
        assert (found["config"]["seed"], found["recipe"]["name"]) == (seed, "mart")


def test_it_is_found_in_the_current_folder_and_a_changed_one_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(TESTS))
    text = "import own_defenses\nclass Mine(own_defenses.Smooth):\n    name, label = 'mine', 'Mine / ours'\n"
    words = [*QUICK, "--epochs", "1", "--no-report"]
    for number, remark in enumerate(("", "# changed since\n")):
        (tmp_path / "mine_to_train.py").write_text(text + remark)
        monkeypatch.delitem(sys.modules, "mine_to_train", raising=False)  # as in another process
        code, said = train("mine_to_train:Mine", *words, "--out", "here")
        assert (code == 0) == (number == 0), said
    assert "holds a run with other settings (the file of its defense changed)" in said
    assert train("mine_to_train:Mine", *words)[0] == 0
    assert [path.name.startswith("mine-ours-networks-without_norm") for path in Path("runs").iterdir()] == [
        True
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nowhere_at_all:Smooth", "without arguments that returns one, got 'nowhere_at_all:Smooth': no module"),
        ("own_defenses.py:Smooth", "did you mean 'own_defenses:Smooth', without the ending?"),
        ("own_defenses:", "a method of your own must be module:NAME"),
        ("own_defenses:Smoth", "has no 'Smoth'; did you mean 'Smooth'?"),
        ("own_defenses", "or module:NAME of your own, got 'own_defenses'"),
        ("own_defenses:Needy", "must be callable without arguments: missing a required argument: 'strength'"),
        ("own_defenses:network", "got object from 'own_defenses:network'"),
        ("own_defenses:Nameless", "Nameless of 'own_defenses:Nameless' has no name: write name ="),
        ("own_defenses:Borrowed", "as one of ours, Borrowed of 'own_defenses:Borrowed' has the name 'at'"),
        ("own_defenses:Unfinished", "raised TypeError"),
        ("own_defenses:Endless", "needs settings that are plain data, Endless has others"),
        ("own_defenses:Silent --epochs 1 --steps 1", "must hold batch_norm, margin, those of Silent do not: let"),
        ("own_defenses:Smooth --recipe original", "one of pang, paper-literal, mart, svhn, got 'original' for own"),
        ("own_defenses:Smooth --he", "hypersphere embedding goes with at, trades and alp, got smooth"),
        ("own_defenses:Smooth --weight 2", "--weight is for methods with a weighted term, smooth has none"),
        ("own_defenses:Plain --si", "Plain has none: give it inner=Inner(threat=...), or --si-half outer"),
        ("own_defenses:Plain --eps 4/255", "--eps is for methods with a ball, smooth has none"),
        ("own_defenses:Plain --steps 2", "--steps and --step-size are for methods with an inner attack, got smooth"),
        ("own_defenses:Deaf --eps 4/255", "whose resized() leaves another ball"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_before_anything_is_written(
    arguments: str, message: str, tmp_path: Path
) -> None:
    code, said = train(*arguments.split(), "--limit", "300", "--out", str(tmp_path / "run"))
    assert code != 0
    assert message in said
    assert not (tmp_path / "run").exists()


def test_only_ones_own_have_a_source() -> None:
    assert defense_settings(AdversarialTraining()) == AdversarialTraining().describe()
