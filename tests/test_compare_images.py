"""Comparing runs on other images: what is said, and what is not claimed."""

import json
from pathlib import Path

import numpy as np
import pytest

from report_fixtures import COUNT, change_json, share, write_evaluation, write_other
from scaleproof.report.compare import compare
from scaleproof.report.compare.entries import load_entries
from scaleproof.report.compare.tables import settings_table

OTHER = "Wide ResNet on CIFAR-10 and Other network were measured on different images: their difference says little"


def cut(folder: Path, count: int) -> Path:
    """Leave the first few images of an evaluation."""
    arrays = dict(np.load(folder / "verdicts.npz"))
    kept = {name: values[..., :count] for name, values in arrays.items()}
    np.savez(folder / "verdicts.npz", **kept)
    document = json.loads((folder / "evaluation.json").read_text())
    alive = kept["clean_correct"].copy()
    for attack in document["attacks"]:
        broken = kept[f"broken__{attack['name']}"]
        attack["robust_one_restart"] = share(int((kept["clean_correct"] & ~broken[0]).sum()), count)
        attack["robust"] = share(int((kept["clean_correct"] & ~broken.any(axis=0)).sum()), count)
        alive &= ~broken.any(axis=0)
    document["data"] |= {"count": count, "sha256": "0" * 64}
    document |= {
        "clean": share(int(kept["clean_correct"].sum()), count),
        "worst_case": share(int(alive.sum()), count),
    }
    (folder / "evaluation.json").write_text(json.dumps(document))
    return folder


def test_runs_on_different_data_have_no_difference_in_the_headline(tmp_path: Path) -> None:
    first, other = write_evaluation(tmp_path / "a"), cut(write_other(tmp_path / "b"), 120)
    change_json(other / "evaluation.json", "data", "name", value="ten")
    document, (table,) = compare([first, other], tmp_path / "page.md")
    assert document.headline == OTHER
    assert document.detail.endswith(f"unpaired, n = {COUNT} against 120")
    assert "points" not in document.detail
    assert table.rows[1].cells[3:] == ("–", "–", "other images")
    text = (tmp_path / "page.md").read_text()
    reason = f"different data (cifar10, test split, {COUNT} images, against ten, test split, 120 images)"
    assert reason in text
    assert "different numbers of images" not in text


def test_fewer_images_of_one_set_are_compared_with_both_counts(tmp_path: Path) -> None:
    first, other = write_evaluation(tmp_path / "a"), cut(write_other(tmp_path / "b"), 120)
    document, (table,) = compare([first, other], tmp_path / "page.md")
    assert "different images" not in document.headline
    assert document.detail.endswith(f"unpaired, n = {COUNT} against 120")
    assert table.rows[1].cells[-1] == "unpaired"
    assert f"different numbers of images ({COUNT} against 120)" in (tmp_path / "page.md").read_text()


def test_a_set_under_another_name_is_the_same_set(tmp_path: Path) -> None:
    """A copy of the file, or another form of a published set: the digests say that the images are the same."""
    first, other = write_evaluation(tmp_path / "a"), write_other(tmp_path / "b")
    change_json(other / "evaluation.json", "data", "name", value="my-copy")
    document, (table,) = compare([first, other], tmp_path / "page.md")
    assert "different images" not in document.headline
    assert "McNemar" in document.detail
    assert table.rows[1].cells[-1] not in ("unpaired", "other images")
    assert "different data" not in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize("several", [False, True])
def test_that_images_differ_is_said_once_above_the_tables(tmp_path: Path, several: bool) -> None:
    folders = [write_evaluation(tmp_path / "a"), write_other(tmp_path / "b")]
    change_json(folders[1] / "evaluation.json", "data", "sha256", value="0" * 64)
    folders += [write_evaluation(tmp_path / "c")] if several else []
    document, _ = compare(folders, tmp_path / "page.md")
    said = [
        text
        for text in (document.headline, *document.meaning)
        if "say little" in text or "says little" in text
    ]
    expected = "Measured on other images than a: b. Differences to a say little." if several else OTHER
    assert said == [expected]


def test_columns_of_a_cascade_are_marked(tmp_path: Path) -> None:
    first, other = write_evaluation(tmp_path / "a"), write_other(tmp_path / "b")
    compare([first, other], tmp_path / "plain.md")
    assert "Cascade" not in (tmp_path / "plain.md").read_text()
    change_json(other / "evaluation.json", "mode", value="cascade")
    compare([first, other], tmp_path / "page.md")
    note = "Cascade (Other network): the number of an attack is left by this attack and those before it."
    assert (tmp_path / "page.md").read_text().count(note) == 2, "below the runs and below the differences"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_tf32_differs_from_float32_on_a_gpu_alone(tmp_path: Path, device: str) -> None:
    folders = [write_evaluation(tmp_path / "a"), write_other(tmp_path / "b")]
    for folder, asked, ran in zip(folders, ("auto", "tf32"), ("float32", "tf32"), strict=True):
        change_json(folder / "run.json", "settings", "precision", value=asked)
        change_json(folder / "run.json", "hardware", "device", value=device)
        change_json(folder / "evaluation.json", "speed", "precision", value=ran)
    rows = {row.cells[0] for row in settings_table(load_entries(folders)).rows}
    assert rows == ({"seed"} if device == "cpu" else {"seed", "precision"})
