"""The page, the figures, and rendering as a whole."""

import base64
import dataclasses
import hashlib
import io
import itertools
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from report_fixtures import EPS, HOSTILE, change_json, gallery_arrays, write_evaluation, write_sweep
from scaleproof.files import write_atomically
from scaleproof.report import load_run, plots, render, style
from scaleproof.report.html import render_html
from scaleproof.report.pictures import amplification, build_pictures
from scaleproof.report.points import figure_points

VOID = {"meta", "img", "source", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Check that tags balance, and collect texts, tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write and render a complete run folder with hostile class names."""
    folder = write_evaluation(tmp_path_factory.mktemp("page"), HOSTILE)
    render(folder)
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    """Parse the page of that folder."""
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_tags_balance(page: Page) -> None:
    assert page.open == []
    assert ("html", {"lang": "en"}) in page.seen


def test_the_headline_comes_first(page: Page) -> None:
    text = " ".join(" ".join(page.words).split())
    assert "Robust accuracy at most 45.8% (95% interval 42.7 to 48.9, n = 1000)" in text
    assert next(tag for tag, _ in page.seen if tag in ("h1", "table")) == "h1"


def test_nothing_is_fetched_and_only_our_script_runs(folder: Path, page: Page) -> None:
    tags = [tag for tag, _ in page.seen]
    assert not set(tags) & {"link", "iframe", "object", "embed", "base"}
    for tag, attributes in page.seen:
        for name in ("src", "srcset"):
            assert (attributes.get(name) or "data:").startswith("data:")
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
        assert tag != "script" or "src" not in attributes
    running = [attributes for tag, attributes in page.seen if tag == "script" and "type" not in attributes]
    assert running == [{}]
    text = (folder / "report.html").read_text(encoding="utf-8")
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(a["content"] for _, a in page.seen if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_the_page_has_landmarks_and_headings_in_order(page: Page) -> None:
    tags = [tag for tag, _ in page.seen]
    assert [tags.count(tag) for tag in ("header", "nav", "main", "footer", "h1")] == [1] * 5
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    targets = {(a.get("href") or "")[1:] for tag, a in page.seen if tag == "a"}
    assert targets <= {a.get("id") for _, a in page.seen}


def test_the_style_fetches_nothing(folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    found = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert found
    assert "url(" not in found[1]
    assert "@import" not in found[1]
    assert "prefers-color-scheme: dark" in found[1]
    assert "image-rendering: pixelated" in found[1]


def test_hostile_names_are_shown_as_text(page: Page) -> None:
    assert any(HOSTILE[0] in data for data in page.words)


def test_tables_and_images_are_accessible(page: Page) -> None:
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in page.seen if tag == "th")
    assert all(attributes.get("alt") for tag, attributes in page.seen if tag == "img")
    identifiers = [attributes["id"] for _, attributes in page.seen if "id" in attributes]
    assert len(set(identifiers)) == len(identifiers)


def test_the_page_holds_every_verdict(folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    found = re.search(r'class="verdicts">(.*?)</script>', text, re.DOTALL)
    verdicts = load_run(folder).verdicts
    assert found
    assert verdicts is not None
    data = json.loads(found[1])
    assert data["classes"] == HOSTILE
    assert [int(label, 36) for label in data["labels"]] == verdicts.labels.tolist()
    clean, *columns = data["columns"]
    assert [state == "." for state in clean] == verdicts.clean_correct.tolist()
    for column, broken in zip(columns, verdicts.broken.values(), strict=True):
        assert [state not in ".-" for state in column] == broken.any(axis=0).tolist()


def test_points_of_a_figure_lie_where_they_are_drawn(folder: Path) -> None:
    run = load_run(folder)
    assert run.evaluation is not None
    assert run.sweep is not None
    names = [name for name, _, _ in plots.attack_bars(run.evaluation)]
    found = drawn_points(plots.attacks_figure(run.evaluation))
    assert [s["at"][0][2] for s in found] == names
    assert next(float(s["at"][0][3]) for s in found) == pytest.approx(92.1)
    lengths = [s["at"][0][0] for s in found]
    assert lengths[0] == max(lengths)
    lines = drawn_points(plots.scale_figure(run.sweep))
    pgd = next(s for s in lines if s["name"] == "PGD" and "Robust" in s["panel"])
    assert [point[2] for point in pgd["at"]] == ["0.001", "0.01", "0.1", "1", "10", "100", "1000"]
    assert pgd["at"][-1][3] == "92"
    assert sorted(point[0] for point in pgd["at"]) == [point[0] for point in pgd["at"]]
    assert pgd["axis"] == "Scale α of the logits"


def drawn_points(figure: Any) -> list[dict[str, Any]]:
    style.svg(figure)
    return figure_points(figure)


def test_pictures_know_their_size_and_margin(folder: Path) -> None:
    run = load_run(folder)
    assert run.gallery is not None
    assert run.verdicts is not None
    margin = {name: values.copy() for name, values in run.verdicts.margin.items()}
    margin["si-pgd"][0, 22] = 1.25
    verdicts = dataclasses.replace(run.verdicts, margin=margin)
    found = build_pictures(run.gallery, tuple(HOSTILE), {"si-pgd": "SI-PGD"}, "linf", verdicts)
    assert [picture.margin for picture in found] == [0.0, 0.0, 1.25, 0.0]
    assert found[0].size == pytest.approx(EPS, abs=1e-6)
    assert found[0].size_text == "8.0/255"


def test_costs_and_settings_are_folded(page: Page) -> None:
    assert sum(tag == "details" for tag, _ in page.seen) == 3


def test_pages_without_optional_parts(tmp_path: Path) -> None:
    bare = render_html(load_run(write_evaluation(tmp_path / "bare", optional=False)))
    sweep = render_html(load_run(write_sweep(tmp_path / "sweep")))
    assert Page(bare).open == Page(sweep).open == []
    assert 'id="gallery"' not in bare
    assert "does not move" in sweep


def test_rendering_twice_gives_the_same_bytes(folder: Path) -> None:
    names = {"report.html", "report.md", "report.tex", "scale.png", "scale.svg", "attacks.png"}
    before = {name: (folder / name).read_bytes() for name in names}
    written = render(folder)
    assert {path.name for path in written} == names
    assert {path.name: path.read_bytes() for path in written} == before
    assert not list(folder.glob(".*"))


def test_a_sweep_writes_no_attack_figure(tmp_path: Path) -> None:
    names = [path.name for path in render(write_sweep(tmp_path))]
    assert names == ["report.html", "report.md", "report.tex", "scale.png", "scale.svg"]


def test_figures_are_images(folder: Path) -> None:
    with Image.open(folder / "scale.png") as image:
        assert image.width == round(7.4 * style.DPI)
    root = ElementTree.fromstring((folder / "scale.svg").read_bytes())
    assert root.tag.endswith("svg")
    assert b"dc:date" not in (folder / "scale.svg").read_bytes()


def test_figures_tell_attacks_apart_by_more_than_colour(folder: Path) -> None:
    sweep = load_run(folder).sweep
    assert sweep is not None
    lines = [line for line in plots.scale_figure(sweep).axes[0].lines if len(line.get_xydata()) > 2]
    assert len(lines) == 4
    assert len({line.get_color() for line in lines}) == len({line.get_marker() for line in lines}) == 4
    assert len({(line.get_linewidth(), str(line.get_linestyle())) for line in lines}) == 4


def test_labels_are_never_read_as_mathematics(tmp_path: Path) -> None:
    folder = write_evaluation(tmp_path, optional=False)
    change_json(folder / "evaluation.json", "attacks", 0, "label", value="$\\frac{$")
    evaluation = load_run(folder).evaluation
    assert evaluation is not None
    assert style.svg(plots.attacks_figure(evaluation))


def test_differences_are_amplified_by_the_stated_factor(folder: Path) -> None:
    gallery = load_run(folder).gallery
    assert gallery is not None
    factor = amplification(gallery)
    assert factor == 15
    picture = build_pictures(gallery, tuple(HOSTILE), {})[0]
    content = base64.b64decode(picture.difference.partition(",")[2])
    shown = np.asarray(Image.open(io.BytesIO(content))).transpose(2, 0, 1) / 255.0
    moved = gallery_arrays(HOSTILE)["perturbed"][0] - gallery.clean[0] / 255.0
    np.testing.assert_allclose(shown, np.clip(0.5 + factor * moved, 0, 1), atol=0.6 / 255)
    assert np.abs(moved).max() == pytest.approx(EPS, abs=1e-6)


def test_grey_images_are_shown(folder: Path, tmp_path: Path) -> None:
    grey = write_evaluation(tmp_path)
    arrays = gallery_arrays(HOSTILE)
    arrays |= {name: arrays[name][:, :1] for name in ("clean", "perturbed")}
    np.savez(grey / "gallery.npz", **arrays)
    assert render_html(load_run(grey)).count("image-rendering") == 1


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_atomically(tmp_path / "report.md", b"old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("report.md", b"old")]


def test_neither_importing_nor_rendering_needs_torch(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import scaleproof.report as report; "
        "heavy = {'torch', 'matplotlib', 'jinja2', 'PIL'} & set(sys.modules); assert not heavy, heavy; "
        "report.render(Path(sys.argv[1])); "
        "heavy = {'torch', 'matplotlib.pyplot'} & set(sys.modules); assert not heavy, heavy"
    )
    source = str(Path(__file__).parents[1] / "src")
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {code}", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
