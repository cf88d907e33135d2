"""What `scaleproof train` says on a terminal: weights that learned nothing, runs that were cut or are finished."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from scaleproof import Threat, evaluate, suite
from scaleproof.checks.contract import constant
from scaleproof.cli.main import app
from scaleproof.cli.tables import training_remarks, weights_remarks
from scaleproof.report import render
from scaleproof.train import Session
from scaleproof.training import Trainer
from scaleproof.units import answer_findings
from test_train_command import QUICK, TESTS

if TYPE_CHECKING:
    from scaleproof.checks.subject import Subject

CONSTANT = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of tests/networks.py have names here."""
    monkeypatch.chdir(TESTS)
    monkeypatch.syspath_prepend(str(TESTS))


def train(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["train", *arguments, "--no-report"], catch_exceptions=False)


@pytest.mark.usefixtures("here")
def test_weights_with_one_answer_for_everything_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rate of next to 0 learns nothing, from weights that answer one class."""
    monkeypatch.setenv("COLUMNS", "200")
    words = [*QUICK, "--model", "networks:constant", "--rate", "1e-9", "--epochs", "1"]
    done = train("at", *words, "--out", str(tmp_path / "run"))
    assert (
        "note, selected, last and leaking weights: the network answers class 4 for all 20 images, whatever they show"
        in done.output
    )
    assert done.output.count(": one answer") == 3, "in each row of the table"
    page = (render(tmp_path / "run")[0]).read_text()
    assert '<h1 class="unreliable">' in page
    assert "<strong>The network answers class 4 for all 20 images, whatever they show:" in page
    assert "Such weights have learned next to nothing: train longer" in done.output


def test_what_would_be_trained_is_told_before(tmp_path: Path) -> None:
    done = train(
        "mart", "--recipe", "original", "--limit", "200", "--dry-run", "--out", str(tmp_path / "run")
    )
    first, _, rest = done.stdout.partition("\n")
    assert first == f"MART into {tmp_path / 'run'}"
    told = json.loads(rest)
    assert (told["defense"]["weight"], told["config"]["weight_decay"]) == (5.0, 3.5e-3)
    assert told["images"] == {"trained on": 180, "held out": 20, "tested on": 1000}
    assert "MART" in told["recipe"]
    assert not (tmp_path / "run").exists()


def test_nothing_may_be_held_out(tmp_path: Path) -> None:
    words = [*QUICK, "--epochs", "1", "--validation", "0", "--out", str(tmp_path / "run")]
    done = train("at", *words)
    assert done.exit_code == 0, done.output
    document = json.loads((tmp_path / "run" / "training.json").read_text())
    assert document["held_out"] == 0
    assert "validation" not in document["history"][0]
    assert "last (nothing was held out)" in " ".join(done.stdout.replace("│", " ").split())
    with pytest.raises(ValueError, match=r"the guard needs held-out images, .*\(--guard off\)"):
        train("rfgsm", *words[:-1], str(tmp_path / "guarded"))


def test_lines_and_tables_of_several_seeds_say_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = train("at", *QUICK, "--epochs", "1", "--seeds", "3,4")
    for seed in (3, 4):
        assert f"AT seed-{seed} epoch 1/1" in done.stderr
        assert f"AT, seed {seed}: accuracy in %" in done.stdout
        assert len(list((tmp_path / "runs").glob(f"*-seed-{seed}-*/run.json"))) == 1


def test_weights_to_begin_with_and_another_ball_are_told(tmp_path: Path) -> None:
    words = [*QUICK, "--epochs", "1"]
    train("at", *words, "--norm", "l2", "--eps", "0.5", "--out", str(tmp_path / "l2"))
    went_on = train("at", *words, "--model", str(tmp_path / "l2"), "--out", str(tmp_path / "more"))
    assert f"note: began with the weights in {tmp_path / 'l2'}" in " ".join(went_on.stdout.split("\n"))
    asked = [
        "evaluate",
        str(tmp_path / "l2"),
        "--limit",
        "8",
        "--attacks",
        "pgd",
        "--steps",
        "1",
        "--no-checks",
    ]
    for own, other in (([], True), (["--norm", "l2", "--eps", "0.5"], False)):
        done = CliRunner().invoke(app, [*asked, *own, "--no-report", "--out", str(tmp_path / f"{other}")])
        assert done.exit_code == 0, done.output
        note = "trained for l2 0.5, attacked within linf 8/255; for its own: --norm l2 --eps 0.5"
        assert (note in done.output) == other


def test_findings_are_told_for_each_set_of_weights() -> None:
    def result(*findings: str) -> dict[str, object]:
        found = [{"name": "x", "severity": "note", "meaning": meaning} for meaning in findings]
        return {"evaluation": {"findings": found}}

    results = {"selected": result("one"), "last": result("two", "one"), "leaking": result()}
    assert weights_remarks(results) == ["note, selected and last weights: one.", "note, last weights: two."]


def test_one_answer_is_a_finding_only_where_enough_images_are_of_several_classes() -> None:
    """A model with half its answers right often gives one class for the first two or three images."""
    with torch.no_grad():
        CONSTANT[1].weight.mul_(1e-3)
        CONSTANT[1].bias.copy_(torch.tensor([0.0, 5.0, -1.0]))
    x, attacks = torch.rand(8, 3, 2, 2), suite("pgd", Threat(eps=0.01), steps=1)
    for labels, told in (([0, 1, 1, 2] * 2, 1), ([1] * 8, 0), ([0, 1, 1, 2, 0, 1, 1], 0), ([2, 1], 0)):
        found = evaluate(CONSTANT.eval(), (x[: len(labels)], torch.tensor(labels)), attacks).findings
        assert sum(finding.name == "one-answer" for finding in found) == told


@pytest.mark.parametrize(
    ("others", "of_one_class", "said"),
    [
        (0, 50, "answers class 1 for all 100 images, whatever they show: it tells nothing apart, and its"),
        (4, 50, "answers class 1 for 96 of 100 images, whatever they show: it tells next to nothing apart"),
        (5, 50, None),
        (0, 96, None),
        (4, 95, "96 of 100"),
    ],
)
def test_the_finding_has_the_limit_of_the_check(others: int, of_one_class: int, said: str | None) -> None:
    answers, labels = np.ones(100, np.int64), np.zeros(100, np.int64)
    answers[:others], labels[:of_one_class] = 2, 1
    found = answer_findings(labels, answers)
    assert (said is None) == (found == ())
    assert said is None or said in found[0].meaning
    assert not_constant(answers, labels) == (said is None)


@pytest.mark.parametrize(("right", "accused"), [(4, False), (3, True), (0, True)])
def test_a_common_answer_of_a_common_class_is_no_fault(right: int, accused: bool) -> None:
    """Six images of a rare class: who finds most of them tells classes apart, however common the other answer is."""
    answers, labels = np.ones(100, np.int64), np.ones(100, np.int64)
    answers[:right], labels[:6] = 2, 2
    assert (answer_findings(labels, answers) != ()) == accused
    assert not_constant(answers, labels) != accused


def not_constant(answers: NDArray[np.int64], labels: NDArray[np.int64]) -> bool:
    """What the check says to these answers."""
    seen = SimpleNamespace(logits=torch.eye(3)[torch.from_numpy(answers)], all_y=torch.from_numpy(labels))
    return constant(cast("Subject", seen)).passed


def test_old_trainings_without_findings_are_shown(tmp_path: Path) -> None:
    kept = next((TESTS.parent / "docs" / "results" / "paper").rglob("training.json"))
    assert "Robust accuracy is an upper bound." in training_remarks(json.loads(kept.read_text()))


@pytest.mark.usefixtures("here")
def test_a_run_that_goes_on_says_where_and_a_finished_one_that_nothing_was_run(tmp_path: Path) -> None:
    words = ["at", *QUICK, "--epochs", "3", "--checkpoint-seconds", "0", "--out", str(tmp_path / "run")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "close_epoch", cut_after(1, Trainer.close_epoch))
        assert CliRunner().invoke(app, ["train", *words]).exit_code == 130
    done = train(*words)
    assert "AT: going on after epoch 1 of 3" in done.stderr
    assert "AT epoch 1/3" not in done.stderr
    assert "nothing was run" not in done.output
    again = train(*words)
    assert (
        f"{tmp_path / 'run'} holds this run already, finished: nothing was run for it."
        in again.output.replace("\n", "")
    )
    assert "going on" not in again.stderr


@pytest.mark.usefixtures("here")
def test_a_run_cut_in_its_attacks_says_that_its_epochs_are_done(tmp_path: Path) -> None:
    words = ["at", *QUICK, "--epochs", "1", "--out", str(tmp_path / "run")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "finish", cut)
        assert CliRunner().invoke(app, ["train", *words]).exit_code == 130
    assert "AT: its epochs are done already, going on with the attacks" in train(*words).stderr


def cut(*_: object) -> None:
    raise KeyboardInterrupt


def cut_after(epochs: int, close: Callable[..., None]) -> Callable[..., None]:
    def closing(self: Trainer, number: int, seconds: float) -> None:
        cut() if number >= epochs else close(self, number, seconds)

    return closing


@pytest.mark.usefixtures("here")
def test_plain_pgd_is_called_by_its_steps(tmp_path: Path) -> None:
    """The probe of every epoch has 10, the attack at the end 20; by default SI-PGD is among those."""
    words = [word for word in QUICK if word not in ("--attacks", "pgd")]
    done = train("at", *words, "--epochs", "1", "--out", str(tmp_path / "run"))
    assert " PGD-10, " in done.stderr
    (head,) = (line for line in done.output.splitlines() if "PGD-20" in line)
    assert [word for word in head.split() if "PGD" in word] == ["PGD-20", "PGD-CW", "SI-PGD"]
