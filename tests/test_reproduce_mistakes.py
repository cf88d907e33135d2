"""`scaleproof reproduce`: mistakes are told before anything runs, in lines that can be read and pasted."""

import json
import os
import shutil
import socket
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from scaleproof.cli.reproduce import gpus_of
from scaleproof.cli.reproduced import told
from scaleproof.paper import experiments, tables
from scaleproof.paper.cluster import check_reachable
from scaleproof.paper.measured import measurements
from scaleproof.paper.runner import Failure, Runner, environment
from test_reproduce_command import KEPT, reproduce, small_chain


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="say what to reproduce"):
        reproduce()
    with pytest.raises(ValueError, match="--seeds must be whole numbers"):
        reproduce("all", "--seeds", "one", "--dry-run")
    with pytest.raises(ValueError, match="--scale small has its own length and models"):
        reproduce("all", "--scale", "small", "--epochs", 3)
    with pytest.raises(ValueError, match="--epochs must be >= 1, got 0"):
        reproduce("all", "--epochs", 0, "--dry-run")
    with pytest.raises(ValueError, match="jobs must be >= 1, got 0"):
        Runner(jobs=0)
    assert reproduce("all", "--jobs", 0, "--dry-run").exit_code == 2
    for seeds in ("-1", "0,0"):
        with pytest.raises(ValueError, match=f"--seeds must be different numbers from 0 on, got '{seeds}'"):
            reproduce("all", "--seeds", seeds, "--dry-run")
    with pytest.raises(ValueError, match="--jobs is for this machine, with Ray as many run"):
        reproduce("all", "--ray", "--jobs", 2)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"--out must be a folder, .*file is a file"):
        reproduce("all", "--out", tmp_path / "file", "--dry-run")


def test_what_is_missing_is_told_before_anything_runs(tmp_path: Path) -> None:
    words = ("table-svhn", "--data-folder", tmp_path, "--out", tmp_path / "root")
    with pytest.raises(
        ValueError, match=r"svhn must be in .*: scaleproof data get svhn; or leave such models out"
    ):
        reproduce(*words)
    with pytest.raises(ValueError, match="'cuda:63' was asked for, but torch sees"):
        reproduce(*words, "--device", "cuda:63")
    assert not (tmp_path / "root").exists()


def test_a_root_holds_one_scale(tmp_path: Path) -> None:
    (tmp_path / "reproduction.json").write_text('{"scale": "full"}')
    with pytest.raises(ValueError, match="holds results at the scale full, not small: give another --out"):
        reproduce("fig-geometry", "--scale", "small", "--out", tmp_path)


def test_a_cluster_that_does_not_answer_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_reachable(f"127.0.0.1:{port}")
    with pytest.raises(
        ValueError, match=f"--ray-address must be that of a running cluster, 127.0.0.1:{port}"
    ):
        check_reachable(f"127.0.0.1:{port}")
    for nothing_to_ask in (None, "auto", "local"):
        check_reachable(nothing_to_ask)


def test_models_side_by_side_are_spread_over_gpus() -> None:
    runner = Runner(jobs=3, gpus=("0", "GPU-b"))
    assert [runner.places.get() for _ in range(3)] == ["0", "GPU-b", "0"]
    assert (
        environment("GPU-b", wide=True).items() >= {"CUDA_VISIBLE_DEVICES": "GPU-b", "COLUMNS": "140"}.items()
    )
    assert environment(None, wide=False) == dict(os.environ)
    assert gpus_of("cpu") == gpus_of("cuda:1") == ()


def test_names_in_the_list_can_be_typed_and_commands_pasted(tmp_path: Path) -> None:
    listed = reproduce("--list", "--out", tmp_path).output
    assert all(f"table-{table.id} " in listed for table in tables())
    step = small_chain(tmp_path / "a-folder-with-a-very-long-name" / "in-another-one-with-a-long-name").steps[
        0
    ]
    console = Console(file=StringIO(), width=40)
    told(console, [Failure(step=step, code=2, words="")])
    assert f"by hand: scaleproof {' '.join(step.command)}\n" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_training_by_a_recipe_that_has_changed_is_told(tmp_path: Path) -> None:
    """In the plan, before anybody adds seeds to it, and beside its numbers."""
    place = tmp_path / "cifar10-resnet18-at" / "pang-120" / "seed-0"
    shutil.copytree(KEPT / "cifar10-resnet18-at" / "pang-120" / "seed-0", place)
    words = ["table-multi-step", "--models", "cifar10/resnet18/at", "--out", tmp_path, "--dry-run"]
    told = "the recipe has changed since"
    assert told not in reproduce(*words).output.replace("\n", " ")
    path = place / "train" / "training.json"
    document = json.loads(path.read_text())
    document["config"]["schedule"]["epochs"] = [60]
    path.write_text(json.dumps(document))
    shown = " ".join(reproduce(*words).output.replace("│", " ").split())
    assert "has changed since" in shown
    found = measurements(tmp_path, [one for one in experiments() if one.model == "cifar10/resnet18/at"], {})
    assert {one.reason for one in found} == {told}
