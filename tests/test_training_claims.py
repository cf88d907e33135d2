"""Whose training a folder holds: changed networks, other attacks, other seeds, and two processes in one folder."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scaleproof.cli.main import app
from scaleproof.locks import LOCK, alone_in, is_at
from test_train_command import ENVIRONMENT, TESTS

NET = """
from torch import nn
def body():
    return [nn.Conv2d(3, 8, 3, 2), nn.{activation}(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout({drop})]
def build():
    return nn.Sequential(*body(), nn.Linear(8, 10))
"""
APART = "from torch import nn\nimport net_of_mine\ndef build():\n    return net_of_mine.build()\n"
SETTINGS = [
    *("--limit", "40", "--test-limit", "10", "--batch-size", "16", "--epochs", "1", "--attacks", "pgd"),
    *("--no-report", "--out", "run"),
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(TESTS))


def write(name: str, text: str) -> None:
    Path(f"{name}.py").write_text(text)
    sys.modules.pop(name, None)
    importlib.invalidate_caches()


def train(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["train", "standard", *arguments])
    return str(done.exception) if done.exit_code else done.output


def test_a_network_whose_file_changed_is_another_training_also_where_its_answers_stay() -> None:
    write("net_of_mine", NET.format(activation="ReLU", drop=0.0))
    settings = ["--model", "net_of_mine:build", *SETTINGS]
    assert "nothing was run" not in train(*settings)
    assert "nothing was run" in train(*settings)
    write("net_of_mine", NET.format(activation="ReLU", drop=0.5))  # eval mode does not show it
    assert "other settings (the file of its network's factory changed): give another --out" in train(
        *settings
    )
    train(*settings[:-2])
    write("net_of_mine", NET.format(activation="ReLU", drop=0.0))
    train(*settings[:-2])
    assert len(list(Path("runs").iterdir())) == 2


def test_a_network_that_answers_otherwise_is_noticed_behind_an_unchanged_factory() -> None:
    write("net_of_mine", NET.format(activation="ReLU", drop=0.0))
    write("factory_of_mine", APART)
    settings = ["--model", "factory_of_mine:build", *SETTINGS]
    train(*settings)
    assert "nothing was run" in train(*settings)
    write("net_of_mine", NET.format(activation="GELU", drop=0.0))
    write("factory_of_mine", APART)
    assert "belongs to a network that answered otherwise" in train(*settings)


def test_a_finished_training_whose_weights_were_moved_away_is_finished() -> None:
    train(*SMALL)
    Path("run/model.safetensors").unlink()
    assert "nothing was run" in train(*SMALL)


SMALL = ["--model", "networks:without_norm", *SETTINGS]


def test_other_attacks_on_a_finished_training_need_no_other_training() -> None:
    train(*SMALL)
    said = train(*SMALL, "--attacks", "pgd,si-pgd")
    assert (
        "run holds this training, finished, with other attacks at its end (attacks.length was 1, is 2)"
        in said
    )
    assert "attack its weights by `scaleproof evaluate run --attacks ...`" in said
    both = train(*SMALL, "--attacks", "si-pgd", "--rate", "0.2")
    assert "holds a run with other settings (attacks[0]" in both


def test_first_weights_are_told_only_where_nothing_explains_them(monkeypatch: pytest.MonkeyPatch) -> None:
    train(*SMALL)
    assert "run holds a run with other settings (seed was 0, is 1): give" in train(*SMALL, "--seed", "1")
    other = [*SMALL, "--model", "networks:dropping"]
    assert "(architecture was 'networks:without_norm', is 'networks:dropping'): give" in train(*other)
    monkeypatch.setattr("scaleproof.train.weights_digest", lambda _: "0" * 64)
    assert "(its network begins with other weights (does its factory load or seed them?" in train(*SMALL)


HOLDING = """
import sys, time
from pathlib import Path
from scaleproof.locks import alone_in
with alone_in(Path("run")):
    print("held", flush=True)
    time.sleep(120)
"""


def test_a_second_process_in_a_folder_is_refused_until_the_first_one_ends_however_it_ends() -> None:
    command = [sys.executable, "-c", HOLDING]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        said = train(*SMALL)
        holder.kill()
    wanted = (
        f"run is in use, process {holder.pid} is training there: wait for it, stop it, or give another --out"
    )
    assert said == wanted
    assert not Path("run/units").exists()
    assert "nothing was run" not in train(*SMALL)
    assert Path("run/run.json").exists()
    assert not Path("run", LOCK).exists()


def test_a_training_that_fails_lets_its_folder_go() -> None:
    assert "NaN" in train(*SMALL, "--rate", "1e30")
    with alone_in(Path("run")):
        assert "is in use" in train(*SMALL)


def test_where_there_are_no_locks_everybody_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with alone_in(Path("run")), alone_in(Path("run")):
        assert Path("run").is_dir()


def test_a_lock_that_was_removed_is_nobodys(tmp_path: Path) -> None:
    with (tmp_path / LOCK).open("w") as stream:
        assert is_at(tmp_path / LOCK, stream.fileno())
        (tmp_path / LOCK).unlink()
        assert not is_at(tmp_path / LOCK, stream.fileno())
