"""`scaleproof evaluate`: a model's robust accuracy, with a run folder behind it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from scaleproof.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from scaleproof.checks import Check, Examining
    from scaleproof.cli.setup import Job
    from scaleproof.evaluation import Evaluation
    from scaleproof.evaluator import Mode as EvaluatorMode
    from scaleproof.store import UnitStore

PATIENCE = 5.0  # seconds of checks, after which people are shown what the attacks found
UNEXAMINED = (
    "the checks of the model had not ended when this was written, so that nobody knows whether the number is real: the "
    "same command goes on with them"
)

Mode = Annotated[
    str | None,
    typer.Option(
        help="independent (the paper's columns) or cascade (fast; what standard and blackbox mean).",
        show_default=False,
    ),
]
Draws = Annotated[
    int | None,
    typer.Option(
        help="For randomised models: draws behind each gradient and verdict (suite rand: 20).",
        show_default=False,
    ),
]
ExamineToo = Annotated[
    bool,
    typer.Option(
        help="Examine the model too: is the number real? On up to 64 images, however many there are: seconds for a "
        "small network, minutes for a ResNet-18 on a CPU."
    ),
]
KeepExamples = Annotated[
    bool,
    typer.Option(
        "--keep-examples", help="Keep an adversarial example of each broken image: for scaleproof verify."
    ),
]


def command(
    context: typer.Context,
    model: options.Model,
    data: options.OwnData = None,
    data_folder: options.DataFolder = None,
    split: options.Split = "test",
    limit: options.Limit = None,
    arch: options.Arch = None,
    head: options.Head = None,
    attacks: options.Attacks = "paper",
    steps: options.Steps = None,
    restarts: options.Restarts = None,
    norm: options.Norm = "linf",
    eps: options.Eps = None,
    step_size: options.StepSize = None,
    mode: Mode = None,
    draws: Draws = None,
    checks: ExamineToo = True,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    compile: options.Compile = False,
    allow_train_mode: options.AllowTrainMode = False,
    report: options.Report = True,
    out: options.Out = None,
    keep_examples: KeepExamples = False,
) -> None:
    """Attack a model and report its robust accuracy, an upper bound, with the verdict on every image."""
    words = locals()
    from scaleproof.attacks import preset
    from scaleproof.cli.headless import by_default
    from scaleproof.cli.setup import Request, prepare
    from scaleproof.evaluator import checked_mode

    usual = preset(attacks)
    mode = mode or usual.mode
    checked_mode(mode)
    if precision == "auto":
        words["precision"] = usual.precision
    draws = usual.draws if draws is None else draws
    if keep_examples and draws > 1:
        raise ValueError(f"--keep-examples needs a model that answers alike each time, got {draws} draws")
    kept = {"keep_examples": True} if keep_examples else {}
    extra = {"mode": mode, "draws": draws, "checks": checks, **kept}
    job = prepare("evaluation", Request.of(words), extra, usual=by_default(context, "attacks"))
    run(job, mode, allow_train_mode, draws, checks=checks, keep_examples=keep_examples, report=report)


def run(
    job: Job,
    mode: str,
    allow_train_mode: bool,
    draws: int,
    *,
    checks: bool,
    keep_examples: bool = False,
    report: bool = True,
) -> None:
    """Evaluate, unless the same run is finished; then show what is in the folder."""
    from scaleproof.cli.live import live_bar
    from scaleproof.cli.show import show
    from scaleproof.evaluator import evaluate
    from scaleproof.parallel import joined

    with joined(job.device) as group:
        store = job.claim(group)
        if not job.finished(quiet=not group.writes):
            with live_bar(shown=group.writes) as progress:
                settings: dict[str, Any] = {
                    "seed": job.seed,
                    "batch_size": job.batch_size,
                    "speed": job.speed,
                    "store": store,
                    "progress": progress,
                    "allow_train_mode": allow_train_mode,
                    "group": group,
                    "draws": draws,
                    "keep_examples": keep_examples,
                }
                subject = (job.loaded.classifier, job.dataset, job.attacks)
                evaluation = evaluate(*subject, mode=cast("EvaluatorMode", mode), **settings)
                evaluation = with_notes(evaluation, job.loaded.notes)
                group.wait()  # the writer clears away what the others still read
            if group.writes:
                write(job, examined(job, evaluation, store) if checks else evaluation)
        if group.writes:
            show(job.folder, report=report)


def with_notes(evaluation: Evaluation, notes: tuple[str, ...]) -> Evaluation:
    """What was taken for granted when the model was loaded belongs to its number."""
    from scaleproof.contract import Finding

    found = tuple(Finding(name="model", severity="note", meaning=note) for note in notes)
    return replace(evaluation, findings=(*evaluation.findings, *found))


def examined(job: Job, evaluation: Evaluation, store: UnitStore) -> Evaluation:
    """The evaluation with every check of its model; what is known before them is written, and shown to who waits."""
    from scaleproof.cli.show import show_accuracies
    from scaleproof.contract import Finding

    doubt = Finding(name="not-examined", severity="warning", meaning=UNEXAMINED)
    before = replace(evaluation, findings=(*evaluation.findings, doubt))
    known: list[tuple[Check, ...]] = []  # what had failed at the last writing
    began, shown = time.monotonic(), False

    def watch(at: Examining, console: Console) -> None:
        nonlocal shown
        if not known or known[-1] != at.failed:
            keep(job, replace(before, checks=at.failed or None))
            known.append(at.failed)
        if not shown and time.monotonic() - began >= PATIENCE:
            show_accuracies(job.folder, console, job.examined_images)
            shown = True

    invariant = any(result.scale_invariant for result in evaluation.attacks)
    checks = job.examined(draws=evaluation.draws, invariant=invariant, store=store, watch=watch)
    return replace(evaluation, checks=checks)


def named(subject: dict[str, Any], evaluation: Evaluation) -> dict[str, Any]:
    """The subject, with a name for every class that the model answered: it may know more than the data set."""
    answers = [evaluation.clean_prediction, *(one.verdicts["prediction"] for one in evaluation.attacks)]
    last = max(int(found.max()) for found in answers if found.size)
    names = [*subject["data"]["classes"]]
    names += [f"class {number}" for number in range(len(names), last + 1)]
    return {**subject, "data": {**subject["data"], "classes": names}}


def keep(job: Job, evaluation: Evaluation) -> None:
    """The numbers and verdicts of the run folder, which do not make it finished."""
    from scaleproof.store import write_arrays, write_json

    document = {
        "schema": "scaleproof.evaluation/1",
        **named(job.subject(evaluation.head), evaluation),
        **evaluation.as_json(),
        **({"examples": evaluation.examples.save(job.folder)} if evaluation.examples else {}),
    }
    write_json(job.folder / "evaluation.json", document)
    write_arrays(job.folder / "verdicts.npz", evaluation.arrays())


def write(job: Job, evaluation: Evaluation) -> None:
    """The run folder; `run.json` comes last and makes it finished."""
    from scaleproof.gallery import gallery
    from scaleproof.store import close_run, write_arrays

    keep(job, evaluation)
    pictures = gallery(
        job.loaded.classifier, job.dataset, job.attacks, evaluation, seed=job.seed, speed=job.speed
    )
    if pictures is not None:
        write_arrays(job.folder / "gallery.npz", pictures)
    close_run(job.folder, job.run_json(evaluation.seconds))
