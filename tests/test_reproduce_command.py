"""`scaleproof reproduce` on the command line: whole tables at the small scale, killed, resumed, and what went wrong."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from scaleproof.cli.main import app
from scaleproof.cli.reproduced import read_results
from scaleproof.paper import prose, tables
from scaleproof.paper.figures import figures
from scaleproof.paper.runner import held
from scaleproof.paper.scales import FULL, SMALL
from scaleproof.paper.steps import Chain, Place
from scaleproof.paper.targets import wanted
from test_schemas import validate

QUICK = ("single-step", "attacks")
ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "docs" / "results" / "paper"
GRADALIGN = KEPT / "cifar10-preact-resnet18-gradalign" / "original-30" / "seed-0" / "train"
RFGSM = "cifar10/preact-resnet18/rfgsm"


def reproduce(*words: object) -> Result:
    return CliRunner().invoke(app, ["reproduce", *map(str, words)], catch_exceptions=False)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def whole_table(name: str, root: Path) -> None:
    """Every number of a table is measured, marked as a smoke test, and equal to what its run folder says."""
    done = reproduce(f"table-{name}", "--scale", "small", "--out", root)
    assert done.exit_code == 0, done.output
    assert "its numbers mean nothing" in " ".join(done.output.split("Each cell")[-1].split())
    document = read(root / "reproduction.json")
    validate(document, "reproduction")
    (table,) = [table for table in tables() if table.id == name]
    numbers = [number for number in document["numbers"] if number["claim"].startswith(f"{name}/")]
    assert len(document["numbers"]) == 491  # all are listed, whatever was asked for
    assert len(numbers) == len(table.rows) * len(table.columns)
    attacked: dict[str, int] = {}
    for number in numbers:
        assert number["verdict"] == "inconclusive"
        assert number["partial"]
        (run,) = number["runs"]
        folder = root / run["folder"]
        if folder.name == "train":
            evaluation = read(folder / "training.json")["results"]["selected"]["evaluation"]
        else:
            evaluation = read(folder / "evaluation.json")
        agrees(number, evaluation, folder)
        for attack in evaluation["attacks"]:
            attacked[attack["name"]] = attacked.get(attack["name"], 0) + attack["attacked"]
    assert attacked
    assert min(attacked.values()) > 0, attacked  # a smoke test in which nothing is attacked shows nothing
    again = reproduce(f"table-{name}", "--scale", "small", "--out", root)
    assert again.exit_code == 0
    assert "train: " not in again.output  # nothing is left to do
    assert "a smoke test" in (root / "reproduction.md").read_text().lower()


def agrees(number: dict[str, Any], evaluation: dict[str, Any], folder: Path) -> None:
    """A number against the folder that it names."""
    column = number["claim"].split("/")[2]
    if column == "clean":
        expected = evaluation["clean"]["accuracy"]
    elif column == "aa":
        expected = evaluation["worst_case"]["accuracy"]
    elif column.startswith("rays"):
        assert folder.name == "rays"
        return  # by hand in test_reproduction.py
    else:
        name, key = (column[:-2], "robust") if column.endswith("-5") else (column, "robust_one_restart")
        (attack,) = [one for one in evaluation["attacks"] if one["name"] == name]
        expected = attack[key]["accuracy"]
    assert number["measured"] == pytest.approx(100 * expected)


@pytest.mark.parametrize("name", QUICK)
def test_a_table_at_the_small_scale(name: str, tmp_path: Path) -> None:
    whole_table(name, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", [table.id for table in tables() if table.id not in QUICK])
def test_the_other_tables_at_the_small_scale(name: str, tmp_path: Path) -> None:
    whole_table(name, tmp_path)


@pytest.mark.long
def test_every_figure_at_the_small_scale(tmp_path: Path) -> None:
    done = reproduce(*(one.id for one in figures()), "--scale", "small", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert sorted(path.stem for path in tmp_path.glob("*.png")) == sorted(one.id for one in figures())
    sentences = {one["id"]: one for one in read(tmp_path / "reproduction.json")["sentences"]}
    needed = {quantity for one in figures() for quantity in one.quantities} | {
        "head-norm",
        "zero-gradients-after-training",
    }
    about = [one.id for one in prose() if {one.left.get("quantity"), one.right.get("quantity")} & needed]
    assert len(about) > 5
    assert {sentences[name]["verdict"] for name in about} == {"inconclusive"}  # measured, and settles nothing


def test_results_that_cannot_be_written_stop_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def write(*arguments: Any) -> None:
        written.append(arguments)
        if len(written) == 1:
            raise ValueError("something is damaged")

    monkeypatch.setattr("scaleproof.cli.reproduce.write", write)
    models = "cifar10/resnet18/gat,cifar10/resnet18/free"
    done = reproduce("table-single-step", "--models", models, "--scale", "small", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "the results so far could not be written: something is damaged" in done.output
    assert len(written) == 3  # after each of two models, and at the end


def test_the_list_and_the_plan_compute_nothing(tmp_path: Path) -> None:
    listed = reproduce("--list", "--out", tmp_path / "root")
    assert listed.exit_code == 0
    names = [*(f"table-{table.id}" for table in tables()), *(figure.id for figure in figures())]
    assert all(name[:12] in listed.output for name in names)
    planned = reproduce(
        "table-multi-step", "--models", "cifar10/resnet18/*", "--dry-run", "--out", tmp_path / "root"
    )
    assert "Plan: 8 models" in planned.output
    assert "minutes on one H200" in planned.output
    assert "standard" in planned.output
    several = ("cifar10/resnet18/at, cifar10/resnet18/alp*", "--train-only", "--dry-run")
    planned = reproduce("table-multi-step", "--models", *several, "--out", tmp_path / "root")
    assert "Plan: 3 models" in planned.output
    assert "standard" not in planned.output
    assert not (tmp_path / "root").exists()


def small_chain(root: Path) -> Chain:
    (found,) = wanted(["table-single-step"], RFGSM).chains(SMALL, Place(root=root), [0])
    return found


def test_a_step_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    broken = small_chain(tmp_path)
    broken.steps[0].folder.mkdir(parents=True)
    (broken.steps[0].folder / "stray.txt").write_text("not a run")
    words = ["table-single-step", "--models", RFGSM + "*", "--scale", "small", "--jobs", 2, "--out", tmp_path]
    done = reproduce(*words)
    assert done.exit_code == 1
    assert "is not empty and holds no run" in done.output.replace("\n", " ")
    assert "by hand: scaleproof train rfgsm" in done.output.replace("\n", " ")
    numbers = read(tmp_path / "reproduction.json")["numbers"]
    measured = {number["claim"].split("/")[1] for number in numbers if number["runs"]}
    assert measured == {"preact-resnet18-rfgsm-si"}


def test_what_was_asked_for_is_shown_and_everything_is_kept(tmp_path: Path) -> None:
    """The page holds all that was ever measured, also after a command that asked for something else."""
    shutil.copytree(KEPT, tmp_path / "root")
    full = read_results(wanted(["all"]), FULL, Place(root=KEPT))
    before = sum(bool(outcome.runs) for outcome in full.outcomes)
    words = ["table-single-step", "--models", "*gradalign*", "--out", tmp_path / "root"]
    done = reproduce(*words)
    assert done.exit_code == 0
    clean = read(GRADALIGN / "training.json")["results"]["selected"]["evaluation"]["clean"]["accuracy"]
    assert f"{100 * clean:.2f} ±" in done.output
    numbers = read(tmp_path / "root" / "reproduction.json")["numbers"]
    assert sum(bool(one["runs"]) for one in numbers) == before > 30
    other = reproduce(*words, "--recipe", "pang", "--dry-run")
    assert "pang-120" in other.output
    assert "another recipe or length than stated" in other.output


def test_networks_without_weights_are_left_out_and_told(tmp_path: Path) -> None:
    """Kept results have no weights: what is left to measure of them fails by itself."""
    shutil.copytree(KEPT, tmp_path / "root")
    shutil.rmtree(tmp_path / "root" / "cifar10-resnet18-at" / "pang-120" / "seed-0" / "standard")
    done = reproduce("table-multi-step", "--models", "cifar10/resnet18/at", "--out", tmp_path / "root")
    assert done.exit_code == 1
    assert "model.safetensorsisgone" in "".join(done.output.split()), done.output


def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    words = ["reproduce", "table-single-step", "--scale", "small", "--out", str(tmp_path / "root")]
    handled = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code = handled + "import sys; from scaleproof.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    first = tmp_path / "root" / "cifar10-resnet18-free" / "small" / "seed-0" / "train"
    until = time.monotonic() + 120
    while not first.exists() and time.monotonic() < until:
        time.sleep(0.05)
    while process.poll() is None and time.monotonic() < until:
        os.killpg(
            process.pid, signal.SIGINT
        )  # again, as a person would: Python loses one that meets a destructor
        time.sleep(1)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert output.count("train: ") <= 3  # of eight
    assert len(list((tmp_path / "root").glob("*/small/seed-0/train"))) <= 3


def test_killed_and_run_again(tmp_path: Path) -> None:
    """kill -9 of the command while its child trains: the next run waits for the child, or resumes what it left."""
    root = tmp_path / "root"
    words = [
        "reproduce",
        "table-single-step",
        "--models",
        RFGSM,
        "--scale",
        "small",
        "--jobs",
        "2",
        "--out",
        str(root),
    ]
    process = subprocess.Popen([sys.executable, "-m", "scaleproof", *words], start_new_session=True)
    step = small_chain(root).steps[0]
    until = time.monotonic() + 120
    while not step.folder.exists() and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = subprocess.run(
        [sys.executable, "-m", "scaleproof", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert step.state == "done"
    assert len([one for one in read(root / "reproduction.json")["numbers"] if one["runs"]]) == 4


def test_whoever_comes_second_waits(tmp_path: Path) -> None:
    said: list[str] = []
    holder = "import sys, time\nfrom pathlib import Path\nfrom scaleproof.paper.runner import held\n"
    holder += "with held(Path(sys.argv[1]), print):\n    print('held', flush=True)\n    time.sleep(600)\n"
    other = subprocess.Popen([sys.executable, "-c", holder, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"

    def tell(words: str) -> None:
        said.append(words)
        other.kill()  # a lock ends with its process

    with held(tmp_path, tell):
        assert "another process works here" in said[0]
    other.wait()
    other.stdout.close()
