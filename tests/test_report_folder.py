"""Reading run folders: what is accepted, and how clearly the rest is refused."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from report_fixtures import change_json, run_object, verdict_arrays, write_evaluation, write_json, write_sweep
from scaleproof.report import load_run
from scaleproof.report.compare import compare
from scaleproof.report.folder import survivors


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a complete run folder once."""
    return write_evaluation(tmp_path_factory.mktemp("original"))


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """Copy the complete run folder, for a test to damage."""
    return Path(shutil.copytree(original, tmp_path / "run"))


def test_a_complete_folder_is_read(folder: Path) -> None:
    run = load_run(folder)
    assert run.run.seed == 7
    assert run.evaluation is not None
    assert run.verdicts is not None
    assert run.evaluation.worst_case.correct == int(survivors(run.verdicts).sum())
    assert run.sweep is not None
    assert run.sweep.identical["si-pgd"] is True
    assert run.gallery is not None
    assert run.gallery.attack.tolist() == ["si-pgd", "pgd-ce", "si-pgd", "pgd-ce"]


def test_optional_files_may_be_absent(tmp_path: Path) -> None:
    run = load_run(write_evaluation(tmp_path, optional=False))
    assert (run.sweep, run.verdicts, run.gallery) == (None, None, None)


def test_a_sweep_needs_no_evaluation(tmp_path: Path) -> None:
    run = load_run(write_sweep(tmp_path))
    assert run.evaluation is None
    assert run.run.commit is None


def test_unknown_fields_are_ignored(folder: Path) -> None:
    change_json(folder / "evaluation.json", "later", value={"anything": 1})
    assert load_run(folder).evaluation is not None


@pytest.mark.parametrize("name", ["run.json", "evaluation.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing.*run the measurement again"):
        load_run(folder)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be a folder"):
        load_run(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["run.json", "evaluation.json", "sweep.json", "verdicts.npz", "gallery.npz"])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"PK\x03\x04 cut short"])
def test_a_damaged_file_is_named(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} must be .*damaged.*restore the file"):
        load_run(folder)


@pytest.mark.parametrize("name", ["verdicts.npz", "gallery.npz"])
def test_a_truncated_archive_is_named(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=rf"{name} must be .*damaged"):
        load_run(folder)


@pytest.mark.parametrize("name", ["verdicts.npz", "gallery.npz"])
def test_a_flipped_byte_in_an_archive_is_named(folder: Path, name: str) -> None:
    whole = bytearray((folder / name).read_bytes())
    whole[200] ^= 0xFF
    (folder / name).write_bytes(bytes(whole))
    with pytest.raises(ValueError, match=name):
        load_run(folder)


@pytest.mark.parametrize("schema", ["scaleproof.run/2", "other", None])
@pytest.mark.parametrize("name", ["run.json", "evaluation.json", "sweep.json"])
def test_a_foreign_schema_is_refused(folder: Path, name: str, schema: str | None) -> None:
    change_json(folder / name, "schema", value=schema)
    with pytest.raises(
        ValueError, match=rf"{name} must have schema .*the version of scaleproof that wrote it"
    ):
        load_run(folder)


def test_json_that_is_no_object_is_refused(folder: Path) -> None:
    (folder / "run.json").write_text("[]")
    with pytest.raises(ValueError, match=r"run.json must be a JSON object, but is a list"):
        load_run(folder)


