"""The command line as a person meets it: real commands in real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from helpers import SmallConvNet
from scaleproof.models import build, save_model

QUICK = ["--limit", "16", "--attacks", "pgd,si-pgd", "--steps", "5", "--device", "cpu"]


def run(*words: object, cwd: Path, code: int = 0, **extra: str) -> subprocess.CompletedProcess[str]:
    """A command as a person types it; an evaluation examines the model only where the words say --checks."""
    if words[0] == "evaluate" and "--checks" not in words:
        words = (*words, "--no-checks")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **extra}
    done = subprocess.run(
        [sys.executable, "-m", "scaleproof", *map(str, words)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("cli")
    done = run("evaluate", "demo", *QUICK, "--restarts", 2, "--out", "runs/x", cwd=folder)
    assert done.stderr == "", "quiet where there is no terminal"
    return folder / "runs" / "x", done.stdout


def test_evaluate_writes_a_run_folder(finished: tuple[Path, str]) -> None:
    folder, printed = finished
    assert {path.name for path in folder.iterdir()} >= {
        *(
            "run.json",
            "evaluation.json",
            "verdicts.npz",
            "report.html",
            "report.md",
            "report.tex",
            "gallery.npz",
        ),
    }
    assert not (folder / "unfinished.json").exists()
    record = json.loads((folder / "run.json").read_text())
    assert record["seed"] == 0
    assert record["command"].startswith("scaleproof evaluate demo")
    assert record["versions"]["torch"] == torch.__version__
    document = json.loads((folder / "evaluation.json").read_text())
    assert [attack["label"] for attack in document["attacks"]] == ["PGD", "SI-PGD"]
    assert document["attacks"][1]["cosine_mismatch"] is not None
    verdicts = np.load(folder / "verdicts.npz", allow_pickle=False)
    assert verdicts["broken__pgd"].shape == (2, 16)
    shown = f"{100 * document['worst_case']['accuracy']:.2f}"
    assert "n = 16" in printed
    assert shown in printed
    assert "upper bound" in printed


def test_the_same_run_again_changes_nothing(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    before = (folder / "evaluation.json").read_bytes()
    done = run("evaluate", "demo", *QUICK, "--restarts", 2, "--out", "runs/x", cwd=folder.parents[1])
    assert "holds this run already" in done.stdout
    assert done.stdout.endswith(finished[1]), "and the same table is shown"
    assert (folder / "evaluation.json").read_bytes() == before


def test_the_case_of_names_does_not_matter(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    names = ["--attacks", "PGD,Si-PGD", "--norm", "Linf", "--restarts", 2, "--out", "runs/x"]
    done = run("evaluate", "demo", *QUICK, *names, cwd=folder.parents[1])
    assert "holds this run already" in done.stdout


def test_other_settings_do_not_overwrite(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    done = run("evaluate", "demo", *QUICK, "--seed", 1, "--out", "runs/x", cwd=folder.parents[1], code=2)
    assert "holds a run with other settings" in done.stderr
    assert "seed was 0, is 1" in done.stderr


def test_report_renders_again_without_torch(finished: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = finished
    page = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('torch must not be imported here')")
    run("report", folder, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (folder / "report.html").read_bytes() == page


def test_sweep(tmp_path: Path) -> None:
    done = run("sweep", "demo", *QUICK, "--alphas", "1e-3,1,1e3", "--out", "s", cwd=tmp_path)
    assert "same bits" in done.stdout
    sweep = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert sweep["identical"]["si-pgd"] is True
    assert (tmp_path / "s" / "scale.png").read_bytes().startswith(b"\x89PNG")


def test_default_folders_are_told_apart_by_settings(tmp_path: Path) -> None:
    for seed in (0, 1):
        run("evaluate", "demo", *QUICK, "--seed", seed, cwd=tmp_path)
    assert len(list((tmp_path / "runs").iterdir())) == 2


MISTAKES = {
    "attack": (["evaluate", "demo", "--attacks", "sipgd"], "Did you mean 'si-pgd'?"),
    "model": (["evaluate", "dmo"], "did you mean 'demo'?"),
    "data": (["evaluate", "demo", "--data", "cifar11"], "cifar10"),
    "norm": (["evaluate", "demo", "--norm", "l1"], "norm must be one of linf, l2, got 'l1'"),
    "eps": (["evaluate", "demo", "--eps", "eight"], "eps must be a number such as 0.031 or a fraction"),
    "negative eps": (["evaluate", "demo", "--eps", "-1"], "eps must be finite and >= 0, got -1"),
    "device": (["evaluate", "demo", "--device", "tpu9"], "device must be auto, cpu, cuda or cuda:N"),
    "failing factory": (["evaluate", "mine:fails"], "raised OSError (mine.py, line 8): no weights here"),
    "l2 without eps": (["evaluate", "demo", "--norm", "l2"], "eps must be given for l2"),
    "eps in levels": (["evaluate", "demo", "--eps", "8"], "8/255"),
    "limit": (["evaluate", "demo", "--limit", "5000"], "--limit must be from 1 to 1000"),
    "unfinished": (["report", "unfinished"], "is not finished: run its command again"),
    "alphas": (["sweep", "demo", "--alphas", "1,x"], "alphas must be a number"),
    "other device": (["evaluate", "demo", "--device", "mps"], "device must be auto, cpu, cuda or cuda:N"),
    "mode": (
        ["evaluate", "demo", "--limit", "2", "--mode", "both"],
        "mode must be one of independent, cascade",
    ),
    "factory": (["evaluate", "nowhere:build"], "no module 'nowhere'"),
    "report": (["report", "nowhere"], "nowhere"),
    "train mode": (["evaluate", "mine:in_train_mode", "--limit", "4"], "--allow-train-mode"),
    "pickle": (["evaluate", "weights.safetensors", "--arch", "resnet-small"], "weights_only=True"),
    "other keys": (["evaluate", "other.safetensors", "--arch", "resnet-small"], "missing: 122 (conv1.weight"),
    "cut file": (["evaluate", "cut.safetensors", "--arch", "resnet-small"], "cut.safetensors"),
    "pixels": (["evaluate", "demo", "--data", "bright.npz"], "[0, 1]"),
    "label": (["evaluate", "demo", "--data", "label.npz"], "label"),
}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder full of things that do not work."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "mine.py").write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from helpers import SmallConvNet\n"
        "def in_train_mode(): return SmallConvNet(10)\n"
        "class Sharper(SmallConvNet):\n"
        "    def forward(self, x): return float(__import__('os').environ['SHARPNESS']) * super().forward(x)\n"
        "def sharper(): return Sharper(10).eval()\n"
        "def scaled(): return __import__('scaleproof').load_model('demo').classifier.rescaled(1e4)\n"
        "def fails(): raise OSError('no weights here')\n"
    )
    torch.save(SmallConvNet().state_dict(), folder / "weights.safetensors")
    save_file({"fc.weight": torch.zeros(10, 4)}, folder / "other.safetensors")
    save_model(folder / "whole.safetensors", build("resnet-small"), "resnet-small")
    (folder / "cut.safetensors").write_bytes((folder / "whole.safetensors").read_bytes()[:5000])
    images = np.random.default_rng(0).random((4, 3, 32, 32), np.float32)
    (folder / "unfinished").mkdir()
    (folder / "unfinished" / "unfinished.json").write_text("{}")
    np.savez(folder / "bright.npz", images=images * 3, labels=np.arange(4))
    np.savez(folder / "label.npz", images=images, labels=np.array([0, 1, -2, 3]))
    return folder


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_get_one_clear_line(name: str, workshop: Path) -> None:
    words, message = MISTAKES[name]
    before = sorted(path.name for path in workshop.iterdir())
    done = (
        run(*words, "--out", f"never-{name.replace(' ', '-')}", cwd=workshop, code=2)
        if words[0] != "report"
        else run(*words, cwd=workshop, code=2)
    )
    assert done.stderr.startswith("error: ")
    assert message in " ".join(done.stderr.split())
    left = {path.name for path in workshop.iterdir()} - set(before) - {"__pycache__"}
    assert all(not (workshop / name / "run.json").exists() for name in left)


def test_train_mode_can_be_allowed(workshop: Path) -> None:
    words = ["evaluate", "mine:in_train_mode", *QUICK, "--allow-train-mode", "--out", "allowed"]
    done = run(*words, cwd=workshop)
    assert "train mode" in " ".join(done.stdout.split())
    findings = json.loads((workshop / "allowed" / "evaluation.json").read_text())["findings"]
    assert findings[0]["name"] == "train-mode"


def test_a_full_disk_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from scaleproof.cli import main

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", no_space)
    monkeypatch.setattr(
        sys, "argv", ["scaleproof", "evaluate", "demo", *QUICK, "--no-checks", "--out", "run"]
    )
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "the disk is full" in " ".join(capsys.readouterr().err.split())


def test_another_forward_pass_is_another_run(workshop: Path) -> None:
    """The weights are the same; what the model computes is not."""
    words = ["evaluate", "mine:sharper", *QUICK, "--out", "sharp"]
    run(*words, cwd=workshop, SHARPNESS="1")
    done = run(*words, cwd=workshop, code=2, SHARPNESS="0.2")
    said = " ".join(done.stderr.split())
    assert "other settings (the model answers otherwise than then (its weights or code changed" in said
    assert "first_logits" not in said


def test_a_mistake_does_not_claim_the_folder(workshop: Path) -> None:
    run("evaluate", "mine:in_train_mode", *QUICK, "--out", "twice", cwd=workshop, code=2)
    run("evaluate", "demo", *QUICK, "--out", "twice", cwd=workshop)


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    words = ["evaluate", "demo", "--limit", "200", "--batch-size", "8", "--device", "cpu", "--out", "run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "scaleproof", *words],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.default_int_handler
        ),  # a background job ignores it
    )
    while not list(tmp_path.glob("run/units/00*.npz")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again to go on" in " ".join(errors.split())
    assert "Traceback" not in errors


def test_version_and_help(tmp_path: Path) -> None:
    assert run("--version", cwd=tmp_path).stdout.startswith("scaleproof 0.")
    for command in ("evaluate", "sweep", "demo", "report", "data"):
        assert command in run("--help", cwd=tmp_path).stdout


def test_the_model_is_examined_and_the_number_is_marked(workshop: Path) -> None:
    words = ["--limit", "8", "--attacks", "pgd", "--steps", "2", "--device", "cpu", "--checks"]
    run("evaluate", "demo", *words, "--out", "examined", cwd=workshop)
    document = json.loads((workshop / "examined" / "evaluation.json").read_text())
    assert document["reliable"] is True
    assert {"scale", "gradient-zero", "black-box", "transfer"} <= {
        check["name"] for check in document["checks"]
    }
    done = run("evaluate", "mine:scaled", *words, "--out", "doubtful", cwd=workshop)
    document = json.loads((workshop / "doubtful" / "evaluation.json").read_text())
    assert document["reliable"] is False
    assert "unreliable" in done.stdout
