"""The words, the Markdown and the LaTeX of a report."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from report_fixtures import (
    CLASSES,
    HOSTILE,
    change_json,
    evaluation_object,
    share,
    sweep_object,
    verdict_arrays,
    write_evaluation,
    write_sweep,
)
from scaleproof.cli.tables import evaluation_table
from scaleproof.report import load_run, words
from scaleproof.report.latex import escape as escape_latex
from scaleproof.report.latex import render_latex
from scaleproof.report.markdown import escape as escape_markdown
from scaleproof.report.markdown import render_markdown
from scaleproof.report.tables import cost_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a complete run folder once."""
    return write_evaluation(tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize(
    ("eps", "text"), [(8 / 255, "8/255"), (0.5, "0.5"), (1.0, "1"), (0.0314, "0.0314"), (0.0, "0")]
)
def test_radius(eps: float, text: str) -> None:
    assert words.radius(eps) == text


@pytest.mark.parametrize(("correct", "count"), [(0, 10), (10, 10), (458, 1000), (1, 3)])
def test_wilson_interval(correct: int, count: int) -> None:
    assert words.share_of(correct, count).interval == pytest.approx(tuple(share(correct, count)["interval"]))


def test_many_images_earn_a_second_decimal() -> None:
    assert words.share_percent(words.share_of(432, 1000)) == "43.2%"
    assert words.share_percent(words.share_of(4321, 10_000)) == "43.21%"


def test_numbers_without_a_value() -> None:
    assert words.quotient(5, 0) == "–"
    assert words.significant(float("nan")) == "not finite"
    assert words.mismatch(None) == "not measured"


@pytest.mark.parametrize(
    ("commit", "text"), [(None, "unknown"), ("0123456789ab+", "0123456789ab+"), ("a" * 40, "a" * 12)]
)
def test_a_commit_keeps_its_mark(commit: str | None, text: str) -> None:
    assert words.commit_text(commit) == text


@pytest.mark.parametrize("line", [
    "**Robust accuracy at most 45.8% (95% interval 42.7 to 48.9, n = 1000)**",
    "| No attack | 92.1% | 90.3–93.6 | – | – | – | – |",
    "| SI-PGD | 45.8% | 42.7–48.9 | 0.40% | 47.0% | 5 | 921 |",
    "| **Worst case** | **45.8%** | **42.7–48.9** | **–** | **–** | **–** | **–** |",
    "| PGD | 105 | 100 | 25 | 7,500.2 | 0.031373 |",
    "| Scale α | PGD | CW | DLR | SI-PGD (mismatch 0.40%) |",
    "| 1000 | 92.0% | 47.0% | 47.5% | 46.2% |",
    "| **Adversarial examples bit-identical** | **no** | **no** | **no** | **yes** |",
    "| airplane | 100 | 90.0% | 50.0% | 40.4–59.6 |",
    "| threat.eps | 0.03137254901960784 |",
    "| si-pgd: objective | cosine\\_margin |",
    "| scaleproof commit | 0123456789abcdef0123456789abcdef01234567 |",
    "- **Warning, vanishing gradients:** 31% of entries are exactly 0.",
    "CW: restart 3 found nothing new",
])  # fmt: skip
def test_markdown_has_the_line(folder: Path, line: str) -> None:
    assert line in render_markdown(load_run(folder)).splitlines()


def test_every_number_table_states_where_it_comes_from(folder: Path) -> None:
    note = (
        "n = 1000; seed 7; scaleproof commit 0123456789ab; Example CPU (cpu, 2 threads); "
        "python 3.11.9, torch 2.13.0, scaleproof 0.1.0."
    )
    assert render_markdown(load_run(folder)).count(note) == 6


@pytest.mark.parametrize("render", [render_markdown, render_latex])
def test_the_caveats_are_stated(folder: Path, tmp_path: Path, render: object) -> None:
    for run in (load_run(folder), load_run(write_sweep(tmp_path))):
        text = render(run)  # type: ignore[operator]
        assert "CW and DLR are scale-invariant too" in text
        assert "Robust accuracy is an upper bound" in text


def test_a_sweep_has_its_own_headline(tmp_path: Path) -> None:
    text = render_markdown(load_run(write_sweep(tmp_path)))
    headline = (
        "**PGD’s robust accuracy ranges from 53.0% to 92.0% with the scale of the logits alone; "
        "SI-PGD’s does not move (n = 1000, cosine mismatch 0.40%)**"
    )
    assert headline in text
    assert "| scaleproof commit | unknown |" in text


def test_the_numbers_of_the_first_answers_are_left_out(tmp_path: Path) -> None:
    folder = write_evaluation(tmp_path)
    change_json(folder / "run.json", "settings", "first_logits", value=[[-0.243, 0.218]])
    text = render_markdown(load_run(folder))
    assert "| the model’s answers on the first images | digest fe5a815c9fef |" in text
    assert "0.243" not in text


def test_the_cosine_mismatch_is_explained_once(folder: Path, tmp_path: Path) -> None:
    for place in (folder, write_sweep(tmp_path)):
        text = render_markdown(load_run(place))
        assert text.count("The cosine mismatch is the share of clean images on which the largest cosine") == 1


def test_a_randomised_model_is_quoted_by_its_expectation(tmp_path: Path) -> None:
    folder = write_evaluation(tmp_path)
    expected = {"draws": 20, "clean": 0.9, "attacks": {}, "worst_case": 0.4321}
    change_json(folder / "evaluation.json", "expected", value=expected)
    text = render_markdown(load_run(folder))
    assert "**Expected robust accuracy at most 43.2% (mean of 20 draws, n = 1000)**" in text
    assert "over 20 draws each" in text
    assert "clean 90.0%, and 43.2% on the worst example found for each image" in text
    assert "as the attacks do (45.8% in the worst case)" in text
    assert "| **Expected worst case, 20 draws** | **43.2%** |" in text, "it is the line to look at"
    assert "| Worst case (of the mean answer) | 45.8% |" in text
    shown = evaluation_table(json.loads((folder / "evaluation.json").read_text()))
    assert list(shown.columns[0].cells)[-1] == "expected worst case, 20 draws"
    assert "43.21" in [cell for column in shown.columns for cell in column.cells]
    change_json(folder / "evaluation.json", "expected", "worst_case", value=1.4)
    with pytest.raises(ValueError, match=r"expected\.worst_case must be a fraction"):
        load_run(folder)


def test_cascade_is_explained(tmp_path: Path) -> None:
    folder = write_evaluation(tmp_path, optional=False)
    change_json(folder / "evaluation.json", "mode", value="cascade")
    text = render_markdown(load_run(folder))
    assert "Robust after this attack" in text
    assert "ran as a cascade" in text


def test_a_terminal_heads_a_cascade_as_what_is_left(tmp_path: Path) -> None:
    document = json.loads((write_evaluation(tmp_path, optional=False) / "evaluation.json").read_text())
    for attack in document["attacks"]:
        attack["restarts"] = 1
    heads = {
        mode: str(evaluation_table({**document, "mode": mode}).columns[1].header)
        for mode in ("cascade", "independent")
    }
    assert heads == {"cascade": "left after", "independent": "robust"}


def test_an_unmeasured_mismatch_is_said(tmp_path: Path) -> None:
    folder = write_evaluation(tmp_path, optional=False)
    change_json(folder / "evaluation.json", "attacks", 4, "cosine_mismatch", value=None)
    assert "| SI-PGD | 45.8% | 42.7–48.9 | not measured |" in render_markdown(load_run(folder))


def test_missing_parts_leave_no_trace(tmp_path: Path) -> None:
    text = render_markdown(load_run(write_evaluation(tmp_path, optional=False)))
    assert "scale.png" not in text
    assert "## Classes" not in text


def test_a_sweep_in_which_nothing_moves(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path)
    rows = [row for row in sweep_object(CLASSES)["rows"] if row["attack"] == "pgd-cw"]
    change_json(folder / "sweep.json", "rows", value=rows)
    change_json(folder / "sweep.json", "identical", value={"pgd-cw": False})
    text = render_markdown(load_run(folder))
    assert "**No attack’s robust accuracy moves with the scale of the logits (n = 1000)**" in text


def test_without_findings_or_attacks_on_cosines(tmp_path: Path) -> None:
    folder = write_evaluation(tmp_path, optional=False)
    attacks = evaluation_object(verdict_arrays(CLASSES), CLASSES)["attacks"][:1]
    change_json(folder / "evaluation.json", "attacks", value=attacks)
    change_json(folder / "evaluation.json", "findings", value=[])
    text = render_markdown(load_run(folder))
    assert "## Findings" not in text
    assert "cosines" not in text
    assert "the one attack changes" in text


def test_a_worst_case_above_an_attack_is_refused(tmp_path: Path) -> None:
    folder = write_evaluation(tmp_path, optional=False)
    change_json(folder / "evaluation.json", "worst_case", value=share(900, 1000))
    with pytest.raises(ValueError, match=r"worst_case.correct must be at most 458"):
        load_run(folder)


def test_hostile_names_stay_text_in_markdown(tmp_path: Path) -> None:
    text = render_markdown(load_run(write_evaluation(tmp_path, HOSTILE)))
    assert "<script" not in text
    assert "[x](y)" not in text
    assert "two lines" in text
    rows = [line for line in text.splitlines() if line.startswith("| a\"b'c")]
    assert rows[0].replace("\\|", "").count("|") == 6


def test_hostile_names_stay_text_in_latex(tmp_path: Path) -> None:
    text = render_latex(load_run(write_evaluation(tmp_path, HOSTILE)))
    assert r"50\%\_\&\#\$\textasciitilde{}\textasciicircum{}\textbackslash{}\{x\} & 167" in text
    assert r"n\'e" not in text
    assert r"né\textendash{}{[}U+4E2D{]}" in text


def test_latex_tables_use_booktabs(folder: Path) -> None:
    text = render_latex(load_run(folder))
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 8
    assert r"\textbf{Worst case} & \textbf{45.8\%} & \textbf{42.7\textendash{}48.9}" in text
    assert r"$\ell_\infty$ radius 8/255" in text
    assert text.count("{") == text.count("}")


@given(st.text())
def test_latex_escape_leaves_nothing_active(text: str) -> None:
    bare = escape_latex(text).replace("\\\\", "")
    for markup in (r"\%", r"\&", r"\#", r"\$", r"\_", r"$\ell", "_\\infty$", "_2$", "_1$"):
        bare = bare.replace(markup, "")
    for markup in (r"$\alpha$", r"$\times$", r"$\varepsilon$", r"\infty$", "$"):
        bare = bare.replace(markup, "") if any(c in text for c in "ℓ∞α×ε") else bare
    assert not set(bare) & set("%&#$_~^\n")
    assert "---" not in bare


@given(st.text())
def test_markdown_escape_is_one_line_without_markup(text: str) -> None:
    escaped = escape_markdown(text)
    assert len(escaped.splitlines()) <= 1
    assert "<" not in escaped
    assert escaped.count("|") == escaped.count("\\|")


def test_classes_appear_once_each(folder: Path) -> None:
    lines = render_markdown(load_run(folder)).splitlines()
    assert [sum(line.startswith(f"| {name} |") for line in lines) for name in CLASSES] == [1] * 10


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("cpu", "Gradients in float32 (TF32 is for GPUs), verdicts"),
        ("cuda", "Gradients in tf32, verdicts in float32;"),
    ],
)
def test_no_tf32_is_claimed_of_a_cpu(tmp_path: Path, device: str, told: str) -> None:
    folder = write_evaluation(tmp_path, optional=False)
    change_json(folder / "evaluation.json", "speed", "precision", value="tf32")
    change_json(folder / "run.json", "hardware", "device", value=device)
    assert told in render_markdown(load_run(folder))


def test_costs_without_a_number_are_dashes(tmp_path: Path) -> None:
    """Square takes no gradient steps; FAB moves no image that it does not break."""
    folder = write_evaluation(tmp_path)
    change_json(folder / "evaluation.json", "attacks", 0, "image_steps_per_second", value=0.0)
    arrays = dict(np.load(folder / "verdicts.npz"))
    np.savez(folder / "verdicts.npz", **{**arrays, "size__fgsm": np.zeros_like(arrays["size__fgsm"])})
    run = load_run(folder)
    assert run.evaluation is not None
    first, second, *_ = cost_table(run, run.evaluation).rows
    assert first.cells[-2:] == ("–", "–")
    assert second.cells[-2:] == ("7,500.2", "0.031373")
