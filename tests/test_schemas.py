"""Every JSON file that the project writes has a schema and keeps to it; a field that no schema knows is an error."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scaleproof.cli.main import app
from scaleproof.schemas import SHARED, names, read, schema

jsonschema = pytest.importorskip("jsonschema")

ROOT = Path(__file__).resolve().parents[1]
KINDS = {  # how a file is called, as a pattern -> its schema; the first that fits counts
    "benchmarks/parity-*.json": "benchmark-parity",
    "benchmarks/training-*.json": "benchmark-training",
    "benchmarks/memory-*.json": "benchmark-memory",
    "benchmarks/check-cost-*.json": "benchmark-checks",
    "benchmarks/growth-*.json": "benchmark-growth",
    "benchmarks/differences-*.json": "benchmark-differences",
    "benchmarks/objectives-*.json": "benchmark-objectives",
    "benchmarks/start-*.json": "benchmark-start",
    "benchmarks/budget-*.json": "benchmark-budget",
    "benchmarks/parts-*.json": "benchmark-parts",
    "benchmarks/rankings-*.json": "benchmark-rankings",
    "benchmarks/*.json": "benchmark-attacks",
    "model_info/*/*/*.json": "robustbench-info",
    "paper/claims.json": "paper-claims",
    "paper/prose.json": "paper-prose",
    "run.json": "run",
    "unfinished.json": "unfinished",
    "evaluation.json": "evaluation",
    "sweep.json": "sweep",
    "training.json": "training",
    "metrics.jsonl": "metrics",
    "analysis.json": "analysis",
    "museum.json": "museum",
    "annex*.json": "museum",
    "healthy.json": "healthy",
    "gate.json": "gate",
    "reproduction.json": "reproduction",
    "*seeds.json": "seeds",
}
UNSAID = {  # written without a version, now or once; the record of a model is RobustBench's form, not ours
    "robustbench-info",
    *(f"benchmark-{name}" for name in ("attacks", "memory", "parity", "training")),
}


def validate(document: object, kind: str) -> None:
    jsonschema.Draft202012Validator(schema(kind)).validate(document)


def kind_of(path: Path) -> str:
    kinds = [kind for pattern, kind in KINDS.items() if path.match(pattern)]
    assert kinds, f"{path} has no schema: add one to src/scaleproof/schemas and a line to KINDS"
    return kinds[0]


def documents(folder: Path) -> Iterator[tuple[Path, Any]]:
    """Every JSON document below a folder, strictly read: NaN is no JSON."""
    for path in sorted(path for path in folder.rglob("*.json*") if not path.name.endswith(".part")):
        texts = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        for text in texts:
            yield path, json.loads(text, parse_constant=refuse)


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def check(folder: Path) -> set[str]:
    """Validate all that is below a folder; the kinds that were met."""
    met = set()
    for path, document in documents(folder):
        kind = kind_of(path)
        validate(document, kind)
        assert (
            document.get("schema", f"scaleproof.{kind}/1" if kind in UNSAID else None)
            == f"scaleproof.{kind}/1"
        )
        met.add(kind)
    return met


@pytest.mark.parametrize("name", [*names(), *SHARED])
def test_schemas_are_schemas(name: str) -> None:
    document = read(name)
    jsonschema.Draft202012Validator.check_schema(document)
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert document["$id"] == f"urn:scaleproof:{name}:1"


def test_every_schema_has_a_file_here() -> None:
    assert set(KINDS.values()) | {"checkpoint"} == set(names())
    with pytest.raises(ValueError, match=r"a schema must be one of .*, got 'runn'"):
        schema("runn")


@pytest.mark.parametrize(
    "folder",
    [path for path in sorted((ROOT / "docs" / "results").iterdir()) if path.is_dir()],
    ids=lambda p: p.name,
)
def test_published_results(folder: Path) -> None:
    met = check(folder)
    assert met or not list(folder.rglob("*.json*"))


def test_the_paper_as_data() -> None:
    assert check(ROOT / "src" / "scaleproof" / "paper") == {"paper-claims", "paper-prose"}


def scaleproof(*words: object) -> None:
    """A command in this process: starting one costs seconds."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    assert done.exception is None


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    quick = ["--limit", 8, "--steps", 2, "--device", "cpu", "--attacks", "pgd,si-pgd"]
    restarts = ["--restarts", 2, "--keep-examples"]
    scaleproof("evaluate", "demo", *quick, *restarts, "--out", folder / "evaluation")
    analyse = ["--limit", 8, "--device", "cpu", "--parts", "cosines,eps,steps,classes"]
    scaleproof("analyse", "undefended", *analyse, "--out", folder / "analysis")
    scaleproof("analyse", "demo", *analyse[:-1], "classes", "--into", folder / "evaluation")
    scaleproof("museum", "constant", "--limit", 4, "--device", "cpu", "--out", folder / "museum.json")
    few = ["--limit", 4, "--device", "cpu"]
    scaleproof("museum", "--annex", "shifted-classes", *few, "--out", folder / "annex.json")
    passing = ["--min-robust", 0, "--against", folder / "evaluation", "--max-drop", 100]
    scaleproof("gate", "demo", "--limit", 8, "--device", "cpu", *passing, "--out", folder / "gate.json")
    cascade = ["--mode", "cascade", "--attacks", "apgd-ce,fgsm", "--precision", "float32", "--no-checks"]
    scaleproof("evaluate", "demo", *quick[:-2], *cascade, "--out", folder / "cascade")
    scaleproof("export", "robustbench", folder / "cascade", "--name", "Me2026First", "--out", folder)
    scaleproof("sweep", "demo", *quick, "--alphas", "1,1e3", "--out", folder / "sweep")
    words = ["--limit", 24, "--epochs", 1, "--test-limit", 8, "--batch-size", 12, "--device", "cpu"]
    scaleproof("train", "trades", "--si", *words, "--attacks", "pgd", "--out", folder / "training")
    seeds = ["--seeds", "0,1", "--no-report", "--attacks", "pgd"]
    scaleproof("train", "free", *words, *seeds, "--out", folder / "training-free")
    return folder


