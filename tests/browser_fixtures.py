"""A real browser, and one page of each kind to visit."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from report_fixtures import CLASSES, add_checks, gallery_arrays, write_evaluation, write_other, write_sweep
from scaleproof.report import load_run
from scaleproof.report.compare import compare
from scaleproof.report.html import render_html
from training_report_fixtures import write_training

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((path for path in map(shutil.which, NAMES) if path), None)
PAGES = ("report", "sweep", "training", "compare")
Open = Callable[..., Any]


@pytest.fixture(scope="session")
def report_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write one page of each kind, the first with a failed check and two attacks in its gallery."""
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
    """Start one browser for the tests of a file; without one they are skipped."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra dev)")
    if BROWSER is None:
        pytest.skip(f"no browser is installed: none of {', '.join(NAMES)}")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=BROWSER, args=flags)
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any, report_pages: dict[str, Path]) -> Iterator[Open]:
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
        page.goto(report_pages[name].as_uri())
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrong == []
