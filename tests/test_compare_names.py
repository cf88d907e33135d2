"""Comparing runs with long names: tables that fit a terminal."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from report_fixtures import change_json, write_evaluation, write_other, write_sweep
from scaleproof.cli.compare import WIDTH, broken
from scaleproof.cli.main import app
from scaleproof.report.compare import compare
from scaleproof.report.compare.entries import load_entries
from scaleproof.report.compare.figures import compare_plates
from scaleproof.report.compare.names import LONGEST, shortened

PANG, MART, SI = (
    f"at-{middle}-{digest}"
    for middle, digest in (
        ("resnet-small-sample-train-pang", "ea58aa5d"),
        ("resnet-small-sample-train-mart", "7ad765b8"),
        ("si-resnet-small-sample-train-pang", "825dd831"),
    )
)
ALONE = "robustness_without_any_hyphen"


@pytest.mark.parametrize(
    ("names", "short"),
    [
        ((PANG, MART, SI), ["pang", "mart", "si-pang"]),
        ((PANG, PANG.replace("ea58aa5d", "01234567")), ["ea58aa5d", "01234567"]),
        (
            ("at-resnet-small-pang-seed-0-ea58aa5d", "at-resnet-small-pang-seed-1-7ad765b8"),
            ["seed-0", "seed-1"],
        ),
        ((PANG, "demo"), ["at-resnet-small-sample-train-pang", "demo"]),
        ((PANG, MART, "pang"), ["pang-ea58aa5d", "mart-7ad765b8", "pang"]),
        (("at-mart-01234567", "at-pang-01234567"), ["at-mart-01234567", "at-pang-01234567"]),
        ((ALONE, "demo"), [ALONE, "demo"]),
        (("Wide ResNet on CIFAR-10", "Wide ResNet on CIFAR-100"), None),
    ],
)
def test_long_names_keep_what_tells_them_apart(names: tuple[str, ...], short: list[str] | None) -> None:
    assert shortened(names) == (short or list(names))


@given(st.lists(st.text("ab-", min_size=1, max_size=2 * LONGEST), min_size=2, max_size=5, unique=True))
def test_short_names_stay_and_all_stay_apart(names: list[str]) -> None:
    found = shortened(names)
    assert len(set(found)) == len(names)
    assert all(found)
    for name, short in zip(names, found, strict=True):
        assert short == name or len(short) < len(name) > LONGEST


@given(st.text("abc-/ ", max_size=80))
def test_names_on_a_terminal_lose_nothing_but_spaces_where_they_are_broken(name: str) -> None:
    lines = broken(name).split("\n")
    assert max(map(len, lines)) <= WIDTH
    assert "".join(lines).replace(" ", "") == name.replace(" ", "")


def test_names_on_a_terminal_are_broken_between_words() -> None:
    assert broken("si-pang (unreliable, one answer)").split("\n") == [
        "si-pang",
        "(unreliable, one",
        "answer)",
    ]
    assert broken("trades-si-he-wrn-34-10-cifar10").split("\n") == ["trades-si-he-wrn-", "34-10-cifar10"]


def named(folder: Path, name: str) -> Path:
    """Give a run another name."""
    change_json(folder / "run.json", "name", value=name)
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Write two evaluations under names as `scaleproof train` gives them."""
    return [named(write_evaluation(tmp_path / "a"), PANG), named(write_other(tmp_path / "b"), MART)]


def test_tables_and_figures_have_short_names_and_sentences_full_ones(
    folders: list[Path], tmp_path: Path
) -> None:
    document, (table,) = compare(folders, tmp_path / "page.md")
    assert [row.cells[0] for row in table.rows] == ["pang", "mart"]
    assert document.headline == f"No difference shown between {MART} and {PANG} in the worst case"
    assert f"In tables and figures pang is {PANG}, mart is {MART}." in document.meaning
    heads = [section.tables[0].columns[-1].title for section in document.sections[-2:]]
    assert heads == ["mart", "mart"]
    figure = compare_plates(load_entries(folders))["runs"].draw()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["pang", "mart"]


def test_names_that_are_short_need_no_legend(tmp_path: Path) -> None:
    folders = [write_evaluation(tmp_path / "a"), write_other(tmp_path / "b")]
    document, _ = compare(folders, tmp_path / "page.md")
    assert not any("In tables and figures" in text for text in document.meaning)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", [MART, "trades-si-he-wrn-34-10-cifar10-of-mine", 2 * ALONE])
def test_no_number_and_no_head_is_broken_on_a_terminal(
    folders: list[Path], tmp_path: Path, width: int, name: str
) -> None:
    named(folders[1], name)
    words = ["compare", *map(str, folders), "--out", str(tmp_path / "c.md")]
    done = CliRunner().invoke(app, words, env={"COLUMNS": str(width)})
    assert done.exit_code == 0, done.output
    lines = [line for line in done.output.splitlines() if line[:1] in "┏┃┡│└" and line]
    assert max(map(len, lines)) <= width
    assert re.search(r"Run +┃ Clean ┃ Worst ┃ Points ┃ +95% interval ┃ +p ┃", lines[1])
    assert re.search(r"│ 92.1% │ 46.8% │ +\+1.0 │ -0.4 to \+2.5 │ 0.203 │", done.output)


def test_the_table_of_sweeps_fits_too(tmp_path: Path) -> None:
    names = ("scale-sweep-undefended-sample-1d61c7a0", "scale-sweep-demo-sample-3a495ccb")
    sweeps = [named(write_sweep(tmp_path / name), name) for name in names]
    words = ["compare", *map(str, sweeps), "--out", str(tmp_path / "c.md")]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
    lines = [line for line in done.output.splitlines() if line.startswith(("┃", "│"))]
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("│ undefended │") for line in lines) == 1 + 4
