"""Networks in which no head is found: measured by what needs none, unless somebody asks for what does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NETWORKS = """
import torch
from torch import nn

class Ensemble(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.nets = nn.ModuleList([nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)) for _ in range(2)])

    def forward(self, x):
        return sum(net(x) for net in self.nets) / 2

def two():
    return Ensemble().eval()

def one():
    return Ensemble().nets[0].eval()
"""
LEFT_OUT = "SI-PGD left out: the head must be a linear layer"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "their_ensembles.py").write_text(NETWORKS)
    return tmp_path


def run(here: Path, *words: str) -> tuple[int, str]:
    command = [
        sys.executable,
        "-m",
        "scaleproof",
        *words,
        "--data",
        "sample",
        "--limit",
        "32",
        "--steps",
        "2",
    ]
    done = subprocess.run(
        [*command, "--no-report", "--out", "found"],
        cwd=here,
        env={**os.environ, "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    return done.returncode, done.stdout + done.stderr


def test_attacks_that_nobody_asked_for_are_left_out_with_a_note(here: Path) -> None:
    code, said = run(here, "evaluate", "their_ensembles:two")
    assert code == 0, said
    assert f"note: {LEFT_OUT}" in said
    assert "give --head NAME or ask for it by name" in said
    found = json.loads((here / "found" / "evaluation.json").read_text())
    assert [attack["name"] for attack in found["attacks"]] == ["pgd", "pgd-cw", "pgd-dlr"]
    assert any(LEFT_OUT in finding["meaning"] for finding in found["findings"])


def test_a_sweep_leaves_them_out_too(here: Path) -> None:
    code, said = run(here, "sweep", "their_ensembles:two", "--alphas", "1")
    assert code == 0, said
    assert LEFT_OUT in said
    rows = json.loads((here / "found" / "sweep.json").read_text())["rows"]
    assert [row["attack"] for row in rows] == ["pgd", "pgd-cw", "pgd-dlr"]


@pytest.mark.parametrize("words", [("--attacks", "paper"), ("--attacks", "si-pgd"), ("--head", "nets.0.1")])
def test_what_was_asked_for_is_an_error(here: Path, words: tuple[str, str]) -> None:
    code, said = run(here, "evaluate", "their_ensembles:two", *words)
    assert code == 2
    assert "error: the head must" in said
    assert "find_head" not in said


def test_a_network_with_a_head_meets_all_of_them(here: Path) -> None:
    code, said = run(here, "evaluate", "their_ensembles:one", "--no-checks")
    assert code == 0, said
    assert "left out" not in said
    found = json.loads((here / "found" / "evaluation.json").read_text())
    assert [attack["name"] for attack in found["attacks"]] == ["pgd", "pgd-cw", "pgd-dlr", "si-pgd"]
