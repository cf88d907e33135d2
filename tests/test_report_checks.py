"""Checks in a report: a number that failed one is never shown without saying so."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from report_fixtures import CHECKS, add_checks, change_json, write_evaluation
from scaleproof import Threat, suite
from scaleproof.attacks import Foreign
from scaleproof.cli.tables import evaluation_remarks, evaluation_table
from scaleproof.report import contents, load_run
from scaleproof.report.document import build_document
from scaleproof.report.html import render_html
from scaleproof.report.latex import render_latex
from scaleproof.report.markdown import render_markdown
from training_report_fixtures import write_training


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write an evaluation that failed a check."""
    return add_checks(write_evaluation(tmp_path / "run"))


def text_of(page: str) -> str:
    """Return what a page shows, without its script, its style and its tags."""
    body = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def test_the_headline_itself_says_unreliable(folder: Path) -> None:
    run = load_run(folder)
    page, claim = render_html(run), "Unreliable: robust accuracy at most 45.8%"
    assert claim in render_markdown(run)
    assert claim.replace("%", r"\%") in render_latex(run)
    assert re.search(rf"<title>[^<]*{claim}", page)
    assert re.search(rf'<h1 class="unreliable"><span class="sign" aria-hidden="true">⚠</span> {claim}', page)


def test_every_other_place_says_it_too(folder: Path) -> None:
    run = load_run(folder)
    latex = render_latex(run).replace(r" \\ ", " ")
    for text in (render_markdown(run), latex, text_of(render_html(run))):
        assert "Worst case (unreliable)" in text
        assert "Worst case without it (unreliable)" in text
        assert "Robust at most (unreliable)" in text
        assert "1 of 3 checks failed (Black-box attacks are no stronger than white-box ones)" in text
        assert not re.search(r"(?<!Unreliable: )[Rr]obust accuracy at most", text)


def test_failed_checks_come_first_with_meaning_and_advice(folder: Path) -> None:
    text = render_markdown(load_run(folder))
    lines = [line for line in text.splitlines() if any(c["label"] in line for c in CHECKS) and "|" in line]
    assert [re.search("failed|passed|skipped", line)[0] for line in lines] == [  # type: ignore[index]
        "failed",
        "skipped",
        "passed",
    ]
    assert "**0.31** | **0.05** | **failed**" in lines[0]
    assert "| – | – | skipped | No other network was at hand. | Give one. |" in lines[1]


def test_passed_checks_are_folded_and_say_nothing_of_what_to_do(folder: Path) -> None:
    page = render_html(load_run(folder))
    body = page[page.index('<section id="checks"') :]
    body = body[: body.index("</section>")]
    shown, folded = body.split("<details>")
    assert "<summary>Checks that passed (1)</summary>" in folded
    assert "Checks that failed or were skipped." in shown
    assert ("Gradients are not zero" in shown, "Gradients are not zero" in folded) == (False, True)
    assert ("What to do next" in shown, "What to do next" in folded) == (True, False)


def test_a_page_without_checks_says_that_nobody_looked(tmp_path: Path) -> None:
    run = load_run(write_evaluation(tmp_path))
    for text in (render_markdown(run), render_latex(run), text_of(render_html(run))):
        assert "Nobody examined this number" in text
        assert "nreliable" not in text


def test_a_page_whose_checks_passed_claims_no_more_than_that(tmp_path: Path) -> None:
    text = text_of(render_html(load_run(add_checks(write_evaluation(tmp_path), reliable=True))))
    assert "1 check passed and none failed" in text
    assert "1 check was skipped." in text
    assert "upper bound all the same" in text
    assert "Unreliable" not in text


def test_a_number_called_unreliable_without_a_check_is_marked(tmp_path: Path) -> None:
    folder = write_evaluation(tmp_path)
    change_json(folder / "evaluation.json", "reliable", value=False)
    document = build_document(load_run(folder))
    assert document.headline.startswith("Unreliable: ")
    assert "without naming a failed check" in document.alarm


def test_a_training_with_a_failed_check_is_marked(tmp_path: Path) -> None:
    folder = write_training(tmp_path)
    place = ("results", "selected", "evaluation")
    change_json(folder / "training.json", *place, "reliable", value=False)
    change_json(folder / "training.json", *place, "checks", value=CHECKS)
    text = render_markdown(load_run(folder))
    assert "Unreliable: robust accuracy at most" in text
    assert "Selected on held-out images: unreliable, a check failed" in text


def test_the_command_line_says_it(folder: Path) -> None:
    document = json.loads((folder / "evaluation.json").read_text())
    assert list(evaluation_table(document).columns[0].cells)[-1] == "worst case (unreliable)"
    said = evaluation_remarks(document)
    assert said[0] == "UNRELIABLE: do not quote the worst case."
    assert said[1].startswith("check failed, Black-box attacks are no stronger")
    document |= {"reliable": True, "checks": []}
    assert not any("UNRELIABLE" in line for line in evaluation_remarks(document))


