"""The report of an analysis: what is accepted, what it says, and figures that can be read."""

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from analysis_fixtures import AMOUNTS, RADII, array_objects, line, write_analysis
from report_fixtures import CLASSES, HOSTILE, change_json, share, write_evaluation, write_sweep
from scaleproof.report import load_run, render
from scaleproof.report.analysis.figures import analysis_plates
from scaleproof.report.analysis.records import Analysis
from scaleproof.report.html import render_html
from scaleproof.report.latex import render_latex
from scaleproof.report.markdown import render_markdown
from scaleproof.report.style import png
from test_report_page import Page

PARTS = ("surfaces", "weights", "cosines", "eps", "steps", "classes")
SECTIONS = [*(f"analysis-{part}" for part in PARTS), "analysis-confusion"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a complete analysis once."""
    return write_analysis(tmp_path_factory.mktemp("analysis"))


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """Copy it, to be damaged."""
    return Path(shutil.copytree(original, tmp_path / "copy"))


def read(folder: Path) -> Analysis:
    """Return the analysis of a folder."""
    analysis = load_run(folder).analysis
    assert analysis is not None
    return analysis


def test_the_page_of_an_analysis_alone(original: Path) -> None:
    page = Page(render_html(load_run(original)))
    assert page.open == []
    identifiers = [attributes["id"] for _, attributes in page.seen if "id" in attributes]
    assert len(set(identifiers)) == len(identifiers)
    assert [name for name in identifiers if name in SECTIONS] == SECTIONS
    images = [attributes for tag, attributes in page.seen if tag == "img"]
    assert len(images) == len(SECTIONS)
    assert all(len(str(attributes["alt"])) > 60 for attributes in images), "described in words"
    text = " ".join(" ".join(page.words).split())
    assert "Robust accuracy at most 44.0% (95% interval 37.3 to 50.9, n = 200)" in text


def test_an_evaluation_keeps_its_page_and_gains_sections(tmp_path: Path) -> None:
    folder = write_evaluation(tmp_path)
    before = render_markdown(load_run(folder))
    after = render_markdown(load_run(write_analysis(folder, alone=False)))
    heads = [text for text in after.splitlines() if text.startswith("## ")]
    assert [text for text in before.splitlines() if text not in after.splitlines()] == []
    assert heads.index("## The loss around single images") > heads.index("## Cost")
    assert heads[-3:] == ["## Analysis: provenance", "## Settings", "## Provenance"]
    assert Page(render_html(load_run(folder))).open == []


def test_files_are_the_same_bytes_every_time(folder: Path) -> None:
    written = {path.name: path.read_bytes() for path in render(folder)}
    assert {f"{name}.png" for name in SECTIONS} < set(written)
    assert all(written[f"{name}.png"].startswith(b"\x89PNG") for name in SECTIONS)
    assert {path.name: path.read_bytes() for path in render(folder)} == written


@pytest.mark.parametrize("text", [
    "| **8/255** | **45.0%** | **38.3–51.9** | **44.0%** | **37.3–50.9** |",
    "| unbounded | 0.0% | 0.0–1.9 | 0.0% | 0.0–1.9 |",
    "| 0 (clean) | 75.0% | 68.6–80.5 | 75.0% | 68.6–80.5 |",
    "| 50 | 45.5% | 38.7–52.4 | 44.5% | 37.8–51.4 |",
    "| **0.00** | **0.8** | **1.5** | **75.0%** | **45.0%** |",
    "| Clean images | 0.500 | 0.200 | 12.50% |",
    "| cat, no. 0 | 1.562 | 3.062 | 1.596 | 0.781 | 1.531 | 0.798 |",
    "| airplane | automobile | 7 | 35.0% |",
    "| bird | 20 | 70.0% | 65.0% | 43.3–81.9 |",
    "![Which class becomes which](analysis-confusion.png)",
])  # fmt: skip
def test_markdown_has_the_line(original: Path, text: str) -> None:
    assert text in render_markdown(load_run(original)).splitlines()


def test_latex_shows_the_figures(original: Path) -> None:
    text = render_latex(load_run(original))
    assert all(rf"{{{name}.png}}" in text for name in SECTIONS)
    assert "U+" not in text, "every letter can be set"
    assert r"$\varepsilon$" in text
    assert text.count(r"\begin{table}") == text.count(r"\end{table}")


def test_every_paragraph_says_how_to_read_its_figure(original: Path) -> None:
    text = render_markdown(load_run(original))
    for words in (
        "gradients lead an attack the right way",
        "compare the widths of two classifiers",
        "the more room an attack has to cover",
        "every line must end at 0. All of them do here.",
        "An attack has had enough steps where its line is flat",
        "as safe as its weakest class",
        "by the first attack that breaks an image",
        "Robust accuracy is an upper bound",
    ):
        assert words in text


def test_suspicious_curves_are_called_so(folder: Path) -> None:
    change_json(
        folder / "analysis.json", "parts", "eps", "lines",
        value=[line("pgd", "PGD", RADII, [90, 120, 60, 50], [90, 90, 60, 50])],
    )  # fmt: skip
    text = render_markdown(load_run(folder))
    assert "Here PGD leaves 25.0%: these attacks fail on images that surely can be broken" in text
    assert "Accuracy rises where it should not: PGD between 4/255 and 8/255" in text


def test_notes_are_shown(folder: Path) -> None:
    change_json(folder / "analysis.json", "notes", value=["Cosines are left out: no head"])
    change_json(folder / "analysis.json", "parts", "surfaces", "objectives", value=["cross_entropy"])
    parts = {name: value for name, value in part_values(folder).items() if name != "cosines"}
    change_json(folder / "analysis.json", "parts", value=parts)
    text = render_markdown(load_run(folder))
    assert "- **Note, analysis:** Cosines are left out: no head." in text
    assert "analysis-cosines" not in text
    assert "Both losses are shown" not in text


def part_values(folder: Path) -> dict[str, Any]:
    """Return the parts of an analysis as they are in the file."""
    import json

    parts: dict[str, Any] = json.loads((folder / "analysis.json").read_text())["parts"]
    return parts


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_stand_alone(folder: Path, part: str) -> None:
    change_json(folder / "analysis.json", "parts", value={part: part_values(folder)[part]})
    text = render_markdown(load_run(folder))
    assert f"analysis-{part}.png" in text
    assert ("Robust accuracy at most" in text) == (part in ("eps", "steps", "classes"))


BAD: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "coordinates": (
        ("parts", "surfaces", "coordinates"),
        [0.0, 0.0, 1.0],
        "parts.surfaces.coordinates must be a list",
    ),
    "labels": (("parts", "surfaces", "labels"), [1], "parts.surfaces.labels must be as long as rows"),
    "rows": (("parts", "surfaces", "rows"), [1.5], "parts.surfaces.rows must be a list of whole numbers"),
    "objectives": (("parts", "surfaces", "objectives"), ["hinge"], "must have the array 'surfaces__hinge'"),
    "amounts": (("parts", "weights", "amounts"), AMOUNTS[:3], "array 'weights__loss_clean' must have shape"),
    "counts": (
        ("parts", "cosines", "counts", "clean_true"),
        [1, 2, 3, 4],
        "clean_true must be 4 numbers that add up",
    ),
    "all classes": (
        ("parts", "cosines", "all_classes"),
        {"clean": [1, 2, 3, 4], "adversarial": [1, 2]},
        "adversarial must be 4 numbers",
    ),
    "mismatch": (("parts", "cosines", "mismatch", "clean"), 1.5, "mismatch.clean must be a fraction"),
    "share": (
        ("parts", "eps", "lines", 0, "points", 1, "robust", "accuracy"),
        0.9,
        "robust.accuracy must be correct",
    ),
    "within": (
        ("parts", "eps", "lines", 0, "points", 1, "within"),
        share(99, 200),
        "points[1].within must be at most",
    ),
    "places": (
        ("parts", "steps", "steps", 0, "points", 1, "at"),
        0.5,
        "points must be a list of at least one point",
    ),
    "lines": (("parts", "eps", "lines"), [], "lines must be a list of at least one line"),
    "count": (("parts", "classes", "count"), 7, "must count 7 images"),
    "run": (("run", "seed"), -1, "run.seed must be a whole number"),
    "schema": (("schema",), "scaleproof.analysis/9", "must have schema 'scaleproof.analysis/1'"),
    "parts": (("parts",), {}, "parts must be an object with at least one part"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_name_the_field(folder: Path, name: str) -> None:
    keys, value, message = BAD[name]
    change_json(folder / "analysis.json", *keys, value=value)
    with pytest.raises(ValueError) as error:
        load_run(folder)
    assert message in str(error.value)


def test_damaged_and_missing_arrays_are_refused(folder: Path) -> None:
    arrays = array_objects(10)
    np.savez(
        folder / "analysis.npz", **{**arrays, "classes__clean_correct": arrays["classes__clean_correct"] + 50}
    )
    with pytest.raises(ValueError, match="classes__clean_correct' must lie between"):
        load_run(folder)
    (folder / "analysis.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"analysis\.npz must be an npz archive"):
        load_run(folder)
    (folder / "analysis.npz").unlink()
    with pytest.raises(ValueError, match=r"analysis\.npz is missing"):
        load_run(folder)
    (folder / "analysis.json").unlink()
    with pytest.raises(ValueError, match="a run of kind 'analysis' needs it"):
        load_run(folder)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    run = load_run(write_analysis(tmp_path, HOSTILE * 2))
    assert Page(render_html(run)).open == []
    assert "<script" not in render_markdown(run)


def test_a_sweep_may_have_an_analysis_too(tmp_path: Path) -> None:
    text = render_markdown(load_run(write_analysis(write_sweep(tmp_path), alone=False)))
    assert "## The loss around the weights" in text


def visible_texts(figure: Figure) -> list[Text]:
    """Return every text that a figure shows; ticks beyond the ends of an axis are not drawn."""
    ticks = [
        tick for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for tick in axis.get_major_ticks()
    ]
    hidden = {id(label) for tick in ticks for label in (tick.label1, tick.label2)}
    shown = {id(label) for axes in figure.axes for end in "xy" for label in drawn_labels(axes, end)}
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text for text in found if id(text) not in hidden or id(text) in shown]


def drawn_labels(axes: Axes, end: str) -> list[Text]:
    """Return the labels of the ticks within the ends of an axis."""
    axis = axes.xaxis if end == "x" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    inside = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    labels = [label for tick in inside for label in (tick.label1, tick.label2)]
    return [label for label in labels if label.get_text() and label.get_visible()]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(
    "classes", [CLASSES, [f"a class with a long name, {k}" for k in range(100)]], ids=len
)
def test_no_text_leaves_its_figure_or_covers_another(
    tmp_path: Path, classes: list[str], narrow: bool
) -> None:
    for name, plate in analysis_plates(read(write_analysis(tmp_path, classes))).items():
        figure = plate.draw(narrow=narrow)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        assert figure.get_figwidth() <= (3.9 if narrow else 7.4)
        for text in visible_texts(figure):
            box = text.get_window_extent(renderer)
            assert box.x0 >= -1, (name, text.get_text())
            assert box.x1 <= figure.bbox.x1 + 1, (name, text.get_text())
            assert box.y0 >= -1, (name, text.get_text())
            assert box.y1 <= figure.bbox.y1 + 1, (name, text.get_text())
        for axes in figure.axes:
            for end in "xy":
                boxes = [one.get_window_extent(renderer) for one in drawn_labels(axes, end)]
                spans = sorted((getattr(box, f"{end}0"), getattr(box, f"{end}1")) for box in boxes)
                assert all(a[1] <= b[0] + 0.5 for a, b in pairwise(spans)), (name, end)


def test_lines_are_told_apart_by_more_than_colour(original: Path) -> None:
    figures = {name: plate.draw() for name, plate in analysis_plates(read(original)).items()}
    for name in ("analysis-eps", "analysis-steps", "analysis-weights"):
        lines = [one for one in figures[name].axes[0].lines if one.get_marker() not in ("None", None, "")]
        assert len(lines) == 2
        assert len({one.get_marker() for one in lines}) == len({one.get_color() for one in lines}) == 2


def test_a_surface_that_is_not_finite_is_drawn(folder: Path) -> None:
    arrays = array_objects(10)
    arrays["surfaces__cosine"][0, 0, 0] = np.inf
    arrays["weights__loss_clean"][0, 0] = np.nan
    np.savez(folder / "analysis.npz", **arrays)
    assert "not finite" in render_markdown(load_run(folder))
    plates = analysis_plates(read(folder))
    assert all(png(plates[name].draw()) for name in ("analysis-surfaces", "analysis-weights"))