@pytest.mark.parametrize(
    ("name", "keys", "value", "message"),
    [
        ("run.json", ("kind",), "party", r"kind must be one of .*'party'"),
        ("run.json", ("seed",), "7", r"seed must be a whole number.*'7'"),
        ("run.json", ("seed",), True, r"seed must be a whole number.*True"),
        ("run.json", ("commit",), 5, r"commit must be a string"),
        ("run.json", ("settings",), [], r"settings must be an object"),
        ("run.json", ("seconds",), float("nan"), r"seconds must be a finite number"),
        ("evaluation.json", ("mode",), "both", r"mode must be one of"),
        ("evaluation.json", ("attacks",), [], r"attacks must be a list of at least one"),
        ("evaluation.json", ("attacks",), ["pgd"], r"attacks\[0\] must be an object"),
        (
            "evaluation.json",
            ("attacks", 0, "name"),
            "pgd-ce",
            r"attacks must be .* different names",
        ),
        (
            "evaluation.json",
            ("attacks", 0, "scale_invariant"),
            1,
            r"attacks\[0\].scale_invariant must be true",
        ),
        ("evaluation.json", ("attacks", 0, "notes"), [1], r"attacks\[0\].notes must be a list of strings"),
        ("evaluation.json", ("clean", "accuracy"), 92.1, r"clean.accuracy must be a fraction from 0 to 1"),
        ("evaluation.json", ("clean", "accuracy"), 0.5, r"clean.accuracy must be correct / count"),
        ("evaluation.json", ("clean", "correct"), 1001, r"clean.correct must be at most count = 1000"),
        (
            "evaluation.json",
            ("clean", "interval"),
            [0.9, 0.1],
            r"clean.interval must be two rising",
        ),
        ("evaluation.json", ("threat", "norm"), "l1", r"threat.norm must be one of"),
        ("evaluation.json", ("data", "classes"), "cat", r"data.classes must be a list"),
        ("sweep.json", ("alphas",), [1.0, 2.0], r"rows must be one row of pgd-ce at every scale"),
        ("sweep.json", ("alphas",), [-1.0], r"alphas must be .*all above 0"),
        ("sweep.json", ("rows",), [], r"rows must be a list of at least one row"),
        ("sweep.json", ("identical", "pgd-ce"), True, r"identical.pgd-ce must be False, as the digests say"),
        ("sweep.json", ("rows", 0, "alpha"), "1", r"rows\[0\].alpha must be a number"),
    ],
)
def test_a_wrong_field_is_named(folder: Path, name: str, keys: Any, value: Any, message: str) -> None:
    change_json(folder / name, *keys, value=value)
    with pytest.raises(ValueError, match=f"{name}: field {message}"):
        load_run(folder)


def test_an_absent_field_is_named(folder: Path) -> None:
    whole = run_object("evaluation")
    del whole["seed"]
    write_json(folder / "run.json", whole)
    with pytest.raises(ValueError, match=r"run.json: field seed is required"):
        load_run(folder)


def test_verdicts_of_another_run_are_refused(folder: Path) -> None:
    arrays = verdict_arrays(["a", "b"])
    arrays["clean_correct"] = np.ones_like(arrays["clean_correct"])
    np.savez(folder / "verdicts.npz", **arrays)
    with pytest.raises(ValueError, match=r"counts 1000 correct .* states 921.*mixes two runs"):
        load_run(folder)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("labels", np.zeros(3, int), r"'labels' must have shape \(1000,\), but has \(3,\)"),
        ("labels", np.full(1000, 10), r"from 0 to 9"),
        ("labels", np.zeros(1000), r"whole numbers"),
        ("broken__si-pgd", None, r"must have the array 'broken__si-pgd'"),
    ],
)
def test_wrong_verdict_arrays_are_refused(folder: Path, name: str, value: Any, message: str) -> None:
    arrays = verdict_arrays(["a"] * 10) | {name: value}
    np.savez(folder / "verdicts.npz", **{k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(ValueError, match=message):
        load_run(folder)


def test_pickled_arrays_are_never_opened(folder: Path) -> None:
    np.savez(folder / "gallery.npz", clean=np.array([{"a": 1}], dtype=object))
    with pytest.raises(
        ValueError, match=r"npz archive of plain arrays, but is damaged \(it is no file of arrays"
    ):
        load_run(folder)


def test_a_gallery_of_the_wrong_kind_is_refused(folder: Path) -> None:
    with np.load(folder / "gallery.npz") as archive:
        arrays = dict(archive)
    np.savez(folder / "gallery.npz", **(arrays | {"clean": arrays["clean"].astype(np.float32)}))
    with pytest.raises(ValueError, match=r"gallery.npz: clean must be uint8"):
        load_run(folder)


def test_a_folder_of_several_runs_names_them(original: Path, tmp_path: Path) -> None:
    for seed in ("seed-1", "seed-0"):
        shutil.copytree(original, tmp_path / "seeds" / seed)
    (tmp_path / "seeds" / "seeds.json").write_text("{}")
    said = re.escape(f"{tmp_path / 'seeds'} lacks it: give one of the runs in it, seed-0, seed-1")
    with pytest.raises(ValueError, match=said):
        load_run(tmp_path / "seeds")
    with pytest.raises(ValueError, match=said):
        compare([original, tmp_path / "seeds"], tmp_path / "page.md")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"run\.json is missing from the run folder"):
        load_run(tmp_path / "empty")
