"""The pages in a real browser: no network, no errors, any width, light and dark, no script, print."""

from pathlib import Path
from typing import Any

import pytest

from browser_fixtures import PAGES, Open
from report_fixtures import write_evaluation
from scaleproof.report import load_run
from scaleproof.report.html import render_html

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
