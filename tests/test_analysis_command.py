"""`scaleproof analyse` as a person meets it: a folder of its own, beside an evaluation, stopped and gone on with."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from analysis_helpers import without_seconds
from scaleproof.cli import main
from scaleproof.store import settings_digest

MODEL = "networks:small"  # the same weights every time
TESTS = str(Path(__file__).parent)
QUICK = ["--limit", "8", "--device", "cpu"]
EVALUATION = ["--limit", "8", "--attacks", "pgd,si-pgd", "--steps", "3", "--device", "cpu", "--no-checks"]
PARTS = ["--parts", "weights,cosines"]


def call(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Run a command in this process and return its exit code."""
    monkeypatch.syspath_prepend(TESTS)
    monkeypatch.setattr(sys, "argv", ["scaleproof", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished evaluation."""
    folder = tmp_path_factory.mktemp("evaluated") / "x"
    words = [sys.executable, "-m", "scaleproof", "evaluate", MODEL, *EVALUATION, "--out", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([TESTS, *sys.path])}
    subprocess.run(words, env=environment, check=True, capture_output=True)
    return folder


def test_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a"
    words = ["analyse", MODEL, *QUICK, "--parts", "cosines,eps,classes", "--out", folder]
    assert call(monkeypatch, *words) == 0
    printed = capsys.readouterr()
    assert printed.err == "", "quiet where there is no terminal"
    assert "unbounded" in printed.out
    assert "upper bound" in printed.out
    assert {path.name for path in folder.iterdir()} >= {
        *("run.json", "analysis.json", "analysis.npz", "report.html", "report.md", "report.tex"),
        *("analysis-cosines.png", "analysis-eps.png", "analysis-confusion.png"),
    }
    assert not (folder / "units").exists()
    assert not (folder / "unfinished.json").exists()
    document = json.loads((folder / "analysis.json").read_text())
    assert list(document["parts"]) == ["cosines", "eps", "classes"]
    assert document["model"]["head"] == "head"
    before = (folder / "analysis.json").read_bytes()
    assert call(monkeypatch, *words) == 0
    assert "holds this run already" in capsys.readouterr().out
    assert (folder / "analysis.json").read_bytes() == before
    assert call(monkeypatch, *words, "--seed", 1) == 2
    assert "seed was 0, is 1" in capsys.readouterr().err


def test_beside_an_evaluation(
    evaluated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {
        name: (evaluated / name).read_bytes() for name in ("run.json", "evaluation.json", "verdicts.npz")
    }
    words = ["analyze", MODEL, *QUICK, "--parts", "surfaces,classes", "--into", evaluated]
    assert call(monkeypatch, *words) == 0
    assert {name: (evaluated / name).read_bytes() for name in before} == before
    assert not (evaluated / "analysis-unfinished").exists()
    page = (evaluated / "report.html").read_text()
    assert page.index('id="attacks"') < page.index('id="analysis-surfaces"') < page.index('id="settings"')
    verdicts = np.load(evaluated / "verdicts.npz", allow_pickle=False)
    confusion = np.load(evaluated / "analysis.npz", allow_pickle=False)["classes__confusion"]
    alive = verdicts["clean_correct"] & ~verdicts["broken__pgd"].any(0) & ~verdicts["broken__si-pgd"].any(0)
    assert confusion.trace() == alive.sum(), "the verdicts of the evaluation, not of other attacks"
    assert "verdicts of the evaluation" in (evaluated / "report.md").read_text()
    capsys.readouterr()
    document = json.loads((evaluated / "analysis.json").read_text())
    assert document["run"]["settings"].pop("head") is None, "one that is not named says the same"
    document["run"]["settings_sha256"] = settings_digest(document["run"]["settings"])
    (evaluated / "analysis.json").write_text(json.dumps(document))
    stamp = (evaluated / "analysis.json").read_bytes()
    assert call(monkeypatch, *words) == 0
    assert "holds this analysis already" in capsys.readouterr().out
    assert call(monkeypatch, *words, "--seed", 3) == 2
    assert "holds another analysis (seed was 0, is 3)" in " ".join(capsys.readouterr().err.split())
    assert (evaluated / "analysis.json").read_bytes() == stamp


MISTAKES = {
    "other data": (
        [MODEL, "--data", "sample-train", "--into", "{x}"],
        "its data: sample/test, here: sample-train/train",
    ),
    "other weights": (["networks:without_norm", "--into", "{x}"], "its weights:"),
    "other threat": ([MODEL, "--eps", "4/255", "--into", "{x}"], "its threat:"),
    "no run": ([MODEL, "--into", "{y}"], "must be the folder of a finished evaluation"),
    "both": ([MODEL, "--into", "{x}", "--out", "{y}"], "not both"),
    "parts": ([MODEL, "--parts", "surfaces,weight"], "parts must be some of"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_get_one_clear_line(
    name: str,
    evaluated: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, message = MISTAKES[name]
    monkeypatch.chdir(tmp_path)
    before = sorted(path.name for path in evaluated.iterdir())
    filled = [word.format(x=evaluated, y=tmp_path / "y") for word in words]
    assert call(monkeypatch, "analyse", *filled, *QUICK) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert sorted(path.name for path in evaluated.iterdir()) == before


def test_a_killed_analysis_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["analyse", MODEL, *QUICK, *PARTS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([TESTS, *sys.path])}
    command = [sys.executable, "-m", "scaleproof", *words, "--out", str(tmp_path / "killed")]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(list(tmp_path.glob("killed/units/weights/*.npz"))) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert call(monkeypatch, *words, "--out", tmp_path / "killed") == 0
    assert call(monkeypatch, *words, "--out", tmp_path / "whole") == 0
    one, two = (np.load(tmp_path / name / "analysis.npz", allow_pickle=False) for name in ("killed", "whole"))
    assert sorted(one.files) == sorted(two.files)
    assert all(np.array_equal(one[name], two[name]) for name in one.files)
    parts = [
        without_seconds(json.loads((tmp_path / name / "analysis.json").read_text())["parts"])
        for name in ("killed", "whole")
    ]
    assert parts[0] == parts[1]


def test_the_american_spelling_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--help") == 0
    printed = capsys.readouterr().out
    assert "analyse" in printed
    assert "analyze" not in printed
