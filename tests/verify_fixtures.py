"""Finished runs that keep their examples, and ways to forge them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from scaleproof import Threat, load
from scaleproof.cli.main import app
from scaleproof.examples import Examples, pack
from scaleproof.store import read_arrays, write_arrays, write_json
from scaleproof.units import digests
from scaleproof.verify import Verification

COUNT = 48
QUICK = ["--attacks", "pgd,pgd-cw", "--steps", "6", "--restarts", "2", "--batch-size", "16"]
COMMAND = [
    "evaluate",
    "demo",
    "--limit",
    str(COUNT),
    *QUICK,
    "--device",
    "cpu",
    "--no-checks",
    "--keep-examples",
]


@pytest.fixture(scope="session", params=["independent", "cascade"])
def stored_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run that nobody may change."""
    folder = tmp_path_factory.mktemp("verify") / "run"
    done = CliRunner().invoke(app, [*COMMAND, "--mode", request.param, "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def copied_run(stored_run: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, to forge."""
    return Path(shutil.copytree(stored_run, tmp_path / "run"))


def failed(found: Verification) -> set[str]:
    """The names of the checks that a claim failed; it must not be confirmed."""
    assert not found.confirmed
    return {check.name for check in found.checks if not check.passed}


def examples_of(folder: Path) -> tuple[Examples, np.ndarray]:
    """The stored examples and their pixels."""
    found, dataset = Examples.read(folder / "examples.npz"), load("sample")
    assert found is not None
    clean = dataset.select(found.row)[0].numpy()
    return found, found.unpacked(0, len(found), clean, Threat())


def restored(folder: Path, found: Examples, pixels: np.ndarray, *, digest: bool) -> None:
    """Put other pixels into a run, with the hash in the JSON corrected, and the digests of the verdicts if asked."""
    clean = load("sample").select(found.row)[0].numpy()
    code, rest = pack(pixels.astype(np.float32), clean, Threat())
    told = replace(found, code=code, rest=rest).save(folder)
    change(folder, lambda document: document.update(examples=told))
    if digest:
        arrays = read_arrays(folder / "verdicts.npz")
        assert arrays is not None
        for k, value in enumerate(digests(torch.from_numpy(pixels.astype(np.float32)))):
            arrays[f"digest__{found.attack[k]}"][found.restart[k], found.row[k]] = value
        write_arrays(folder / "verdicts.npz", arrays)


def change(folder: Path, edit: Callable[[dict[str, Any]], object], file: str = "evaluation.json") -> None:
    """Edit a JSON document of a run."""
    document = json.loads((folder / file).read_text())
    edit(document)
    write_json(folder / file, document)
