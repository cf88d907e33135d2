"""What a reader can operate on the pages, by mouse and by keyboard."""

import pytest

from browser_fixtures import Open


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
    head = table.get_by_role("button", name="Robust, worst of all runs")
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


def test_the_explorer_of_a_comparison_finds_disputed_images(visit: Open) -> None:
    page = visit("compare")
    explorer = page.locator("#explorer")
    explorer.locator("select[name=verdict]").select_option("differ")
    assert explorer.locator("output").inner_text() == "50 of 1000 images (5.0%)"
    explorer.locator("select[name=verdict]").select_option(label="Wrong only in Other network")
    assert explorer.locator("output").inner_text() == "20 of 1000 images (2.0%)"
