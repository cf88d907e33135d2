"""Without --data a trained network is measured on the test images of its own training, never on those of another."""

import json
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from scaleproof.cli.main import app
from scaleproof.models.specs import ASSETS

DEMO = ASSETS / "demo.safetensors"

SHORT = [
    "--batch-size",
    "16",
    "--epochs",
    "1",
    "--steps",
    "1",
    "--attacks",
    "pgd",
    "--no-report",
    "--model",
    "resnet-tiny",
    "--out",
]


def invoke(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def own_images(path: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(40) % 10)
    return path


def test_the_test_images_of_the_training(tmp_path: Path) -> None:
    run = tmp_path / "run"
    invoke(
        "train",
        "at",
        "--data",
        "sample-train",
        "--limit",
        40,
        "--test-limit",
        20,
        "--no-augment",
        *SHORT,
        run,
    )
    training = json.loads((run / "training.json").read_text())
    assert training["config"]["augment"] is False
    out = tmp_path / "evaluation"
    invoke("evaluate", run, "--limit", 5, "--attacks", "fgsm", "--no-checks", "--no-report", "--out", out)
    found = json.loads((out / "evaluation.json").read_text())["data"]
    assert (found["name"], found["split"]) == (training["test"]["name"], "test") == ("sample", "test")


def refused(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code != 0
    return done.output + str(done.exception)


def test_own_images_with_a_known_name_must_be_given_again(tmp_path: Path) -> None:
    """A file called sample.npz is not the sample: neither for a run folder, nor for its weights, nor for a gate."""
    data, test, run = (
        own_images(tmp_path / "d.npz", 0),
        own_images(tmp_path / "sample.npz", 1),
        tmp_path / "run",
    )
    invoke("train", "at", "--data", data, "--test-data", test, *SHORT, run)
    for model in (run, run / "model.safetensors", run / "last.safetensors"):
        said = refused("evaluate", model, "--attacks", "fgsm", "--no-checks", "--out", tmp_path / "e")
        assert "was trained for other images that are called sample, too: give --data" in said
    assert "too: give --data" in refused("gate", run, "--min-robust", 0, "--no-checks")
    assert not (tmp_path / "e").exists()
    words = ["--data", test, "--attacks", "fgsm", "--no-checks", "--no-report", "--out", tmp_path / "e"]
    invoke("evaluate", run / "last.safetensors", *words)


def test_own_images_must_be_given_again(tmp_path: Path) -> None:
    data, test, run = own_images(tmp_path / "d.npz", 0), own_images(tmp_path / "t.npz", 1), tmp_path / "run"
    invoke("train", "at", "--data", data, "--test-data", test, *SHORT, run)
    done = CliRunner().invoke(app, ["evaluate", str(run), "--attacks", "fgsm", "--no-checks"])
    assert isinstance(done.exception, ValueError | SystemExit)
    assert "give --data" in done.output + str(done.exception)
    invoke(
        "evaluate",
        run,
        "--data",
        test,
        "--attacks",
        "fgsm",
        "--no-checks",
        "--no-report",
        "--out",
        tmp_path / "e",
    )


def test_somebody_else_s_training_json_says_nothing(tmp_path: Path) -> None:
    """Other tools write a training.json beside a model.safetensors, too."""
    (tmp_path / "model.safetensors").write_bytes(DEMO.read_bytes())
    words = ["--limit", 2, "--attacks", "fgsm", "--no-checks", "--no-report", "--out"]
    for run, content in enumerate(('{"learning_rate": 0.1}', '[{"step": 1}]')):
        (tmp_path / "training.json").write_text(content)
        invoke("evaluate", tmp_path / "model.safetensors", *words, tmp_path / f"run-{run}")
        found = json.loads((tmp_path / f"run-{run}" / "evaluation.json").read_text())
        assert found["data"]["name"] == "sample"
