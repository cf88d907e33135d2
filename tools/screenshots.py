"""Draw the pictures of the pages in docs/pictures, from real runs, in a real browser.

    python tools/screenshots.py

It attacks the demo network, so it takes a minute; it needs Chromium and the extra dev.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
RESULTS = ROOT / "docs" / "results"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDTHS = {"wide": (1280, 1500), "narrow": (390, 1500)}
MOST_BYTES = 300_000
TRAININGS = (
    "cifar10-resnet18-free/original-12",
    "cifar10-resnet18-free-si-s15-m0.2-beta0.2/original-12",
    "cifar10-resnet18-gat/original-100",
)


def scaleproof(*words: str) -> None:
    """Run a command of the package in this folder."""
    paths = {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100"}
    subprocess.run([sys.executable, "-m", "scaleproof", *words], check=True, env=os.environ | paths)


def make_pages(place: Path) -> dict[str, Path]:
    """Run and render what the pictures show."""
    report = place / "demo-cifar10"
    shutil.copytree(RESULTS / "demo-cifar10", report)
    scaleproof("report", str(report))
    attack = ("evaluate", "demo", "--data", "sample", "--limit", "300", "--seed", "0")
    scaleproof(*attack, "--attacks", "fgsm", "--out", str(place / "fgsm"))
    scaleproof(*attack, "--attacks", "pgd,pgd-cw", "--out", str(place / "pgd"))
    scaleproof("compare", str(place / "fgsm"), str(place / "pgd"), "--out", str(place / "attacks.html"))
    trainings = [str(RESULTS / "paper" / name / "seed-0" / "train") for name in TRAININGS]
    scaleproof("compare", *trainings, "--out", str(place / "trainings.html"))
    return {
        "report": report / "report.html",
        "compare": place / "attacks.html",
        "compare-trainings": place / "trainings.html",
    }


def picture(page: Any, path: Path, scroll_to: str | None) -> None:
    """Take one picture and store it in as few colours as keep it clean."""
    if scroll_to is not None:
        page.locator(scroll_to).evaluate("(node) => node.scrollIntoView({behavior: 'instant'})")
    shot = Image.open(io.BytesIO(page.screenshot()))
    small = shot.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, at most {MOST_BYTES} are wanted")
    print(path.relative_to(ROOT), path.stat().st_size)


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser_path = next(path for path in map(shutil.which, NAMES) if path)
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    places = {"report": "#gallery", "compare": "#images", "compare-trainings": "#curves"}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        pages = make_pages(Path(folder))
        browser = started.chromium.launch(executable_path=browser_path, args=flags)
        for name, address in pages.items():
            for width, (across, down) in WIDTHS.items():
                for scheme in ("light", "dark"):
                    page = browser.new_page(viewport={"width": across, "height": down}, color_scheme=scheme)
                    page.goto(address.as_uri())
                    ending = f"{width}-{scheme}" if scheme == "dark" else width
                    target = places[name] if scheme == "dark" else None
                    picture(page, PICTURES / f"{name}-{ending}.png", target)
                    page.close()
        browser.close()


if __name__ == "__main__":
    main()
