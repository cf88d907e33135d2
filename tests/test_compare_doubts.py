"""Comparing runs: what takes the worth from a difference is said first, and by the names of the runs."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from report_fixtures import (
    CLASSES,
    add_checks,
    change_json,
    evaluation_object,
    verdict_arrays,
    write_evaluation,
    write_json,
    write_other,
)
from scaleproof.cli.main import app
from scaleproof.report.compare import compare
from scaleproof.report.compare.entries import load_entries
from scaleproof.report.compare.figures import bars_figure
from scaleproof.report.compare.headline import disagreement, shown
from scaleproof.report.compare.statistics import Difference, paired_difference, unpaired_difference
from scaleproof.report.words import share_of
from training_report_fixtures import write_training

FIRST, OTHER = "Wide ResNet on CIFAR-10", "Other network"
ALIKE = "the network answers class 7 for all 50 images, whatever they show: it tells nothing apart"


def one_answer(folder: Path) -> Path:
    """Give an evaluation, or the selected weights of a training, the finding that there is one answer."""
    finding = {"name": "one-answer", "severity": "note", "meaning": ALIKE}
    if (folder / "training.json").is_file():
        change_json(
            folder / "training.json", "results", "selected", "evaluation", "findings", value=[finding]
        )
    else:
        change_json(folder / "evaluation.json", "findings", value=[finding])
    return folder


def other_threat(folder: Path) -> Path:
    """Give an evaluation another radius."""
    change_json(folder / "evaluation.json", "threat", "eps", value=4 / 255)
    return folder


def difference_of(gained: int, lost: int, count: int) -> Difference:
    """Return the paired difference of so many images."""
    place = np.arange(count)
    return paired_difference((place >= gained) & (place < gained + lost), place < gained)


def gain(folder: Path, count: int) -> Path:
    """Write an evaluation that withstands everything on so many images which the usual one loses."""
    arrays = verdict_arrays(CLASSES)
    broken = [name for name in arrays if name.startswith("broken__")]
    lost = np.flatnonzero(np.any([arrays[name].any(axis=0) for name in broken], axis=0))[:count]
    for name in broken:
        arrays[name][:, lost] = False
    write_evaluation(folder)
    write_json(folder / "evaluation.json", evaluation_object(arrays, CLASSES))
    np.savez(folder / "verdicts.npz", **arrays)
    return folder


@pytest.mark.parametrize("ending", ["html", "md"])
def test_one_answer_is_said_in_headline_alarm_table_and_figure(tmp_path: Path, ending: str) -> None:
    folders = [write_evaluation(tmp_path / "a"), one_answer(write_other(tmp_path / "b"))]
    document, (table,) = compare(folders, tmp_path / f"page.{ending}")
    assert (
        document.headline == f"{OTHER} gives one answer for everything: its difference to {FIRST} says little"
    )
    assert document.detail == "worst case 45.8% against 46.8%, n = 1000"
    assert document.alarm == (
        f"One answer for everything in {OTHER}: {ALIKE}. Differences that involve it say little."
    )
    page = (tmp_path / f"page.{ending}").read_text(encoding="utf-8")
    assert document.alarm in page
    assert [row.cells[0] for row in table.rows] == [FIRST, f"{OTHER} (one answer)"]
    assert [row.mark for row in document.sections[0].tables[0].rows] == ["", "unreliable"]
    one, two = bars_figure(load_entries(folders)).axes[0].patches
    assert one.get_facecolor() != two.get_facecolor()


def test_the_terminal_says_one_answer(tmp_path: Path) -> None:
    folders = [write_training(tmp_path / "t1"), one_answer(write_training(tmp_path / "t2"))]
    done = CliRunner().invoke(app, ["compare", *map(str, folders), "--out", str(tmp_path / "c.md")])
    assert done.exit_code == 0, done.output
    assert "t2 gives one answer for everything: its difference to t1 says little" in done.output
    assert f"One answer for everything in t2: {ALIKE}." in done.output
    assert "t2 (one answer)" in done.output
    assert "No difference shown" not in done.output


def test_one_answer_in_the_first_run_and_in_both(tmp_path: Path) -> None:
    folders = [one_answer(write_evaluation(tmp_path / "a")), write_other(tmp_path / "b")]
    document, _ = compare(folders, tmp_path / "first.md")
    assert (
        document.headline == f"{FIRST} gives one answer for everything: its difference to {OTHER} says little"
    )
    add_checks(one_answer(folders[1]))
    document, (table,) = compare(folders, tmp_path / "both.md")
    said = f"Unreliable: {FIRST} and {OTHER} give one answer for everything: their difference says little"
    assert document.headline == said
    assert document.alarm.startswith(
        f"Unreliable: a check failed in {OTHER}. One answer for everything in {FIRST}, "
    )
    assert document.alarm.endswith("Differences that involve them say little.")
    assert table.rows[1].cells[0] == f"{OTHER} (unreliable, one answer)"


def test_runs_without_a_doubt_raise_no_alarm(tmp_path: Path) -> None:
    document, (table,) = compare(
        [write_evaluation(tmp_path / "a"), write_other(tmp_path / "b")], tmp_path / "p.md"
    )
    assert document.alarm == ""
    assert "one answer" not in (tmp_path / "p.md").read_text()
    assert [row.cells[0] for row in table.rows] == [FIRST, OTHER]


def test_that_threats_differ_is_said_first_and_once(tmp_path: Path) -> None:
    folders = [write_evaluation(tmp_path / "a"), other_threat(write_other(tmp_path / "b"))]
    document, (table,) = compare(folders, tmp_path / "page.md")
    assert document.headline == f"{FIRST} and {OTHER} faced different threats: their difference says little"
    assert document.detail == (
        "worst case 45.8% against 46.8%, ℓ∞ radius 8/255 against ℓ∞ radius 4/255, n = 1000"
    )
    assert table.rows[1].cells[3:] == ("–", "–", "other threat")
    assert document.sections[0].tables[0].rows[1].cells[-2] == "–"
    assert not any("threat" in text for text in document.meaning)
    assert (tmp_path / "page.md").read_text().count("The threats are not the same") == 1
    change_json(folders[1] / "evaluation.json", "data", "sha256", value="0" * 64)
    document, (table,) = compare(folders, tmp_path / "images.md")
    assert document.headline == (
        f"{FIRST} and {OTHER} were measured on different images and faced different threats: their difference says "
        "little"
    )
    assert table.rows[1].cells[-1] == "other images"


def test_of_more_runs_those_under_another_threat_are_named(tmp_path: Path) -> None:
    folders = [write_evaluation(tmp_path / "a"), other_threat(write_other(tmp_path / "b"))]
    folders.append(write_evaluation(tmp_path / "c"))
    document, _ = compare(folders, tmp_path / "page.md")
    assert document.headline == "3 runs under different threats: worst case from 45.8% to 46.8%"
    said = "b faced another threat than a (ℓ∞ radius 8/255 against ℓ∞ radius 4/255): their difference says little."
    assert [text for text in document.meaning if "threat" in text] == [said]


def test_an_interval_and_a_test_that_disagree_are_explained() -> None:
    """By hand: of 5 images all gained p is 2 / 2**5 = 0.0625, while the interval leaves out zero."""
    apart = difference_of(5, 0, 50)
    assert apart.interval[0] > 0
    assert apart.p == 0.0625
    assert not shown(apart)
    assert disagreement(apart) == (
        "; the interval leaves out zero, but the exact test on the 5 images whose verdict differs does not agree, "
        "and both must"
    )
    for agreed, counts in ((True, (6, 0, 50)), (False, (3, 2, 50))):
        found = difference_of(*counts)
        assert (shown(found), disagreement(found)) == (agreed, "")
    unpaired = unpaired_difference(share_of(10, 50), share_of(40, 50))
    assert (shown(unpaired), disagreement(unpaired)) == (True, "")


def test_the_headline_explains_what_looks_like_a_contradiction(tmp_path: Path) -> None:
    folders = [write_evaluation(tmp_path / "a"), gain(tmp_path / "b", 5)]
    document, _ = compare(folders, tmp_path / "page.md")
    assert document.headline == "No difference shown between b and a in the worst case"
    assert "McNemar p = 0.062, n = 1000; the interval leaves out zero, but the exact test" in document.detail
    assert document.detail in (tmp_path / "page.md").read_text()
