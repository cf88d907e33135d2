"""`scaleproof gate` and `scaleproof plan` as a person meets them: exit codes, comparisons, mistakes."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from scaleproof import load_model
from scaleproof.cli.gate import duration, seconds
from scaleproof.cli.main import app, main
from scaleproof.models import save_model
from scaleproof.schemas import schema


def test_times() -> None:
    assert [seconds(text) for text in ("90s", "5m", "1.5h", "20")] == [90, 300, 5400, 20]
    for text in ("", "m", "-1m", "0", "five"):
        with pytest.raises(ValueError, match="--budget must be a time above 0"):
            seconds(text)


def test_durations_are_not_finer_than_foreseen() -> None:
    assert [duration(time) for time in (0.2, 8.4, 99, 100, 601)] == [
        "1 s",
        "8 s",
        "99 s",
        "2 minutes",
        "10 minutes",
    ]


QUICK = ["--limit", "64", "--device", "cpu"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate") / "base"
    words = ["--attacks", "pgd,pgd-cw", "--steps", "4", "--no-checks", "--out", str(folder)]
    assert CliRunner().invoke(app, ["evaluate", "demo", *QUICK, *words]).exit_code == 0
    return folder


def asked(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["gate", *words, *QUICK])
    return done.exit_code, done.output + ("" if done.exception is None else str(done.exception))


def test_exit_codes(base: Path, tmp_path: Path) -> None:
    words = ["--steps", "2", "--batch-size", "16", "--out", str(tmp_path / "gate.json")]
    code, printed = asked("demo", "--min-robust", "10", *words)
    assert code == 0, printed
    assert (
        "PASS: robust accuracy of at least 10% was required; these attacks do not show otherwise" in printed
    )
    document = json.loads((tmp_path / "gate.json").read_text())
    assert document["decision"] == "pass"
    assert document["sample"]["complete"]
    assert document["reliable"], "it was examined"
    code, printed = asked("demo", "--min-robust", "99")
    assert code == 1
    assert re.search(r"FAIL: clean accuracy \(\d\d\.\d%\) is already below 99%: no attack was run\.", printed)
    assert "Looked at" not in printed
    code, printed = asked("demo", "--min-robust", "40", "--budget", "0.001s", "--against", str(base))
    assert code == 3, printed
    assert "what was seen is too little to say" in printed


def test_a_pass_is_safe_before_the_checks_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill during the checks leaves the decision, and says that the model was not examined."""
    from scaleproof.checks import examination

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "gate.json"
    words = ["demo", "--min-robust", "10", "--steps", "2", "--out", str(out)]
    monkeypatch.setattr(examination, "asked", cut)
    code, printed = asked(*words)
    assert code == 130
    assert "Clean accuracy" in printed
    assert "The checks of the model come now, on 64 images: they are not part of the budget" in printed
    assert "interrupted: the attacks let the model pass, but it was not examined" in printed
    assert "PASS" not in printed
    document = json.loads(out.read_text())
    assert (document["decision"], document["reliable"], document["checks"]) == ("pass", None, [])
    assert [finding["name"] for finding in document["findings"]] == ["not-examined"]
    pytest.importorskip("jsonschema").Draft202012Validator(schema("gate")).validate(document)

    monkeypatch.undo()
    code, printed = asked(*words)
    assert code == 0, "what was cut is no result, and is written again"
    assert printed.count("Clean accuracy") == 1
    document = json.loads(out.read_text())
    assert (document["decision"], document["reliable"], document["findings"]) == ("pass", True, [])
    code, printed = asked(*words)
    assert (code, "exists: give another --out" in printed) == (1, True)


def test_the_same_model_does_not_drop(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "gate.json"
    code, printed = asked("demo", "--against", str(base), "--max-drop", "1", "--no-checks", "--out", str(out))
    assert code == 0, printed
    assert "Drop 0.0 points on 64 images (95% interval -5.7 to 5.7)" in printed
    assert (
        "warning: the drop is within the limit on these 64 images, but its 95% interval is 11.3 points"
        in printed
    )
    assert [finding["name"] for finding in json.loads(out.read_text())["findings"]] == ["wide-interval"]
    assert "PGD, PGD-CW" in printed, "the attacks of the run it is compared with"
    assert "0 lost, 0 won" in printed


def test_a_worse_model_drops(base: Path, tmp_path: Path) -> None:
    net = load_model("demo").classifier
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.8 * parameter.std() * torch.randn(parameter.shape, generator=generator)
    save_model(tmp_path / "worse.safetensors", net, "resnet-small")
    out = tmp_path / "gate.json"
    code, printed = asked(
        str(tmp_path / "worse.safetensors"), "--against", str(base), "--max-drop", "1", "--out", str(out)
    )
    assert code == 1, printed
    found = json.loads(out.read_text())["comparison"]
    assert found["lost"] > found["won"]
    assert found["interval"][0] > 0.01
    assert found["mcnemar_p"] < 0.05


MISTAKES = {
    "no limit": (["demo"], "a gate needs a limit"),
    "drop of what": (["demo", "--max-drop", "1"], "--max-drop needs --against"),
    "other images": (
        ["demo", "--against", "BASE", "--split", "train"],
        "give the same --data, --split and --limit",
    ),
    "other attacks": (["demo", "--against", "BASE", "--steps", "5"], "pgd.steps was 4, is 5"),
    "no such run": (["demo", "--against", "nowhere"], "must have evaluation.json"),
    "no time": (["demo", "--min-robust", "1", "--budget", "soon"], "--budget must be a time above 0"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_neither_pass_nor_fail(
    name: str, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, message = MISTAKES[name]
    given = [str(base) if word == "BASE" else word for word in words]
    monkeypatch.setattr(sys, "argv", ["scaleproof", "gate", *given, *QUICK])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_plan_prints_what_it_computes() -> None:
    from scaleproof.planning import images_for_drop, images_for_half_width

    done = CliRunner().invoke(app, ["plan", "--robust", "50", "--half-width", "1", "--detect-drop", "2"])
    assert done.exit_code == 0
    assert f"{images_for_half_width(0.5, 0.01)} images give 50% ± 1 point (Wilson" in done.output
    assert (
        f"{images_for_drop(0.02, 0.05)} images, the same for both models, show a drop of 2 points"
        in done.output
    )
    for row in ("100", "1000", "10000"):
        assert f" {row} " in done.output
    done = CliRunner().invoke(app, ["plan", "--detect-drop", "1"])
    assert "show a drop of 1 point in 80% of all cases" in done.output
    done = CliRunner().invoke(app, ["plan", "--detect-drop", "9"])
    assert "drop must be at most the discordance" in str(done.exception)


def test_plan_without_a_question_says_which_there_are() -> None:
    done = CliRunner().invoke(app, ["plan"])
    assert done.exit_code == 0
    assert "Intervals around 50%" in done.output
    assert "give --half-width for an interval" in done.output
    assert "or --detect-drop for a drop" in done.output