PUBLISH = "This is not the number to publish: scaleproof evaluate with --attacks standard"


def with_attacks(folder: Path, attacks: str) -> Path:
    """Give the attacks of an evaluation, one after another, the names and kinds of others."""
    path = folder / "evaluation.json"
    document = json.loads(path.read_text())
    made = suite(attacks) if attacks else (Foreign(lambda _model, x, _y: x, name="theirs", threat=Threat()),)
    found = [
        {**old, "name": new.name, "settings": new.describe()}
        for old, new in zip(document["attacks"], made, strict=False)
    ]
    worst = min((one["robust"] for one in found), key=lambda share: share["correct"])
    path.write_text(json.dumps(document | {"attacks": found, "worst_case": worst}))
    return folder


@pytest.mark.parametrize(
    ("attacks", "told"),
    [(name, 1) for name in ("paper", "pgd,square", "apgd-t", "quick")]
    + [(name, 0) for name in ("standard", "fast", "blackbox", "")],
)
def test_which_number_to_publish_is_told_once(tmp_path: Path, attacks: str, told: int) -> None:
    folder = with_attacks(write_evaluation(tmp_path, optional=False), attacks)
    document, run = json.loads((folder / "evaluation.json").read_text()), load_run(folder)
    assert " ".join(evaluation_remarks(document)).count(PUBLISH) == told
    assert render_markdown(run).count(PUBLISH) == text_of(render_html(run)).count(PUBLISH) == told
    assert render_latex(run).count(PUBLISH.partition(":")[0]) == told


def test_a_number_that_others_speak_against_is_not_told_what_to_publish(folder: Path) -> None:
    document = json.loads((folder / "evaluation.json").read_text())
    assert PUBLISH not in " ".join(evaluation_remarks(document)) + render_markdown(load_run(folder))
    expected = {"draws": 20, "clean": 0.9, "attacks": {}, "worst_case": 0.4}
    finding = {"name": "randomised", "severity": "warning", "meaning": "Use the suite rand."}
    for name, value in (("reliable", True), ("checks", [])):
        change_json(folder / "evaluation.json", name, value=value)
    plain = (folder / "evaluation.json").read_text()
    for name, value in (("findings", [finding]), ("expected", expected)):
        (folder / "evaluation.json").write_text(plain)
        change_json(folder / "evaluation.json", name, value=value)
        document = json.loads((folder / "evaluation.json").read_text())
        assert PUBLISH not in " ".join(evaluation_remarks(document)) + render_markdown(load_run(folder))


def test_a_skipped_check_does_not_state_its_claim(tmp_path: Path) -> None:
    """Also in runs from before, whose files have the claim as the label."""
    folder = add_checks(write_evaluation(tmp_path), reliable=True)
    why = "No need: the number rests on an attack that no scale can fool."
    found = {"label": "The scale of the logits does not matter", "meaning": why}
    change_json(folder / "evaluation.json", "checks", 1, value={**CHECKS[2], "name": "scale", **found})
    document = json.loads((folder / "evaluation.json").read_text())
    remark = "Skipped: scale of the logits (no need: the number rests on an attack that no scale can fool)."
    assert remark in evaluation_remarks(document)
    text = render_markdown(load_run(folder))
    assert "| Scale of the logits | – | – | skipped | No need:" in text
    assert "does not matter" not in text


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (("reliable",), "no", "field reliable must be true or false, but is 'no'"),
        (("reliable",), True, "field reliable must be false, as these checks failed: black_box"),
        (("checks",), {}, "field checks must be a list"),
        (("checks", 1, "passed"), 1, r"field checks\[1\]\.passed must be true or false, but is 1"),
        (("checks", 1, "value"), "much", r"field checks\[1\]\.value must be a number, but is 'much'"),
        (("checks", 1, "meaning"), None, r"field checks\[1\]\.meaning must be a string"),
    ],
)
def test_a_broken_field_is_named(folder: Path, keys: tuple[Any, ...], value: object, said: str) -> None:
    change_json(folder / "evaluation.json", *keys, value=value)
    with pytest.raises(ValueError, match=f"evaluation.json: {said}"):
        load_run(folder)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex is installed")
def test_latex_sets_the_checks(folder: Path) -> None:
    for name, content in contents(load_run(folder)).items():
        (folder / name).write_bytes(content)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    wide = re.findall(rb"Overfull \\hbox \((\d+)", done.stdout)
    assert all(int(points) < 20 for points in wide)
