"""The report of a training run: what it says, what it refuses, and that it draws whatever was probed."""

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from report_fixtures import change_json, digest, write_json
from scaleproof.report import load_run, render
from scaleproof.report.figures import plates
from scaleproof.report.markdown import render_markdown
from scaleproof.report.style import png
from scaleproof.report.training.plots import curve_figure, geometry_figure, losses_figure
from scaleproof.report.training.words import falls, shown_epochs
from training_report_fixtures import (
    FIGURES,
    LAST,
    LEAKING,
    NAMES,
    SELECTED,
    epoch_object,
    sparse,
    stop,
    training_object,
    verdict_arrays,
    without_probes,
    without_test,
    write_training,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write and render a complete run folder once."""
    folder = write_training(tmp_path_factory.mktemp("training"))
    for kind, counts in (("selected", SELECTED), ("last", LAST), ("leaking", LEAKING)):
        np.savez(folder / f"verdicts-{kind}.npz", **verdict_arrays(counts))
    assert [path.name for path in render(folder)] == NAMES
    return folder


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """Copy the complete run folder, for a test to damage."""
    return Path(shutil.copytree(folder, tmp_path / "run"))


@pytest.mark.parametrize("line", [
    "**Robust accuracy at most 50.9% (95% interval 47.8 to 54.0, n = 1000, epoch 6 of 10)**",
    "| Weights | Epoch | Clean | Worst case | 95% interval | PGD | SI-PGD |",
    "| **Selected on held-out images** | **6** | **84.2%** | **50.9%** | **47.8–54.0** | **54.1%** | **51.2%** |",
    "| Last epoch | 10 | 86.1% | 45.1% | 42.0–48.2 | 47.8% | 45.5% |",
    "| Best on test images: leaking | 7 | 84.5% | 51.3% | 48.2–54.4 | 54.3% | 51.5% |",
    "Cosine mismatch of SI-PGD: selected 0.40%, last 0.40%, leaking 0.40%.",
    "| 5 | 0.1 | 72.5% | 74.0% | 48.0% | 49.5% |",
    "| **6** | **0.01** | **75.0%** | **76.5%** | **50.0%** | **51.5%** |",
    "| 4 | 0.1 | 2.19 | 0.500 | 0.440 | 1.25 | 50.0% |",
    "| 10 | 2.25 | 8.00 | 8.00 | 0.501 | 0.501 | 0.5% | 0.5% |",
    "| Seconds in all | 255 |",
    "| Seconds an epoch, mean | 25.5 |",
    "| Images a second, mean | 2,000 |",
    "| Recipe from | Settings of a paper &amp; its 120 epochs. |",
    "| Loss | clean + divergence + margin |",
    "| defense.inner.steps | 10 |",
    "| schedule.epochs | \\[6, 8\\] |",
    "| Images held out | 1000 |",
    f"| Weights, last | last.safetensors, epoch 10, SHA-256 {digest('last.safetensors 10')} |",
    "| airplane | 100 | 85.0% | 51.0% | 41.3–60.6 |",
    "Note: the first graph was captured twice.",
])  # fmt: skip
def test_markdown_has_the_line(folder: Path, line: str) -> None:
    assert line in (folder / "report.md").read_text(encoding="utf-8").splitlines()


SENTENCES = (
    "here the worst case falls from 50.9% at the selected epoch 6 to 45.1% at the last epoch 10, by 5.8 points.",
    "n = 1000 held-out images, n = 500 test images",
    "precision bf16, each step replayed as one captured CUDA graph",
    "eval mode, so it sees the running statistics; its passes leave the running statistics alone",
    "is not to be quoted",
    "Robust accuracy is an upper bound",
)


@pytest.mark.parametrize("name", ["report.html", "report.md", "report.tex"])
def test_every_format_says_the_same(folder: Path, name: str) -> None:
    text = (folder / name).read_text(encoding="utf-8").replace("\\%", "%")
    text = " ".join(re.sub(r"<[^>]*>|\\allowbreak\{\}", "", text).split())
    assert [sentence for sentence in SENTENCES if sentence not in text] == []
    for number in ("50.9%", "45.1%", "51.3%", "84.2%", "54.1%", "TRADES-SI", "0123456789ab"):
        assert number in text


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        (
            {"attack_precision": "bf16", "folded": True},
            "float32, its attack in bf16 with folded weights, each step",
        ),
        (
            {"attack_precision": "bf16 autocast", "folded": False},
            "float32, its attack in bf16 autocast, each step",
        ),
        ({"attack_precision": "float32", "folded": False}, "float32, each step"),
        (
            {"precision": "bf16", "attack_precision": "bf16", "folded": True},
            "bf16, its attack in bf16 with folded weights, each step",
        ),
    ],
)
def test_the_page_says_how_the_training_attack_ran(
    tmp_path: Path, attack: dict[str, object], said: str
) -> None:
    def changed(whole: dict[str, Any]) -> None:
        whole["speed"] |= {"precision": "float32", **attack}

    folder = write_training(tmp_path, changed)
    render(folder)
    assert f"Training: precision {said}" in (folder / "report.md").read_text(encoding="utf-8")


def test_the_page_is_whole(folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    images = re.findall(r'<img src="data:image/svg[^"]*" alt="([^"]+)"', text)
    assert len(images) == len(set(images)) == 3
    assert text.count('media="(max-width: 34rem)"') == 3
    assert "a lower learning rate from epochs 6 and 8 on (dotted)" in text
    assert not re.search(r'(?:src|srcset|href)="(?!data:|#)', text)


def test_figures_are_images_and_stay_the_same(folder: Path) -> None:
    before = {name: (folder / name).read_bytes() for name in NAMES}
    assert all(ElementTree.fromstring(before[f"{f}.svg"]).tag.endswith("svg") for f in FIGURES)
    assert {path.name: path.read_bytes() for path in render(folder)} == before


def test_latex_is_balanced_and_shows_the_figures(folder: Path) -> None:
    text = (folder / "report.tex").read_text(encoding="utf-8")
    assert text.count("{") == text.count("}")
    assert [name for name in FIGURES if f"{{{name}.png}}" not in text] == []
    assert r"\textbar{}W\textbar{}" in text


def test_the_curve_shows_the_numbers_of_the_probes(folder: Path) -> None:
    training = load_run(folder).training
    assert training is not None
    axes = curve_figure(training).axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines["PGD, held-out"].get_xdata()) == list(range(1, 11))
    assert list(lines["PGD, held-out"].get_ydata()) == [50.0 - 2.0 * abs(e - 6) for e in range(1, 11)]
    assert lines["Selected epoch 6"].get_xdata()[0] == 6
    marked = [line.get_xdata()[0] for line in axes.lines if line.get_label() == "Learning rate falls"]
    assert marked == [5.5, 7.5]
    shown = [lines[f"{kind}, {side}"] for kind in ("Clean", "PGD") for side in ("held-out", "test")]
    assert len({(line.get_marker()) for line in shown}) == 4
    assert len({(line.get_color(), str(line.get_linestyle())) for line in shown}) == 4


def test_the_other_figures_show_every_term_and_length(folder: Path) -> None:
    training = load_run(folder).training
    assert training is not None
    above = {line.get_label(): list(line.get_ydata()) for line in losses_figure(training).axes[0].lines}
    assert above["margin"] == [1.25] * 10
    assert above["Sum"] == [epoch.loss for epoch in training.history]
    panels = geometry_figure(training).axes
    assert list(panels[0].lines[0].get_ydata()) == [1.0 + 0.125 * e for e in range(1, 11)]
    assert [panel.get_title(loc="left")[-10:] for panel in panels] == [
        "eights |W|",
        "atures |z|",
        "true class",
    ]


@pytest.mark.parametrize("change", [without_test, sparse, without_probes, stop])
def test_whatever_was_probed_is_drawn(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    drawn = plates(load_run(write_training(tmp_path, change)))
    assert list(drawn) == [name for name in FIGURES if change is not without_probes or name != "curve"]
    for plate in drawn.values():
        assert png(plate.draw(narrow=True)).startswith(b"\x89PNG")


def test_without_a_test_probe_nothing_leaks(tmp_path: Path) -> None:
    text = render_markdown(load_run(write_training(tmp_path, without_test)))
    assert "leak" not in text
    assert "| 5 | 0.1 | 72.5% | 48.0% |" in text.splitlines()


def test_sparse_probes_leave_dashes(tmp_path: Path) -> None:
    run = load_run(write_training(tmp_path, sparse))
    assert "| 5 | 0.1 | – | – | – | – |" in render_markdown(run).splitlines()
    assert run.training is not None
    line = curve_figure(run.training).axes[0].lines[0]
    assert list(line.get_xdata()) == [3, 6, 9, 10]


def test_a_smooth_schedule_has_no_marks(tmp_path: Path) -> None:
    folder = write_training(tmp_path)
    change_json(folder / "training.json", "config", "schedule", value={"kind": "cyclic", "peak": 0.5})
    training = load_run(folder).training
    assert training is not None
    assert falls(training) == ()


def test_long_runs_show_some_epochs(tmp_path: Path) -> None:
    folder = write_training(tmp_path)
    write_json(folder / "training.json", training_object(50) | {
        "history": [epoch_object(1) | {"epoch": epoch} for epoch in range(1, 51)]
    })  # fmt: skip
    run = load_run(folder)
    assert run.training is not None
    shown = [epoch.number for epoch in shown_epochs(run.training)]
    assert shown == [1, 5, 6, 7, *range(10, 51, 5)]
    assert "13 of 50 epochs are shown; metrics.jsonl has them all." in render_markdown(run)


def test_a_missing_or_damaged_file_is_named(copy: Path) -> None:
    whole = (copy / "training.json").read_text()
    (copy / "training.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"training.json must be JSON, but is damaged.*restore the file"):
        load_run(copy)
    (copy / "training.json").write_text(json.dumps(json.loads(whole) | {"schema": "scaleproof.training/2"}))
    with pytest.raises(ValueError, match=r"training.json must have schema 'scaleproof.training/1'"):
        load_run(copy)
    (copy / "training.json").unlink()
    with pytest.raises(ValueError, match=r"training.json is missing.*a run of kind 'training' needs it"):
        load_run(copy)


def test_verdicts_of_another_run_are_refused(copy: Path) -> None:
    np.savez(copy / "verdicts-last.npz", **verdict_arrays(LEAKING))
    with pytest.raises(ValueError, match=r"verdicts-last.npz must agree with training.json, but counts 845"):
        load_run(copy)


def test_the_end_of_a_training_names_the_report(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from scaleproof.cli.show import show_training

    show_training([copy])
    assert capsys.readouterr().out.rstrip().endswith(f"Report: {copy / 'report.html'}")
