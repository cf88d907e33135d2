"""Documents: generated numbers are fresh, examples run, links lead somewhere."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.distributed.run import parse_args
from typer.testing import CliRunner

from scaleproof import load_model
from scaleproof.cli.main import app
from scaleproof.paper import claims, prose

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "docs/results/README.md"])


def test_generated_parts_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "make_docs.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", ["demo-cifar10/evaluation.json", "demo-scale-sweep/sweep.json"])
def test_the_demo_s_numbers_are_those_of_the_embedded_network(file: str) -> None:
    model = json.loads((ROOT / "docs" / "results" / file).read_text())["model"]
    assert model["weights_sha256"] == load_model("demo").sha256


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(example.read_text().splitlines()) <= 40
    runpy.run_path(str(example), run_name="__main__")
    assert "clean" in capsys.readouterr().out


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize(
    "file", [*DOCUMENTS, *(ROOT / "src").rglob("*.py")], ids=lambda path: str(path.relative_to(ROOT))
)
def test_nobody_is_sent_to_an_index_that_has_no_scaleproof(file: Path) -> None:
    """It is installed from a checkout."""
    assert re.findall(r"install '?scaleproof\b(?!/)", file.read_text()) == []


def test_torchrun_understands_every_line_for_it() -> None:
    """It takes `--si` for an option of its own, wherever it stands."""
    lines = [
        line.partition("#")[0].split()[1:]
        for document in DOCUMENTS
        for line in document.read_text().splitlines()
        if line.startswith("    torchrun ")
    ]
    assert any("--scale-invariant" in words for words in lines)
    for words in lines:
        found = parse_args(words)
        assert (found.module, found.training_script) == (True, "scaleproof")
    assert parse_args(["-m", "scaleproof", "--", "train", "at", "--si"]).training_script_args[-1] == "--si"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_the_page_on_attacks_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "add-an-attack.md").read_text(), re.DOTALL)
    exec(compile("\n".join(blocks), "add-an-attack.md", "exec"), {"__name__": "page"})
    assert "momentum" in capsys.readouterr().out


def test_the_page_on_verifying_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "evaluate demo --attacks pgd --steps 3 --limit 20 --keep-examples --no-checks --no-report --out runs/mine"
    assert CliRunner().invoke(app, words.split()).exit_code == 0
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "verify.md").read_text(), re.DOTALL)
    page: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "verify.md", "exec"), page)
    assert len(page["images"]) > 0
    decided = load_model("demo").classifier(page["images"]).argmax(1)
    assert (decided != page["labels"]).all()
    assert "pgd 0" in capsys.readouterr().out


def test_the_page_on_defenses_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "add-a-defense.md").read_text(), re.DOTALL)
    exec(compile("\n".join(blocks), "add-a-defense.md", "exec"), {"__name__": "page"})
    told = capsys.readouterr().out
    assert "'margin'" in told
    assert "'divergence'" in told


def test_the_commands_on_defenses_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the page's first block as a module of the current folder; the second time the training is finished."""
    page = (ROOT / "docs" / "add-a-defense.md").read_text()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smooth.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    commands = re.findall(r"^    scaleproof (.+)$", page, re.MULTILINE)
    assert [words.split()[0] for words in commands] == ["train", "report", "evaluate"]
    for words in (*commands, commands[0]):
        done = CliRunner().invoke(app, words.split())
        assert done.exit_code == 0, f"{words}: {done.output}"
    assert "runs/smooth holds this run already" in done.output
    record = json.loads((tmp_path / "runs" / "smooth" / "training.json").read_text())
    assert (record["label"], record["defense"]["class"]) == (
        "AT, smoothed labels-SI",
        "smooth.SmoothTraining",
    )


def test_the_page_on_budgets_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "budget.md").read_text(), re.DOTALL)
    exec(compile(block, "budget.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.count("Share(") == 2


def test_the_page_on_comparisons_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "report.md").read_text(), re.DOTALL)
    page: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "report.md", "exec"), page)
    assert page["found"].count == 50
    assert page["found"].lost > page["found"].won
    assert "the accuracy drops by" in capsys.readouterr().out


def test_kept_runs_are_kept_without_what_is_of_no_use(tmp_path: Path) -> None:
    """Digests of examples that are not there do not compress; a training brings its curve."""
    run = next((ROOT / "docs" / "results" / "paper").glob("*/*/seed-0/train"))
    source = tmp_path / "runs" / "model" / "train"
    shutil.copytree(run, source)
    (source / "curve.png").unlink()
    with np.load(source / "verdicts-last.npz") as arrays:
        verdicts = dict(arrays)
    digests = {"digest__pgd": np.arange(verdicts["broken__pgd"].size, dtype=np.uint64)}
    np.savez(source / "verdicts-last.npz", **(verdicts | digests))  # type: ignore[arg-type]
    (source / "model.safetensors").write_bytes(b"weights")
    keep = runpy.run_path(str(ROOT / "tools" / "keep_results.py"))["keep"]
    (kept,) = keep(tmp_path / "runs", tmp_path / "kept")
    with np.load(kept / "verdicts-last.npz") as arrays:
        assert arrays.files == list(verdicts)
    assert not (kept / "model.safetensors").exists()
    assert (kept / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert keep(tmp_path / "runs", tmp_path / "kept") == []


def test_the_readme_counts_what_the_paper_claims() -> None:
    words = f"holds all {len(claims())} numbers and {len(prose())} sentences of the paper against it"
    assert words in (ROOT / "README.md").read_text()
