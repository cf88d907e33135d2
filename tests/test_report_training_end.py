"""What the report of a training says of its end: guards, collapses, and which weights stand."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from scaleproof.report import load_run
from scaleproof.report.latex import render_latex
from scaleproof.report.markdown import render_markdown
from scaleproof.report.training.plots import curve_figure, epoch_axis
from training_report_fixtures import (
    LEAKING,
    result_object,
    stop,
    without_probes,
    write_training,
)


def test_a_run_stopped_by_the_guard_says_so(tmp_path: Path) -> None:
    run = load_run(write_training(tmp_path, stop))
    text = render_markdown(run)
    said = "ended the training after 8 of 10 epochs: stopped in epoch 8: PGD accuracy fell from 50.0"
    assert said in text
    assert "## What the guard did" in text
    assert "- **Warning, epoch 8:** PGD accuracy fell from 50.0 (epoch 6) to 3.0: stop." in text
    assert "epoch 8, in which the guard stopped: their worst case is 45.1%, against 50.9%" in text
    assert "Robust overfitting is" not in text
    assert run.training is not None
    assert "Guard steps in" in [line.get_label() for line in curve_figure(run.training).axes[0].lines]


def test_a_rollback_is_told(tmp_path: Path) -> None:
    def roll_back(whole: dict[str, Any]) -> None:
        whole["history"][2]["guard"] = "PGD accuracy fell from 44.0 (epoch 2) to 1.0: rollback"

    text = render_markdown(load_run(write_training(tmp_path, roll_back)))
    assert "stepped in 1 time; see below" in text
    assert "- **Warning, epoch 3:** PGD accuracy fell from 44.0" in text


def test_without_held_out_images_the_last_weights_stand(tmp_path: Path) -> None:
    run = load_run(write_training(tmp_path, without_probes))
    text = render_markdown(run)
    assert "Robust accuracy at most 45.1%" in text
    assert "No images were held out, so there was nothing to select with" in text
    assert "| **Last epoch, as no images were held out** | **10** |" in text
    assert render_latex(run).count(r"\includegraphics") == 2


def test_a_last_epoch_that_is_no_worse(tmp_path: Path) -> None:
    def improve(whole: dict[str, Any]) -> None:
        whole["results"]["last"] = result_object(10, "last.safetensors", LEAKING)

    text = render_markdown(load_run(write_training(tmp_path, improve)))
    assert "is no worse than the selected epoch 6 (51.3% against 50.9% in the worst case)" in text
    assert "Robust overfitting is" not in text


def test_a_collapse_is_named(tmp_path: Path) -> None:
    def collapse(whole: dict[str, Any]) -> None:
        whole["history"][-1]["validation"]["pgd"] = 0.0

    text = render_markdown(load_run(write_training(tmp_path, collapse)))
    assert "it falls by 50.0 points, more than the 20 from which the guard speaks of catastrophic" in text


@pytest.mark.parametrize(("held_out", "named"), [(1000, True), (50, False)])
def test_a_collapse_from_no_great_height_is_named_where_it_is_no_chance(
    tmp_path: Path, held_out: int, named: bool
) -> None:
    def collapse(whole: dict[str, Any]) -> None:
        whole["held_out"] = held_out
        for line in whole["history"]:
            line["validation"]["pgd"] *= 0.3
        whole["history"][-1]["validation"]["pgd"] = 0.0

    text = render_markdown(load_run(write_training(tmp_path, collapse)))
    assert (
        "falls by 15.0 points, to 0.0%: then the guard speaks of catastrophic overfitting" in text
    ) == named


@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_epochs_are_counted_in_whole_numbers(count: int) -> None:
    axes = Figure().add_subplot()
    epoch_axis(axes, count)
    low, high = axes.get_xlim()
    shown = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert shown
    assert all(tick == round(tick) for tick in shown)
