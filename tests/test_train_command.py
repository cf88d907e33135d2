"""`scaleproof train` in real processes: killed and resumed, several seeds, several processes, mistakes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from typer.testing import CliRunner

from scaleproof import load, load_model
from scaleproof.cli.main import app

ROOT = Path(__file__).parents[1]
TESTS = Path(__file__).parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
SMALL = ["--model", "networks:without_norm", "--limit", "60", "--test-limit", "20", "--attacks", "pgd"]
QUICK = [*SMALL, "--epochs", "6", "--batch-size", "20", "--rate", "0.05", "--precision", "float32"]


def words(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "scaleproof", "train", *arguments]


def run(*arguments: str, launcher: list[str] | None = None) -> None:
    command = words(*arguments) if launcher is None else [*launcher, "-m", "scaleproof", "train", *arguments]
    done = subprocess.run(command, cwd=TESTS, env=ENVIRONMENT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


def weights(folder: Path) -> dict[str, Tensor]:
    found = {name: load_file(folder / f"{name}.safetensors") for name in ("model", "last", "leaking")}
    return {f"{name}/{key}": tensor for name, part in found.items() for key, tensor in part.items()}


def same(first: Path, second: Path) -> bool:
    one, two = weights(first), weights(second)
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def kill_at(folder: Path, epochs: int, *arguments: str) -> None:
    """SIGKILL once so many epochs are on record, or when the run has ended."""
    process = subprocess.Popen(
        words(*arguments, "--out", str(folder)), cwd=TESTS, env=ENVIRONMENT, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    metrics = folder / "metrics.jsonl"
    while process.poll() is None:
        if metrics.exists() and len(metrics.read_text().splitlines()) >= epochs:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return
        time.sleep(0.002)


def killed_and_resumed(tmp_path: Path, moments: list[int], *arguments: str) -> None:
    run(*arguments, "--out", str(tmp_path / "whole"))
    for number, moment in enumerate(moments):
        folder = tmp_path / f"cut-{number}"
        kill_at(folder, moment, *arguments)
        kill_at(folder, moment + 1, *arguments)
        run(*arguments, "--out", str(folder))
        assert same(tmp_path / "whole", folder), f"killed after {moment} epochs"
        assert len((folder / "metrics.jsonl").read_text().splitlines()) == 6
        assert not (folder / "units").exists()


def test_killed_and_resumed(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, [2], "free", "--si", *QUICK, "--checkpoint-seconds", "0")


@pytest.mark.long
@pytest.mark.parametrize("method", ["at", "trades", "gat", "gradalign"])
def test_killed_at_more_moments(tmp_path: Path, method: str) -> None:
    moments = random.Random(method).choices(range(5), k=3)
    killed_and_resumed(tmp_path, moments, method, *QUICK, "--checkpoint-seconds", "0")


@pytest.mark.parametrize("method", ["mart", "free"])
def test_two_processes_give_the_weights_of_one(tmp_path: Path, method: str) -> None:
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(29611 + len(method)),
    ]
    settings = [*SMALL, "--epochs", "1", "--batch-size", "25", "--rate", "0.01", "--precision", "float32"]
    run(method, *settings, "--out", str(tmp_path / "one"))
    run(method, *settings, "--out", str(tmp_path / "two"), launcher=torchrun)
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=0, atol=1e-5)
    verdicts = [np.load(tmp_path / folder / "verdicts-last.npz") for folder in ("one", "two")]
    assert (verdicts[0]["broken__pgd"] == verdicts[1]["broken__pgd"]).all()


def test_two_processes_evaluate_as_one(tmp_path: Path) -> None:
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        "29613",
    ]
    common = ["evaluate", "demo", "--limit", "60", "--batch-size", "16", "--attacks", "pgd", "--steps", "3"]
    common.append("--no-checks")
    for folder, launcher in (("one", [sys.executable]), ("two", torchrun)):
        for mode in ("independent", "cascade"):
            command = [
                *launcher,
                "-m",
                "scaleproof",
                *common,
                "--mode",
                mode,
                "--out",
                str(tmp_path / mode / folder),
            ]
            done = subprocess.run(
                command, cwd=TESTS, env=ENVIRONMENT, capture_output=True, text=True, timeout=200
            )
            assert done.returncode == 0, done.stdout + done.stderr
    for mode in ("independent", "cascade"):
        one, two = (np.load(tmp_path / mode / folder / "verdicts.npz") for folder in ("one", "two"))
        for name in one.files:
            np.testing.assert_array_equal(one[name], two[name])


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["train", *arguments])
    return result.exit_code, str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attt"], "a method must be one of standard, at, trades"),
        (["at", "--recipe", "rice"], "a recipe must be one of pang, paper-literal, mart, svhn, original, got 'rice'"),
        (["at", "--epochs", "10", "--decays", "75,90"], "the schedule is longer than the run: decays at epochs (75"),
        (["at", "--epochs", "3", "--decays", "75,90"], "give decays up to epoch 3, or none, and let those of"),
        (["at", "--batch-size", "5000"], "a batch must not be larger than the training set, got 5000"),
        (["at", "--si", "--he"], "give one of them"),
        (["mart", "--he"], "hypersphere embedding goes with at, trades and alp, got mart"),
        (["standard", "--si"], "standard training meets no adversary"),
        (["at", "--si", "--si-half", "top"], "--si-half must be one of both, inner, outer, got 'top'"),
        (["at", "--norm", "l2"], "--norm needs --eps"),
        (["gat", "--norm", "l2", "--eps", "0.5"], "not for gat"),
        (["at", "--weight", "3"], "--weight is for methods with a weighted term, at has none"),
        (["standard", "--steps", "3"], "--steps and --step-size are for methods with an inner attack"),
        (["at", "--schedule", "linear"], "--schedule must be constant, steps (with --decays), cyclic or cosine"),
        (["at", "--seeds", "1,x"], "--seeds must be whole numbers"),
        (["at", "--seeds", "1,1"], "--seeds must differ"),
        (["at", "--epochs", "0"], "epochs must be a whole number >= 1, got 0"),
        (["at", "--precision", "half"], "precision of a training must be one of auto, float32, tf32, bf16, got 'half'"),
        (["at", "--precision", "fp16"], "must be one of auto, float32, tf32, bf16, got 'fp16'"),
        (["at", "--guard", "maybe"], "guard must be one of off, stop, rollback, got 'maybe'"),
        (["at", "--attacks", "square-audit"], "square-audit is an audit of what other attacks leave"),
        (["at", "--attack-mode", "test"], "batch norm attack must be one of eval, train, got 'test'"),
        (["at", "--eps", "8"], "eps must be at most 1"),
        (["at", "--model", "resnet19"], "did you mean 'resnet18'?"),
        (["tradse"], "did you mean 'trades'?"),
        (["at", "--beta", "0.5"], "--beta changes the SI mechanism: give --si too"),
        (["at", "--si", "--beta", "-1"], "--beta must be finite and >= 0, got -1"),
        (["at", "--he", "--model", "networks:without_norm"], "--he gives a hypersphere head to one of our networks"),
        (["at", "--seed", "1", "--seeds", "0,1"], "--seed and --seeds are two ways"),
    ],
)  # fmt: skip
def test_mistakes_are_told_before_anything_is_written(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    code, error = invoke(*arguments, "--limit", "300", "--out", str(tmp_path / "run"))
    assert code != 0
    assert message in error
    assert not (tmp_path / "run").exists()


def test_a_resume_with_other_settings_is_refused_and_loses_nothing(tmp_path: Path) -> None:
    run("at", *QUICK, "--out", str(tmp_path / "run"))
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    code, error = invoke("at", *QUICK, "--weight-decay", "0.1", "--out", str(tmp_path / "run"))
    assert code != 0
    assert "holds a run with other settings" in error
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}


def test_training_on_the_test_images_is_refused(tmp_path: Path) -> None:
    images, mine = load("sample").first(60), tmp_path / "mine.npz"
    np.savez(mine, images=images.images, labels=images.labels)
    code, error = invoke("at", "--data", str(mine), "--batch-size", "20", "--out", str(tmp_path / "run"))
    assert code != 0
    assert "the test images are the training images" in error


def test_a_trained_network_of_ones_own_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("at", *SMALL, "--epochs", "1", "--batch-size", "20", "--out", str(tmp_path / "run"))
    monkeypatch.chdir(TESTS)
    found = load_model(str(tmp_path / "run"))
    assert found.architecture == "networks:without_norm"
    head = found.classifier.net.state_dict()["head.weight"]
    assert torch.equal(head, weights(tmp_path / "run")["model/head.weight"])


def test_seeds_side_by_side_are_the_seeds_alone(tmp_path: Path) -> None:
    run("rfgsm", "--si", *QUICK, "--seeds", "0,3", "--out", str(tmp_path / "both"))
    run("rfgsm", "--si", *QUICK, "--seed", "3", "--out", str(tmp_path / "alone"))
    assert same(tmp_path / "both" / "seed-3", tmp_path / "alone")
    assert not same(tmp_path / "both" / "seed-0", tmp_path / "alone")
    document = json.loads((tmp_path / "alone" / "training.json").read_text())
    assert document["label"] == "RFGSM-AT-SI"
    assert document["defense"]["batch_norm"] == {"attack": "train", "attack_updates": True, "updates": "all"}
    both = tmp_path / "both"
    done = CliRunner().invoke(app, ["report", str(both)])
    assert done.exit_code == 0
    assert [both / seed / "report.html" for seed in ("seed-0", "seed-3")] == [
        Path(line) for line in done.output.split() if line.endswith("report.html")
    ]
    with pytest.raises(ValueError, match="give one of the runs in it, seed-0, seed-3"):
        load_model(str(both))


def test_settings_that_are_asked_for_arrive(tmp_path: Path) -> None:
    words = ["--weight", "3", "--steps", "2", "--step-size", "0.2", "--norm", "l2", "--eps", "0.5"]
    run("trades", *QUICK, *words, "--schedule", "cosine", "--out", str(tmp_path / "l2"))
    document = json.loads((tmp_path / "l2" / "training.json").read_text())
    inner, defense = document["defense"]["inner"], document["defense"]
    assert (inner["norm"], inner["eps"], inner["steps"], inner["step_size"]) == ("l2", 0.5, 2, 0.2)
    assert defense["weight"] == 3.0
    assert document["config"]["schedule"]["kind"] == "cosine"
    assert document["threat"] == {"norm": "l2", "eps": 0.5}


PRECISIONS = {"auto": True, "auto --no-graph": False, "float32": False, "float32 --graph": True}


@pytest.mark.parametrize(("words", "captured"), PRECISIONS.items())
def test_float32_is_the_plain_loop_unless_a_graph_is_asked_for(
    words: str, captured: bool, tmp_path: Path
) -> None:
    run("at", *QUICK, "--precision", *words.split(), "--out", str(tmp_path / "run"))
    speed = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["speed"]
    assert speed["graph"] == captured
    assert speed["fold"] == words.startswith("auto")


def test_the_attacks_at_the_end_are_told_and_equal_weights_attacked_once(tmp_path: Path) -> None:
    """After one epoch the selected, the last and the leaking weights are the same."""
    words = ["train", "at", *QUICK, "--epochs", "1", "--out", str(tmp_path / "one")]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    told = [line for line in done.stderr.splitlines() if "attacking the" in line]
    assert len(told) == 1
    assert "AT: attacking the selected weights on" in told[0]
    results = json.loads((tmp_path / "one" / "training.json").read_text())["results"]
    assert len({json.dumps(found["evaluation"]) for found in results.values()}) == 1
    assert len(results) == 3
