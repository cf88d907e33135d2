"""Comparing trainings over seeds: paired by seed, with Student's interval."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scaleproof.cli.main import app
from scaleproof.report.compare import compare

TABLE_OF_T = 4.302653  # 95%, two degrees of freedom, from any textbook


def column(label: str, accuracies: list[float]) -> dict[str, Any]:
    return {"label": label, "accuracies": accuracies, "mean": 0.0, "deviation": 0.0}


def written(folder: Path, seeds: list[int], worst: list[float], **changes: Any) -> Path:
    """A folder as `train --seeds` leaves it, with these worst cases; clean accuracy is 40 points higher."""
    clean = [one + 0.4 for one in worst]
    columns = [column("clean", clean), column("PGD-20", worst), column("worst case", worst)]
    document = {
        "schema": "scaleproof.seeds/1",
        "label": folder.name.upper(),
        "threat": {"norm": "linf", "eps": 8 / 255},
        "count": 10_000,
        "runs": [{"folder": f"seed-{seed}", "seed": seed} for seed in seeds],
        "results": {"selected": columns, "last": columns, "leaking": columns},
        "one_answer": {"selected": [], "last": [], "leaking": []},
        **changes,
    }
    folder.mkdir()
    (folder / "seeds.json").write_text(json.dumps(document))
    return folder


def test_one_answer_takes_the_headline_from_a_difference(tmp_path: Path) -> None:
    first = written(tmp_path / "at", [0, 1], [0.5, 0.6])
    other = written(
        tmp_path / "si", [0, 1], [0.1, 0.1], one_answer={"selected": [0], "last": [], "leaking": []}
    )
    document, _ = compare([first, other], tmp_path / "page.md")
    assert document.headline == "One answer for everything in si: the difference of si to at says little"


def test_other_attacks_and_the_same_folder_are_refused(tmp_path: Path) -> None:
    first, other = (written(tmp_path / name, [0, 1], [0.5, 0.6]) for name in ("at", "si"))
    with pytest.raises(ValueError, match="got one of them twice"):
        compare([first, first.parent / "si" / ".." / "at"], tmp_path / "page.md")
    (other / "seeds.json").write_text((other / "seeds.json").read_text().replace("PGD-20", "FGSM"))
    with pytest.raises(ValueError, match="same attacks, at has clean, PGD-20, worst case and si clean, FGSM"):
        compare([first, other], tmp_path / "page.md")
    (other / "seeds.json").write_text((other / "seeds.json").read_text().replace("worst case", "best case"))
    with pytest.raises(ValueError, match=r"field results\.selected must be columns, worst case among them"):
        compare([first, other], tmp_path / "page.md")


def test_other_test_images_are_refused(tmp_path: Path) -> None:
    folders = [written(tmp_path / name, [0, 1], [0.25, 0.5]) for name in ("at", "si")]
    for folder, digest in zip(folders, ("ab", "ba"), strict=True):
        (folder / "seed-1").mkdir()
        (folder / "seed-1" / "training.json").write_text(json.dumps({"test": {"sha256": digest}}))
    with pytest.raises(ValueError, match=r"measured alike, at was by .*, 10000 other images and si by"):
        compare(folders, tmp_path / "page.md")


def test_differences_are_paired_by_seed(tmp_path: Path) -> None:
    """By 1, 2 and 3 points: 2 on the mean, with a deviation of 1; seeds stand in any order, and may be more."""
    first = written(tmp_path / "at", [0, 1, 2], [0.50, 0.40, 0.45])
    other = written(tmp_path / "at-si", [2, 7, 0, 1], [0.48, 0.10, 0.51, 0.42])
    error = TABLE_OF_T / 3**0.5
    document, (table,) = compare([first, other], tmp_path / "page.html")
    cells = {row.cells[0]: row.cells[1:] for row in table.rows}
    assert cells["worst case"] == (
        "45.00 ± 5.00",
        "37.75 ± 18.87",
        "+2.00",
        f"{2 - error:+.2f} to {2 + error:+.2f}",
    )
    assert document.headline == "No difference shown between at-si and at in the worst case"
    assert "3 pairs of one seed each, n = 10000" in document.detail
    assert "+2.00" in (tmp_path / "page.html").read_text()


def test_a_difference_that_every_seed_shows_is_the_headline(tmp_path: Path) -> None:
    first = written(tmp_path / "at", [0, 1, 2], [0.500, 0.500, 0.500])
    other = written(tmp_path / "si", [0, 1, 2], [0.519, 0.520, 0.521])
    done = CliRunner().invoke(app, ["compare", str(first), str(other), "--out", str(tmp_path / "page.md")])
    assert done.exit_code == 0, done.output
    assert (
        "si lies 2.00 points above at in the worst case (+2.00 points, 95% interval +1.75 to +2.25"
        in done.output
    )
    page = (tmp_path / "page.md").read_text()
    assert "| **worst case** | **50.00 ± 0.00** | **52.00 ± 0.10** | **+2.00** | **+1.75 to +2.25** |" in page
    assert "## Weights of the last epoch" in page


def test_nothing_is_known_of_differences_that_are_all_the_same(tmp_path: Path) -> None:
    first = written(tmp_path / "at", [0, 1], [0.25, 0.5])
    other = written(tmp_path / "si", [0, 1], [0.375, 0.625])
    document, (table,) = compare([first, other], tmp_path / "page.md")
    assert document.headline.startswith("No difference shown")
    assert "95% interval unknown (all pairs differ alike)" in document.detail
    assert {row.cells[3:] for row in table.rows} == {("+12.50", "–")}


def test_of_several_each_has_a_table_and_one_answer_is_an_alarm(tmp_path: Path) -> None:
    alike = {"selected": [1], "last": [], "leaking": []}
    folders = [written(tmp_path / name, [0, 1], [0.25, 0.5], one_answer=alike) for name in ("a", "b", "c")]
    document, tables = compare(folders, tmp_path / "page.html")
    assert [table.columns[2].title for table in tables] == ["b", "c"]
    assert document.headline == "3 trainings over seeds"
    assert document.alarm.startswith("One answer for everything in a (seeds 1); b (seeds 1); c (seeds 1)")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [1, 3]}, "two seeds in common, at has 0, 1 and si 1, 3: train those that are missing"),
        ({"count": 500}, "measured alike, at was by ℓ∞ radius 8/255, 10000 images and si by .* 500 images"),
        ({"threat": {"norm": "l2", "eps": 0.5}}, "measured alike, .* si by ℓ₂ radius 0.5"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    first = written(tmp_path / "at", [0, 1], [0.25, 0.5])
    other = written(tmp_path / "si", **{"seeds": [0, 1], "worst": [0.3, 0.6], **changes})
    with pytest.raises(ValueError, match=message):
        compare([first, other], tmp_path / "page.md")
    assert not (tmp_path / "page.md").exists()
