"""What `scaleproof train` says on a terminal: of weights that learned nothing, of runs that were cut or are finished."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from scaleproof import Threat, evaluate, suite
from scaleproof.cli.main import app
from scaleproof.cli.tables import training_remarks, weights_remarks
from test_train_command import QUICK, TESTS

CONSTANT = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of tests/networks.py have names here."""
    monkeypatch.chdir(TESTS)
    monkeypatch.syspath_prepend(str(TESTS))


def train(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["train", *arguments, "--no-report"], catch_exceptions=False)


@pytest.mark.usefixtures("here")
def test_weights_with_one_answer_for_everything_are_told(tmp_path: Path) -> None:
    """A rate of 0 learns nothing, from weights that answer one class."""
    words = [*QUICK, "--model", "networks:constant", "--rate", "0", "--epochs", "1"]
    done = train("at", *words, "--out", str(tmp_path / "run"))
    assert (
        "note, selected, last and leaking weights: the network answers class 4 for all 20 images, whatever they show"
        in done.output
    )
    assert "Such weights have learned nothing: train longer" in done.output


def test_findings_are_told_for_each_set_of_weights() -> None:
    def result(*findings: str) -> dict[str, object]:
        found = [{"name": "x", "severity": "note", "meaning": meaning} for meaning in findings]
        return {"evaluation": {"findings": found}}

    results = {"selected": result("one"), "last": result("two", "one"), "leaking": result()}
    assert weights_remarks(results) == ["note, selected and last weights: one.", "note, last weights: two."]


def test_one_answer_is_a_finding_only_where_images_are_of_several_classes() -> None:
    with torch.no_grad():
        CONSTANT[1].weight.mul_(1e-3)
        CONSTANT[1].bias.copy_(torch.tensor([0.0, 5.0, -1.0]))
    x, attacks = torch.rand(4, 3, 2, 2), suite("pgd", Threat(eps=0.01), steps=1)
    for labels, told in (([0, 1, 1, 2], 1), ([1, 1, 1, 1], 0)):
        found = evaluate(CONSTANT.eval(), (x, torch.tensor(labels)), attacks).findings
        assert sum(finding.name == "one-answer" for finding in found) == told


def test_old_trainings_without_findings_are_shown(tmp_path: Path) -> None:
    kept = next((TESTS.parent / "docs" / "results" / "paper").rglob("training.json"))
    assert "Robust accuracy is an upper bound." in training_remarks(json.loads(kept.read_text()))