def test_fresh_runs(runs: Path) -> None:
    kinds = {
        "run",
        "evaluation",
        "sweep",
        "training",
        "metrics",
        "robustbench-info",
        "museum",
        "gate",
        "analysis",
        "seeds",
    }
    assert check(runs) == kinds


def test_a_run_cut_short(tmp_path: Path) -> None:
    """A kill after the first checkpoint leaves what a resume needs."""
    words = ["train", "at", "--limit", "40", "--epochs", "400", "--test-limit", "10", "--batch-size", "16"]
    words += ["--device", "cpu", "--attacks", "pgd", "--checkpoint-seconds", "0", "--out", f"{tmp_path}/x"]
    process = subprocess.Popen([sys.executable, "-m", "scaleproof", *words], stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            if list(tmp_path.glob("x/units/checkpoint-*.safetensors")) or process.poll() is not None:
                break
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.1)
    finally:
        process.kill()
        process.wait()
    assert check(tmp_path) >= {"unfinished"}
    data = next(tmp_path.glob("x/units/checkpoint-*.safetensors")).read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    validate(json.loads(header["__metadata__"]["scaleproof"]), "checkpoint")


def test_a_randomised_model(tmp_path: Path) -> None:
    words = ["--limit", 12, "--steps", 2, "--device", "cpu", "--attacks", "pgd,pgd-cw", "--draws", 3]
    scaleproof("evaluate", "networks:noisy", *words, "--out", tmp_path / "x")
    assert "expected" in json.loads((tmp_path / "x" / "evaluation.json").read_text())
    assert check(tmp_path) == {"run", "evaluation"}


LEVELS = {  # where a field that nobody declared must be noticed
    "evaluation": [(), ("model",), ("data",), ("threat",), ("clean",), ("attacks", 0), ("attacks", 0, "robust")],
    "run": [(), ("hardware",), ("settings",)],
    "sweep": [(), ("rows", 0), ("rows", 0, "robust")],
    "training": [(), ("recipe",), ("config",), ("results",), ("results", "last"), ("results", "last", "evaluation")],
    "metrics": [("validation",)],
    "seeds": [(), ("runs", 0), ("results",), ("results", "last", 0)],
}  # fmt: skip


@pytest.mark.parametrize("kind", LEVELS)
def test_a_new_field_needs_a_schema(runs: Path, kind: str) -> None:
    found = [document for path, document in documents(runs) if kind_of(path) == kind]
    for level in LEVELS[kind]:
        document = json.loads(json.dumps(found[0]))
        validate(document, kind)
        place = document
        for step in level:
            place = place[step]
        place["undeclared"] = "text"
        with pytest.raises(jsonschema.ValidationError, match=r"undeclared|'text' is not of type"):
            validate(document, kind)


def test_a_missing_field_and_a_wrong_version_are_noticed(runs: Path) -> None:
    document = json.loads((runs / "evaluation" / "evaluation.json").read_text())
    with pytest.raises(jsonschema.ValidationError, match=r"'scaleproof.evaluation/1' was expected"):
        validate({**document, "schema": "scaleproof.evaluation/2"}, "evaluation")
    for name in set(document) - {"examples"}:  # there where they were asked for
        with pytest.raises(jsonschema.ValidationError, match=f"'{name}' is a (required property|dependency)"):
            validate({key: value for key, value in document.items() if key != name}, "evaluation")
