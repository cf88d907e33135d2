"""Comparing runs: differences, tests, agreement, curves, and what cannot be compared."""

import itertools
import math
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from report_fixtures import COUNT, add_checks, change_json, write_evaluation, write_other, write_sweep
from scaleproof.cli.main import app
from scaleproof.report.compare import compare
from scaleproof.report.compare.entries import (
    WORST,
    Entry,
    difference,
    load_entries,
    obstacle,
    right,
)
from scaleproof.report.compare.figures import compare_plates
from scaleproof.report.compare.names import differing
from scaleproof.report.compare.statistics import paired_difference, unpaired_difference
from scaleproof.report.compare.tables import agreement_table, settings_table, side_by_side
from scaleproof.report.words import share_of
from scaleproof.statistics import Z95, mcnemar, paired_interval, score
from training_report_fixtures import write_training


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write two evaluations of the same images."""
    place = tmp_path_factory.mktemp("compare")
    return write_evaluation(place / "a"), write_other(place / "b")


@pytest.fixture(scope="module")
def entries(runs: tuple[Path, Path]) -> tuple[Entry, ...]:
    """Read both."""
    return load_entries(runs)


# By hand: 2 * (1 + 10) / 2**10, 2 * (1 + 5 + 10) / 2**5 capped at 1, 2 / 2**6, nothing to toss.
@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(1, 9, 22 / 1024), (9, 1, 22 / 1024), (3, 2, 1.0), (6, 0, 2 / 64), (0, 0, 1.0), (5, 5, 1.0)],
)
def test_mcnemar_by_hand(gained: int, lost: int, p: float) -> None:
    assert mcnemar(gained, lost) == p


def test_mcnemar_agrees_with_the_binomial_test_and_holds_for_many_images() -> None:
    stats = pytest.importorskip("scipy.stats")
    for gained, lost in ((12, 31), (295, 269), (421, 1048)):
        assert mcnemar(gained, lost) == pytest.approx(stats.binomtest(gained, gained + lost).pvalue, rel=1e-9)
    assert mcnemar(0, 5000) == 0.0


def test_the_paired_interval_by_hand() -> None:
    """Where no image changes sides, the score of d is n d / (1 - d) = z^2, so d = z^2 / (n + z^2)."""
    end = Z95**2 / (40 + Z95**2)
    assert paired_interval(0, 0, 40) == (pytest.approx(-end, abs=1e-12), pytest.approx(end, abs=1e-12))


@pytest.mark.parametrize(("gained", "lost", "count"), [(30, 20, 1000), (1, 7, 40), (0, 5, 44), (9, 0, 9)])
def test_the_score_uses_the_likeliest_share(gained: int, lost: int, count: int) -> None:
    for supposed in (-0.3, -0.01, 0.02, 0.4):
        low, high = max(0.0, -supposed), (1 - supposed) / 2
        likely = partial(log_likelihood, gained, lost, count, supposed)
        for _ in range(200):
            one, two = low + (high - low) / 3, high - (high - low) / 3
            low, high = (one, high) if likely(one) < likely(two) else (low, two)
        variance = count * (2 * low + supposed - supposed**2)
        expected = (gained - lost - count * supposed) / math.sqrt(variance)
        assert score(gained, lost, count, supposed) == pytest.approx(expected, rel=1e-4)


def log_likelihood(gained: int, lost: int, count: int, supposed: float, share: float) -> float:
    """Return the likelihood of the pairs if a share is lost and that share and the supposed difference gained."""
    parts = ((gained, share + supposed), (lost, share), (count - gained - lost, 1 - 2 * share - supposed))
    return sum(number * math.log(max(chance, 1e-300)) for number, chance in parts if number)


@given(st.integers(1, 400), st.data())
def test_the_ends_of_the_paired_interval_are_where_the_score_test_turns(
    count: int, data: st.DataObject
) -> None:
    gained = data.draw(st.integers(0, count))
    lost = data.draw(st.integers(0, count - gained))
    low, high = paired_interval(gained, lost, count)
    assert -1 <= low <= (gained - lost) / count <= high <= 1
    for end in (low, high):
        assert abs(end) == 1 or abs(abs(score(gained, lost, count, end)) - Z95) < 1e-4
    mirrored = paired_interval(lost, gained, count)
    assert mirrored == (pytest.approx(-high, abs=1e-9), pytest.approx(-low, abs=1e-9))


def test_the_unpaired_interval_of_a_published_example() -> None:
    """Newcombe (1998), method 10: 56/70 against 48/80 gives 0.0524 to 0.3339."""
    found = unpaired_difference(share_of(48, 80), share_of(56, 70))
    assert found.value == pytest.approx(0.2)
    assert found.interval == (pytest.approx(0.0524, abs=1e-4), pytest.approx(0.3339, abs=1e-4))
    assert not found.paired


def test_a_paired_difference_counts_images() -> None:
    first, second = np.array([1, 1, 1, 0, 0, 1], bool), np.array([1, 0, 1, 1, 1, 1], bool)
    found = paired_difference(first, second)
    assert (found.gained, found.lost, found.p) == (2, 1, 1.0)
    assert found.value == pytest.approx(1 / 6)


def test_the_same_images_are_paired(entries: tuple[Entry, ...]) -> None:
    first, other = entries
    assert obstacle(first, other) == ""
    found = difference(first, other, WORST)
    assert found is not None
    assert (found.gained, found.lost) == (30, 20)
    assert found.value == pytest.approx(10 / COUNT)
    assert found.p == pytest.approx(2 * sum(math.comb(50, k) for k in range(21)) / 2**50)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("data", "the images are not the same"),
        ("verdicts", "Other network has no file of verdicts"),
        ("labels", "the labels of the images differ"),
        ("sweep", "Scale sweep is a sweep"),
    ],
)
def test_other_images_are_not_paired(
    runs: tuple[Path, Path], tmp_path: Path, damage: str, reason: str
) -> None:
    other = write_sweep(tmp_path / "b") if damage == "sweep" else write_other(tmp_path / "b")
    if damage == "data":
        change_json(other / "evaluation.json", "data", "sha256", value="0" * 64)
    if damage == "verdicts":
        (other / "verdicts.npz").unlink()
    if damage == "labels":
        arrays = dict(np.load(other / "verdicts.npz"))
        np.savez(other / "verdicts.npz", **(arrays | {"labels": arrays["labels"][::-1]}))
    document, (table,) = compare([runs[0], other], tmp_path / "page.html")
    first, second = load_entries([runs[0], other])
    assert obstacle(first, second).startswith(reason)
    if damage == "sweep":
        assert table.rows[1].cells[1:] == ("–",) * 5
        return
    assert "unpaired" in document.detail
    assert table.rows[1].cells[-1] == ("other images" if damage == "data" else "unpaired")
    assert any(reason in p for section in document.sections for p in section.paragraphs)
    assert "images" not in [section.identifier for section in document.sections]


def test_agreement_adds_up(entries: tuple[Entry, ...]) -> None:
    (row,) = agreement_table(entries[0], entries[1:]).rows
    assert row.cells[1] == "95.0%"
    assert row.cells[4:6] == ("30", "20")
    assert sum(int(cell) for cell in row.cells[3:]) == COUNT
    assert int(row.cells[3]) == int((right(entries[0], WORST) & right(entries[1], WORST)).sum())


def test_only_settings_that_differ_are_shown(entries: tuple[Entry, ...]) -> None:
    rows = {row.cells[0]: row.cells[1:] for row in settings_table(entries).rows}
    assert rows == {"seed": ("7", "8")}
    assert side_by_side("c", "What", entries, []).columns[2].title == "Other network"


def test_the_page_of_two_evaluations(runs: tuple[Path, Path], tmp_path: Path) -> None:
    document, (table,) = compare(runs, tmp_path / "deep" / "page.html")
    assert (
        document.headline
        == "No difference shown between Other network and Wide ResNet on CIFAR-10 in the worst case"
    )
    assert "+1.0 points, 95% interval -0.4 to +2.5, paired, McNemar p = 0.203, n = 1000" in document.detail
    assert table.rows[1].cells == ("Other network", "92.1%", "46.8%", "+1.0", "-0.4 to +2.5", "0.203")
    page = (tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    assert 'id="explorer"' in page
    assert "Wrong only in Other network" in page
    assert len(page) < 1_000_000
    compare(runs, tmp_path / "page.md")
    assert "| Worst case | 45.8% | 46.8% | +1.0 |" in (tmp_path / "page.md").read_text().replace("**", "")


def test_rendering_twice_gives_the_same_bytes(runs: tuple[Path, Path], tmp_path: Path) -> None:
    for name in ("one.html", "two.html"):
        compare(runs, tmp_path / name)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_unreliable_runs_are_marked_everywhere(runs: tuple[Path, Path], tmp_path: Path) -> None:
    doubtful = add_checks(write_other(tmp_path / "b"))
    document, (table,) = compare([runs[0], doubtful], tmp_path / "page.html")
    assert document.headline.startswith("Unreliable: ")
    assert "a check failed in Other network" in document.alarm
    assert table.rows[1].cells[0] == "Other network (unreliable)"
    assert any(line.startswith("Not examined: Wide ResNet on CIFAR-10.") for line in document.meaning), (
        document.meaning
    )
    for identifier in ("runs", "images"):
        section = next(section for section in document.sections if section.identifier == identifier)
        assert [row.mark for row in section.tables[0].rows][-1] == "unreliable"
    assert '<h1 class="unreliable">' in (tmp_path / "page.html").read_text()


def test_trainings_and_sweeps_lie_on_one_axis(tmp_path: Path) -> None:
    folders = [write_training(tmp_path / "t1"), write_training(tmp_path / "t2")]
    folders += [write_sweep(tmp_path / "s1"), write_sweep(tmp_path / "s2")]
    entries = load_entries(folders)
    assert [entry.label for entry in entries] == ["t1", "t2", "s1", "s2"]
    plates = compare_plates(entries)
    assert list(plates) == ["runs", "curves", "scale"]
    curves = plates["curves"].draw().axes[0].lines
    assert [str(line.get_label()) for line in curves if "," in str(line.get_label())] == [
        "t1, clean",
        "t1, PGD",
        "t2, clean",
        "t2, PGD",
    ]
    scales = [str(line.get_label()) for line in plates["scale"].draw().axes[0].lines]
    wanted = [
        f"{run}, {attack}" for run, attack in itertools.product(("s1", "s2"), ("PGD", "CW", "DLR", "SI-PGD"))
    ]
    assert [label for label in scales if not label.startswith("_")] == wanted
    document, _ = compare(folders, tmp_path / "page.html")
    assert {"runs", "differences", "curves", "scale", "settings"} <= {s.identifier for s in document.sections}


def test_different_attacks_are_called_out(runs: tuple[Path, Path], tmp_path: Path) -> None:
    other = write_other(tmp_path / "b")
    change_json(other / "evaluation.json", "attacks", 1, "settings", "steps", value=100)
    document, _ = compare([runs[0], other], tmp_path / "page.html")
    assert "Settings of PGD differ between Wide ResNet on CIFAR-10 and Other network." in document.meaning
    change_json(other / "evaluation.json", "attacks", 1, "label", value="PGD-100")
    document, _ = compare([runs[0], other], tmp_path / "again.html")
    assert any("may come from the attacks alone" in text for text in document.meaning)


@pytest.mark.parametrize(
    ("count", "out", "said"),
    [(1, "p.html", "at least two run folders, got 1"), (2, "p.pdf", r"must end in \.html or \.md, got")],
)
def test_mistakes_are_explained(
    runs: tuple[Path, Path], tmp_path: Path, count: int, out: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        compare(runs[:count], tmp_path / out)
    with pytest.raises(ValueError, match="run folders must differ"):
        compare([runs[0], runs[0]], tmp_path / "p.html")


def test_the_command_prints_a_short_table(runs: tuple[Path, Path], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["compare", *map(str, runs), "--out", str(tmp_path / "c.html")])
    assert done.exit_code == 0, done.output
    assert re.search(r"Other network +│ 92.1% │ 46.8% │ +\+1.0 │ -0.4 to \+2.5 │ 0.203", done.output)
    assert (tmp_path / "c.html").is_file()


def test_comparing_needs_no_torch(runs: tuple[Path, Path], tmp_path: Path) -> None:
    code = (
        "import sys; from scaleproof.report.compare import compare; compare(sys.argv[1:3], sys.argv[3]); "
        "assert 'torch' not in sys.modules"
    )
    source = str(Path(__file__).parents[1] / "src")
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {code}"]
    done = subprocess.run([*command, *runs, tmp_path / "c.html"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    """`reproduce` calls every training `train`: what differs in the path says which one it is."""
    places = [tmp_path / model / "pang-120" / seed / "train" for model, seed in (("at", "0"), ("at-si", "0"))]
    folders = [write_evaluation(place) for place in places]
    for folder in folders:
        change_json(folder / "run.json", "name", value="train")
    assert [entry.label for entry in load_entries(folders)] == ["at", "at-si"]
    assert differing([("a", "x", "t"), ("a", "x", "y", "t")]) == ["t", "y"]
    assert differing([("a", "0", "t"), ("b", "1", "t")]) == ["a/0", "b/1"]


def test_a_page_that_is_there_is_left_alone(tmp_path: Path) -> None:
    """Without a name given, the next comparison gets the next name."""
    from scaleproof.cli.compare import free_name

    first = free_name(tmp_path / "compare.html")
    assert first == tmp_path / "compare.html"
    first.write_text("a page")
    second = free_name(tmp_path / "compare.html")
    assert second == tmp_path / "compare-2.html"
    second.write_text("a page")
    assert free_name(tmp_path / "compare.html") == tmp_path / "compare-3.html"
