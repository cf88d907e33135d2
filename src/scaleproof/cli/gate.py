"""`scaleproof gate`: a check for continuous integration, by exit code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scaleproof.cli import options
from scaleproof.files import read_json
from scaleproof.report.words import counted, plural

if TYPE_CHECKING:
    from scaleproof.baseline import Baseline
    from scaleproof.cli.setup import Job
    from scaleproof.gate import Gate

CODES = {"pass": 0, "fail": 1, "undecided": 3}  # 2 is a mistake in the command
UNITS = {"s": 1, "m": 60, "h": 3600}
SCHEMA = "scaleproof.gate/1"
CUT = "interrupted: the attacks let the model pass, but it was not examined"
UNEXAMINED = {
    "name": "not-examined",
    "severity": "warning",
    "meaning": "the checks of the model had not ended when this was written, so that nobody knows whether a pass means "
    "anything: run the gate again",
}
USUAL = {"attacks": "pgd-pm,pgd-std", "steps": None, "restarts": None, "norm": "linf", "eps": None}


MinRobust = Annotated[
    float | None,
    typer.Option(help="Least robust accuracy of these images, in percent.", show_default=False),
]
Against = Annotated[
    Path | None,
    typer.Option(help="A finished evaluation of the same images to compare with.", show_default=False),
]
MaxDrop = Annotated[
    float | None,
    typer.Option(help="Largest drop below --against, in points; 0 by default.", show_default=False),
]
Budget = Annotated[str, typer.Option(help="Time for the attacks: 90s, 5m, 1h.")]
Attacks = Annotated[
    str | None,
    typer.Option(
        help="Suites or attacks, as in evaluate; those of --against by default, else pgd-pm,pgd-std.",
        show_default=False,
    ),
]
Steps = Annotated[int | None, typer.Option(help="As in evaluate.", show_default=False)]
Restarts = Annotated[int | None, typer.Option(help="As in evaluate.", show_default=False)]
Norm = Annotated[str | None, typer.Option(help="linf or l2.", show_default=False)]
Checks = Annotated[
    bool,
    typer.Option(
        help="Examine a model that would pass, after the budget: where a check fails it is undecided."
    ),
]
Out = Annotated[Path | None, typer.Option(help="Write the result as JSON to this file.", show_default=False)]


def command(
    model: options.Model,
    min_robust: MinRobust = None,
    against: Against = None,
    max_drop: MaxDrop = None,
    budget: Budget = "5m",
    data: options.OwnData = None,
    data_folder: options.DataFolder = None,
    split: options.Split = "test",
    limit: options.Limit = None,
    arch: options.Arch = None,
    head: options.Head = None,
    attacks: Attacks = None,
    steps: Steps = None,
    restarts: Restarts = None,
    norm: Norm = None,
    eps: options.Eps = None,
    step_size: options.StepSize = None,
    checks: Checks = True,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    out: Out = None,
) -> None:
    """Exit with 0 when a model passes, 1 when it fails, 3 when too little was seen to say."""
    raise typer.Exit(decide({**locals(), "compile": False, "allow_train_mode": False}))


def decide(words: dict[str, Any]) -> int:
    """Check the words, run the gate, tell what it found; the exit code."""
    from rich.console import Console

    from scaleproof.attacks import preset
    from scaleproof.baseline import check_images, read_baseline
    from scaleproof.cli.setup import Request, prepare
    from scaleproof.cli.show import say
    from scaleproof.cli.tables import radius
    from scaleproof.contract import Finding
    from scaleproof.gate import Rules, gate

    against, max_drop, out = words["against"], words["max_drop"], words["out"]
    time = seconds(words["budget"])
    check_free(out)
    if preset(words["attacks"] or "").draws > 1:
        raise ValueError(
            f"a gate judges one draw, the suite {words['attacks']} is for many: give other --attacks"
        )
    base = None if against is None else read_baseline(against)
    if base is None and max_drop is not None:
        raise ValueError("--max-drop needs --against, a finished evaluation to compare with")
    rules = Rules(min_robust=words["min_robust"], max_drop=None if base is None else max_drop or 0.0)
    job = prepare("gate", Request.of(filled(words, base)), {})
    if base is not None:
        check_images(base, job.dataset)
    found = gate(
        job.loaded.classifier,
        job.dataset,
        job.attacks,
        rules,
        baseline=base,
        budget=time,
        seed=job.seed,
        batch_size=job.batch_size,
        speed=job.speed,
    )
    beside = None if against is None else str(against)
    subject: dict[str, Any] = {**job.subject(None), "budget": time, "against": beside}
    told, console = sentences(found, radius(subject["threat"])), Console()
    if words["checks"] and found.decision == "pass":
        told.append(announcement(job))
        say(console, told)
        write(replace(found, findings=(*found.findings, Finding(**UNEXAMINED))), subject, out)
        invariant = any(attack.scale_invariant for attack in job.attacks)
        found, told = found.examined(job.examined(invariant=invariant, cut=CUT)), []
    write(found, subject, out)
    say(console, [*told, *conclusion(found)])
    return CODES[found.decision]


def announcement(job: Job) -> str:
    """That the checks come, outside of the budget, and how long they may take."""
    from scaleproof.checks import longest

    most = longest(job.loaded.classifier, job.dataset, job.threat, count=job.examined_images)
    return (
        f"These attacks let it pass. The checks of the model come now, on {plural(job.examined_images, 'image')}: they "
        f"are not part of the budget, and take at most about {duration(most)} here (--no-checks leaves them out)."
    )


def duration(seconds: float) -> str:
    """A time in words: not finer than anybody can foresee it."""
    return f"{max(1, round(seconds))} s" if seconds < 100 else f"{round(seconds / 60)} minutes"


def check_free(out: Path | None) -> None:
    """Refuse to write over a result; one that was cut before it was examined is no result."""
    if out is None or not out.exists():
        return
    try:
        document = read_json(out)
        cut = document["schema"] == SCHEMA and UNEXAMINED in document["findings"]
    except (ValueError, KeyError, TypeError):
        cut = False
    if not cut:
        raise ValueError(f"{out} exists: give another --out")


def seconds(text: str) -> float:
    """A time such as 90s, 5m or 1h in seconds."""
    digits, unit = (text[:-1], text[-1:]) if text[-1:] in UNITS else (text, "s")
    try:
        found = float(digits) * UNITS[unit]
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise ValueError(f"--budget must be a time above 0 such as 90s, 5m or 1h, got {text!r}")
    return found


def filled(words: dict[str, Any], base: Baseline | None) -> dict[str, Any]:
    """The words of the command; what was left out as in the run to compare with, or as usual."""
    from scaleproof.attacks import preset

    usual = dict(USUAL)
    if base is not None:
        threat, settings = base.document["threat"], list(base.attacks.values())
        usual |= {"attacks": ",".join(base.attacks), "norm": threat["norm"], "eps": repr(threat["eps"])}
        plain = [one for one in settings if one.get("attack") == "pgd" and one.get("steps", 1) > 1]
        usual |= {name: plain[0][name] for name in ("steps", "restarts") if plain}
    asked = {name: value for name, value in words.items() if value is not None or name not in usual}
    asked = {**usual, **asked}
    if asked["precision"] == "auto":
        asked["precision"] = preset(asked["attacks"]).precision
    return asked


def write(found: Gate, subject: dict[str, Any], out: Path | None) -> None:
    """The result as JSON, where it was asked for."""
    from scaleproof.store import write_json

    if out is not None:
        write_json(out, {"schema": SCHEMA, **subject, **found.as_json()})


def sentences(found: Gate, radius: str) -> list[str]:
    """What was looked at and what the attacks found."""
    sample = found.sample
    said = [f"Clean accuracy {clean(found)}% of {sample.count} images."]
    notes = [f"{finding.severity}: {finding.meaning}." for finding in found.findings]
    if unattacked(found):
        return said + notes
    said.append(
        f"Looked at {sample.seen} of {sample.count} images in {found.seconds:.0f} s, with all of: "
        f"{', '.join(found.attacks)}; {radius}."
    )
    if sample.bound is not None:
        low, high = (points(end, sample.seen) for end in sample.interval())
        about, ends = "about ", f"95% interval {low} to {high}"
        if sample.complete:
            about, ends = "", "all were seen"
        most = f"{about}{points(sample.bound, sample.seen)}% ({ends})"
        said.append(f"Robust accuracy of the {sample.count} images is at most {most}.")
    if found.comparison is not None:
        pairs = found.comparison
        low, high = (points(end, pairs.count) for end in pairs.interval())
        drop = points(pairs.drop, pairs.count) if pairs.count else "-"
        said.append(
            f"Drop {drop} points on {pairs.count} images (95% interval {low} to {high}): {pairs.lost} lost, "
            f"{pairs.won} won, McNemar p = {pairs.p_value:.3g}."
        )
    return said + notes


def points(share: float, count: int) -> str:
    """A share in percent, with a second decimal only where it rests on a thousand images."""
    return f"{100 * share:.{1 if count < 1000 else 2}f}"


def clean(found: Gate) -> str:
    """Clean accuracy in percent."""
    return points(found.sample.correct / found.sample.count, found.sample.count)


def unattacked(found: Gate) -> bool:
    """Whether a model failed before any attack, by its clean accuracy."""
    return found.decision == "fail" and found.sample.seen == 0


def conclusion(found: Gate) -> list[str]:
    """The checks that failed, the decision, and what it means."""
    bad = [check for check in found.checks or () if check.passed is False]
    said = [f"check failed, {check.label}: {check.meaning} {check.advice}" for check in bad]
    return [*said, f"{found.decision.upper()}: {meaning(found)}"]


def meaning(found: Gate) -> str:
    """The decision in words that do not claim more than was seen."""
    rules = found.rules
    limits = [] if rules.min_robust is None else [f"robust accuracy of at least {rules.min_robust:g}%"]
    limits += [] if rules.max_drop is None else [f"a drop of at most {counted(rules.max_drop, 'point')}"]
    required = f"{' and '.join(limits)} {'was' if len(limits) == 1 else 'were'} required"
    if unattacked(found):
        return f"clean accuracy ({clean(found)}%) is already below {rules.min_robust:g}%: no attack was run."
    if found.decision == "pass":
        return (
            f"{required}; these attacks do not show otherwise. "
            "Robust accuracy is an upper bound: stronger attacks may."
        )
    if found.decision == "fail":
        return f"{required}; these attacks show otherwise."
    if any(check.passed is False for check in found.checks or ()):
        return f"{required}; attacks do not show otherwise, but the number is not reliable: see the checks."
    more = "more images" if found.sample.complete else "a larger --budget or fewer attacks"
    return f"{required}; what was seen is too little to say. Give {more}."
