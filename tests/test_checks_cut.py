"""Checks that are cut: the evaluation before them is shown and kept, and the same command goes on with the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from helpers import SmallConvNet, decisions, images
from scaleproof.baseline import read_baseline
from scaleproof.checks import Examining, examine
from scaleproof.cli.main import app
from scaleproof.report import render
from scaleproof.store import FolderStore
from scaleproof.threat import Threat

WORDS = ["demo", "--limit", "24", "--attacks", "pgd,si-pgd", "--steps", "4", "--device", "cpu", "--no-report"]


def run(folder: Path, *words: str, code: int = 0) -> tuple[str, str]:
    done = CliRunner().invoke(app, ["evaluate", *WORDS, "--out", str(folder), *words])
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


def cut_at(question: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The question of this name ends the process; the names of those that are answered."""
    from scaleproof.checks import examination

    asked, seen = examination.asked, []

    def cutting(one: Any, name: str, subject: Any) -> Any:
        if name == question:
            raise KeyboardInterrupt
        seen.append(name)
        return asked(one, name, subject)

    monkeypatch.setattr(examination, "asked", cutting)
    return seen


def without_times(folder: Path) -> dict[str, Any]:
    document = json.loads((folder / "evaluation.json").read_text())
    for attack in document["attacks"]:
        del attack["seconds"], attack["image_steps_per_second"]
    return document


def test_an_evaluation_is_told_and_kept_when_its_checks_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cut"
    cut_at("unbounded", monkeypatch)
    monkeypatch.setattr("scaleproof.cli.evaluate.PATIENCE", 0.0)
    printed, errors = run(folder, code=130)
    assert printed == ""
    assert re.search(r"n = 24, .*: clean [\d.]+, PGD [\d.]+, .*worst case [\d.]+\.", errors)
    assert "Not examined yet" in errors
    assert "on 24 images; if they are cut, the same command goes on with them" in errors
    assert not (folder / "run.json").exists(), "it is not finished"
    document = json.loads((folder / "evaluation.json").read_text())
    assert document["clean"]["count"] == 24
    assert "reliable" not in document
    assert [f["name"] for f in document["findings"]][-1] == "not-examined"
    for read in (render, read_baseline):
        with pytest.raises(ValueError, match="is not finished: run its command again"):
            read(folder)

    monkeypatch.undo()
    before = (folder / "units" / "checks" / "scale.npz").stat().st_mtime_ns
    seen = cut_at("black-box", monkeypatch)
    run(folder, code=130)
    assert seen == ["unbounded", "monotone", "more-effort"], "what was answered is not asked again"
    assert (folder / "units" / "checks" / "scale.npz").stat().st_mtime_ns == before

    monkeypatch.undo()
    monkeypatch.setattr("scaleproof.cli.evaluate.PATIENCE", float("inf"))
    printed, errors = run(folder)
    assert "worst case" not in errors, "who does not wait sees it once"
    assert "Examined: 23 checks passed, none failed." in printed
    run(tmp_path / "whole")
    assert without_times(folder) == without_times(tmp_path / "whole")
    assert not (folder / "units").exists()
    assert (folder / "verdicts.npz").read_bytes() == (tmp_path / "whole" / "verdicts.npz").read_bytes()


def test_a_check_that_failed_before_the_cut_is_held_against_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scaleproof.checks import contract

    monkeypatch.setattr(contract, "SAME", -1.0)  # no two answers are so much alike
    cut_at("scale", monkeypatch)
    monkeypatch.setattr("scaleproof.cli.evaluate.PATIENCE", 0.0)
    for _ in range(2):  # while the checks are under way, and when they go on
        _, errors = run(tmp_path, code=130)
        document = json.loads((tmp_path / "evaluation.json").read_text())
        assert document["reliable"] is False
        assert [check["name"] for check in document["checks"]] == ["determinism", "batch"]
    assert "worst case (unreliable)" in errors
    assert "UNRELIABLE: do not quote the worst case." in errors


def test_answers_are_kept_for_the_same_model_and_images_alone(tmp_path: Path) -> None:
    net, other, x = SmallConvNet().eval(), SmallConvNet().eval(), images(16, (3, 8, 8))
    with torch.no_grad():
        other.head.weight *= 1.01
    given, store, steps = (x, decisions(net, x)), FolderStore(tmp_path), []

    def asked(model: torch.nn.Module, data: Any, **options: Any) -> list[str]:
        steps.clear()
        examine(model, data, Threat(eps=0.05), store=store, progress=steps.append, **options)
        return list(dict.fromkeys(step.name for step in steps))

    everything = asked(net, given)
    assert len(everything) == 19
    last: Examining = steps[-1]
    assert (last.number, last.total, last.failed) == (19, 19, ())
    assert any(step.name == "monotone" and step.steps > 4 for step in steps)
    assert asked(net, given) == []
    assert asked(other, given) == everything
    assert asked(net, given) == everything, "the store was another model's meanwhile"
    assert asked(net, (x[:8], given[1][:8])) == everything
    assert asked(net, (x[:8], given[1][:8]), seed=1) == everything
    kept = examine(net, (x[:8], given[1][:8]), Threat(eps=0.05), store=store, seed=1)
    assert kept == examine(net, (x[:8], given[1][:8]), Threat(eps=0.05), seed=1)


def test_a_word_on_the_check_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scaleproof.cli import live

    monkeypatch.setattr(live, "SECONDS_BETWEEN_LINES", 0.0)
    _, errors = run(tmp_path)
    assert "Examining the model: check 1 of 19, pixel range\n" in errors
    assert "Examining the model: check 17 of 19, more effort, 7 steps taken\n" in errors
