"""The pages in a real browser: no network, no errors, any width, light and dark, keyboard, no script, print."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from report_fixtures import CLASSES, add_checks, gallery_arrays, write_evaluation, write_other, write_sweep
from scaleproof.report import load_run
from scaleproof.report.compare import compare
from scaleproof.report.html import render_html
from training_report_fixtures import write_training

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra dev)")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((path for path in map(shutil.which, NAMES) if path), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser is installed: none of {', '.join(NAMES)}"
)
PAGES = ("report", "sweep", "training", "compare")
Open = Callable[..., Any]

CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const channel = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let checked = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const shown = node.checkVisibility() && !node.closest("script, style, option, :disabled");
    if (!shown || !walker.currentNode.textContent.trim()) continue;
    checked += 1;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push([node.tagName, node.className, ratio, walker.currentNode.textContent.trim()]);
  }
  return { bad, checked };
}"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write one page of each kind, the first with a failed check and two attacks in its gallery."""
    import numpy as np

    place = tmp_path_factory.mktemp("browser")
    full = add_checks(write_evaluation(place / "full"))
    np.savez_compressed(full / "gallery.npz", **gallery_arrays(CLASSES, count=6))
    folders = {
        "report": full,
        "sweep": write_sweep(place / "sweep"),
        "training": write_training(place / "training"),
    }
    for folder in folders.values():
        (folder / "report.html").write_text(render_html(load_run(folder)), encoding="utf-8")
    runs = [full, write_other(place / "other"), folders["training"], folders["sweep"]]
    compare(runs, place / "compare.html")
    found = {name: folder / "report.html" for name, folder in folders.items()}
    return found | {"compare": place / "compare.html"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start one browser for all tests."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=BROWSER, args=flags)
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any, pages: dict[str, Path]) -> Iterator[Open]:
    """Open a page and, at the end, insist that it made no request and reported no error."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def go(name: str, width: int = 1280, **settings: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        context.set_default_timeout(5000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("console", lambda message: wrong.append(f"console: {message.text}"))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(("file:", "data:")) or wrong.append(f"request: {request.url}")
            ),
        )
        page.goto(pages[name].as_uri())
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_pages_fit_the_window(visit: Open, name: str, width: int) -> None:
    page = visit(name, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.scrollLeftMax ?? 0") == 0
    boxes = page.evaluate(
        "[...document.querySelectorAll('header > *, nav, main > section')].filter((n) => n.checkVisibility())"
        ".map((n) => { const b = n.getBoundingClientRect(); return [n.tagName, b.x, b.y, b.right, b.bottom]; })"
    )
    assert len(boxes) > 5
    for k, (one, left, top, right, bottom) in enumerate(boxes):
        for other, x, y, far, low in boxes[k + 1 :]:
            apart = right <= x + 1 or far <= left + 1 or bottom <= y + 1 or low <= top + 1
            assert apart, f"{one} and {other} overlap at {width} px"


@pytest.mark.parametrize("name", ["report", "compare"])
def test_no_open_table_is_cut_on_a_wide_window(visit: Open, name: str) -> None:
    page = visit(name)
    rooms = page.evaluate(
        "[...document.querySelectorAll('.scroll')]"
        ".filter((n) => n.checkVisibility() && !n.closest('#settings, #provenance'))"
        ".map((n) => [n.getAttribute('aria-label'), n.scrollWidth - n.clientWidth])"
    )
    assert len(rooms) > 3
    assert [room for room in rooms if room[1] > 0] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_text_stands_out_from_its_ground(visit: Open, name: str, scheme: str) -> None:
    page = visit(name, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = page.evaluate(CONTRAST)
    assert found["checked"] > 50
    assert found["bad"] == []


def test_the_switch_changes_the_colours_and_is_remembered(visit: Open) -> None:
    page = visit("report", color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    button, light = page.get_by_role("button", name="Theme"), page.evaluate(ground)
    button.click()
    assert page.evaluate(ground) == light
    button.click()
    assert "dark" in button.inner_text()
    assert page.evaluate(ground) != light
    assert page.evaluate(CONTRAST)["bad"] == []
    page.reload()
    assert page.evaluate(ground) != light
    page.get_by_role("button", name="Theme").click()
    assert page.evaluate(ground) == light


def test_gallery_filters_and_order(visit: Open) -> None:
    page = visit("report")
    gallery = page.locator("#gallery")
    assert gallery.locator("figure:visible").count() == 6
    gallery.locator("select[name=label]").select_option("bird")
    assert gallery.locator("figure:visible").count() == 1
    assert gallery.locator("output").inner_text() == "1 of 6 pictures"
    gallery.get_by_role("button", name="Clear").click()
    gallery.locator("select[name=attack]").select_option("SI-PGD")
    assert gallery.locator("figure:visible").count() == 3
    gallery.locator("select[name=prediction]").select_option("automobile")
    assert gallery.locator("figure:visible").count() == 1
    gallery.get_by_role("button", name="Clear").click()
    assert gallery.locator("figure:visible").count() == 6
    gallery.locator("select[name=sort]").select_option("attack")
    order = gallery.locator("figure").evaluate_all("(all) => all.map((one) => one.dataset.attack)")
    assert order == sorted(order)
    assert len(set(order)) == 2


def test_a_picture_is_shown_larger_and_enlarged_by_keyboard(visit: Open) -> None:
    page = visit("report")
    button, peek = page.locator("#gallery .open").first, page.locator(".peek")
    small = button.locator("img").first.bounding_box()
    button.hover()
    large = peek.locator("img").first.bounding_box()
    assert large["width"] > 1.5 * small["width"]
    assert "True class airplane" in peek.inner_text()
    page.mouse.move(5, 5)
    assert peek.is_hidden()
    page.locator("#gallery select").last.focus()
    page.keyboard.press("Tab")  # the button that clears
    page.keyboard.press("Tab")
    assert peek.is_visible()
    page.keyboard.press("Escape")
    assert peek.is_hidden()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_text("True class airplane").is_visible()
    page.keyboard.press("ArrowRight")
    assert dialog.get_by_text("True class automobile").is_visible()
    page.keyboard.press("Escape")
    assert dialog.is_hidden()
    assert page.evaluate("document.activeElement.className") == "open"


def test_the_keyboard_operates_a_filter(visit: Open) -> None:
    page = visit("report")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    box = page.locator("#explorer select[name=verdict]")
    box.focus()
    before = page.locator("#explorer output").inner_text()
    page.keyboard.press("ArrowDown")
    assert page.locator("#explorer output").inner_text() != before
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_the_explorer_counts_what_the_report_states(visit: Open) -> None:
    page = visit("report")
    explorer = page.locator("#explorer")
    assert explorer.locator("output").inner_text() == "1000 of 1000 images (100.0%)"
    explorer.locator("select[name=verdict]").select_option("holds")
    assert explorer.locator("output").inner_text() == "458 of 1000 images (45.8%)"
    explorer.locator("select[name=verdict]").select_option("wrong")
    assert explorer.locator("output").inner_text() == "79 of 1000 images (7.9%)"
    explorer.locator("select[name=label]").select_option(label="cat")
    rows = explorer.locator("tbody tr")
    cells = rows.evaluate_all("(all) => all.map((row) => row.cells[1].textContent)")
    assert set(cells) == {"cat"}
    explorer.get_by_role("button", name="Clear").click()
    first = rows.first.inner_text()
    explorer.get_by_role("button", name="Next").click()
    assert rows.first.inner_text() != first
    assert "Images 21 to 40 of 1000" in explorer.locator(".pager").inner_text()


def test_tables_sort_and_keep_the_worst_case_last(visit: Open) -> None:
    page = visit("report")
    table = page.locator("#attacks table")
    head = table.get_by_role("button", name="Robust, worst of all restarts")
    column = "(all) => all.map((row) => row.cells[1].textContent)"
    start = table.locator("tbody tr").evaluate_all(column)
    head.focus()
    page.keyboard.press("Enter")
    up = table.locator("tbody tr").evaluate_all(column)
    assert up[:-1] == sorted(start[:-1], key=lambda text: float(text.rstrip("%")))
    assert up[-1] == start[-1]
    assert table.locator("th[aria-sort=ascending]").count() == 1
    head.click()
    assert table.locator("tbody tr").evaluate_all(column)[:-1] == up[-2::-1]
    head.click()
    assert table.locator("tbody tr").evaluate_all(column) == start


@pytest.mark.parametrize(
    ("name", "place"), [("sweep", "scale"), ("training", "curve"), ("compare", "curves")]
)
def test_figures_read_out_values_and_enlarge(visit: Open, name: str, place: str) -> None:
    page = visit(name)
    frame, tip = page.locator(f"#{place} .frame"), page.locator(f"#{place} .tip")
    frame.scroll_into_view_if_needed()
    frame.focus()
    page.keyboard.press("ArrowRight")
    first = tip.inner_text()
    page.keyboard.press("ArrowRight")
    assert tip.inner_text() != first
    dot = page.locator(f"#{place} .dot").bounding_box()
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    page.mouse.move(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
    assert tip.is_visible()
    assert ("Epoch: " in tip.inner_text()) or ("Scale α of the logits: " in tip.inner_text())
    width = frame.locator("img").bounding_box()["width"]
    frame.get_by_role("button", name="Enlarge").press("Enter")
    dialog = page.get_by_role("dialog")
    assert dialog.locator("img").bounding_box()["width"] > width
    page.keyboard.press("Escape")
    assert dialog.is_hidden()


@pytest.mark.parametrize("name", PAGES)
def test_everything_is_readable_without_a_script(visit: Open, name: str) -> None:
    page = visit(name, java_script_enabled=False)
    assert page.locator("h1").is_visible()
    assert page.locator("form:visible, button:visible").count() == 0
    for figure in page.locator("figure img").all():
        assert figure.is_visible()
    tables = page.locator("table").all()
    assert tables
    for summary in page.locator("summary").all():
        summary.click()
    assert all(table.is_visible() for table in tables)
    if name == "report":
        assert page.locator("#explorer tbody tr").count() == 20
        assert page.locator("#gallery figure:visible").count() == 6


@pytest.mark.parametrize("name", PAGES)
def test_paper_shows_all_and_no_controls(visit: Open, name: str) -> None:
    page = visit(name, color_scheme="dark")
    if name == "report":
        page.locator("#gallery select[name=label]").select_option("bird")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("form:visible, nav:visible, .zoom:visible, .theme:visible").count() == 0
    hidden = page.evaluate(
        "[...document.querySelectorAll('table, figure')].filter((n) => !n.checkVisibility()"
        " || n.getBoundingClientRect().height === 0).map((n) => n.outerHTML.slice(0, 99))"
    )
    assert hidden == []
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_an_unreliable_number_is_marked_by_sign_word_and_colour(visit: Open) -> None:
    page = visit("report")
    assert page.locator("h1").inner_text().startswith("⚠ Unreliable: robust accuracy at most 45.8%")
    ink = "(node) => getComputedStyle(node).color"
    assert page.locator("h1").evaluate(ink) != page.locator("#checks h2").evaluate(ink)
    row = page.locator("#checks tbody tr").first
    assert "failed" in row.inner_text()
    assert "⚠" in row.locator(".verdict").evaluate("(n) => getComputedStyle(n, '::before').content")


def test_the_explorer_of_a_comparison_finds_disputed_images(visit: Open) -> None:
    page = visit("compare")
    explorer = page.locator("#explorer")
    explorer.locator("select[name=verdict]").select_option("differ")
    assert explorer.locator("output").inner_text() == "50 of 1000 images (5.0%)"
    explorer.locator("select[name=verdict]").select_option(label="Wrong only in Other network")
    assert explorer.locator("output").inner_text() == "20 of 1000 images (2.0%)"


def test_a_hostile_class_name_runs_nothing(browser: Any, tmp_path: Path) -> None:
    names = [
        "</script><script>window.owned = 1</script>",
        "<img src=x onerror=window.owned=1>",
        '"><b>',
        "&amp;",
    ]
    folder = write_evaluation(tmp_path, names)
    (folder / "report.html").write_text(render_html(load_run(folder)), encoding="utf-8")
    page = browser.new_page()
    page.goto((folder / "report.html").as_uri())
    page.locator("#explorer select[name=label]").select_option("0")
    page.locator("#gallery .open").first.click()
    assert page.evaluate("window.owned") is None
    assert page.locator("#explorer tbody td").first.inner_text() == names[0]
    page.close()
