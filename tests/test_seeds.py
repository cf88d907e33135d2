"""Several seeds of one training: what they give together is on the terminal and in files beside them."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, stdev

import pytest
from rich.console import Console
from typer.testing import CliRunner

from scaleproof.cli import seeds
from scaleproof.cli.main import app
from scaleproof.schemas import schema
from test_train_command import QUICK, TESTS

WORDS = ["at", *QUICK, "--epochs", "1", "--seeds", "0,1", "--no-report"]


def train(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["train", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def accuracies(folder: Path, kind: str) -> list[float]:
    """Clean, PGD, worst case by a run's own record."""
    found = json.loads((folder / "training.json").read_text())["results"][kind]["evaluation"]
    return [
        found["clean"]["accuracy"],
        found["attacks"][0]["robust"]["accuracy"],
        found["worst_case"]["accuracy"],
    ]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of tests/networks.py have names here."""
    monkeypatch.syspath_prepend(str(TESTS))


@pytest.mark.usefixtures("here")
def test_means_over_seeds_are_in_files(tmp_path: Path) -> None:
    folder = tmp_path / "both"
    printed = train(*WORDS, "--out", str(folder))
    document = json.loads((folder / "seeds.json").read_text())
    assert document["runs"] == [{"folder": f"seed-{seed}", "seed": seed} for seed in (0, 1)]
    assert (document["label"], document["count"]) == ("AT", 20)
    assert set(document["results"]) == {"selected", "last", "leaking"}
    for kind, columns in document["results"].items():
        pairs = list(zip(*(accuracies(folder / f"seed-{seed}", kind) for seed in (0, 1)), strict=True))
        assert [tuple(column["accuracies"]) for column in columns] == pairs
        assert [column["mean"] for column in columns] == [mean(pair) for pair in pairs]
        assert [column["deviation"] for column in columns] == [stdev(pair) for pair in pairs]
        assert [column["label"] for column in columns] == ["clean", "PGD-20", "worst case"]
    page = (folder / "seeds.md").read_text()
    clean = document["results"]["last"][0]
    cell = f"{100 * clean['mean']:.2f} ± {100 * clean['deviation']:.2f}"
    assert f"| last | {cell} |" in page
    assert "n - 1, over the seeds 0, 1; n = 20 test images, linf 8/255; from seed-0, seed-1." in page
    assert cell in printed
    assert str(folder / "seeds.md") in printed
    (folder / "seeds.json").unlink()
    train(*WORDS, "--out", str(folder))
    assert json.loads((folder / "seeds.json").read_text()) == document, "also from runs that are finished"
    train(*WORDS[:-2], "0,2", "--no-report", "--out", str(folder))
    assert json.loads((folder / "seeds.json").read_text()) == document, "other seeds do not take its place"
    others = json.loads((folder / "seeds-0-2.json").read_text())
    assert [run["seed"] for run in others["runs"]] == [0, 2]


@pytest.mark.usefixtures("here")
def test_weights_with_one_answer_are_told_beside_their_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    words = [*WORDS, "--model", "networks:constant", "--rate", "1e-9", "--out", str(tmp_path)]
    printed = train(*words)
    document = json.loads((tmp_path / "seeds.json").read_text())
    assert document["one_answer"] == {"selected": [0, 1], "last": [0, 1], "leaking": [0, 1]}
    pytest.importorskip("jsonschema").Draft202012Validator(schema("seeds")).validate(document)
    told = "warning, last weights of seeds 0, 1: one answer, whatever the images show"
    assert told in printed
    assert told in (tmp_path / "seeds.md").read_text()
    (alone,) = seeds.remarks({"one_answer": {"selected": [], "last": [1]}})
    assert alone.startswith("warning, last weights of seed 1: one answer")


def test_no_cell_of_the_means_is_broken_or_cut_on_a_narrow_terminal() -> None:
    column = {"mean": 0.13, "deviation": 0.0707}
    labels = ("clean", "PGD-20", "SI-PGD-20", "PGD-CW", "APGD-CE", "worst case")
    found = [{**column, "label": label} for label in labels]
    document = {"runs": [{}, {}], "results": dict.fromkeys(("selected", "last", "leaking"), found)}
    console = Console(width=80)
    with console.capture() as shown:
        console.print(seeds.seeds_table(document))
    assert shown.get().count("13.00 ± 7.07") == 18


@pytest.mark.usefixtures("here")
def test_runs_among_others_lend_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train(*WORDS)
    (described,) = Path("runs").glob("*seeds.json")
    document = json.loads(described.read_text())
    assert described.name == f"{document['runs'][0]['folder']}-seeds.json"
    assert all((Path("runs") / run["folder"] / "run.json").is_file() for run in document["runs"])
    train(*WORDS[:-3], "--seed", "5", "--no-report", "--out", "one")
    assert not list(Path("one").glob("seeds*")), "one seed has no mean"
