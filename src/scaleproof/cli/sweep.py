"""`scaleproof sweep` and `scaleproof demo`: verdicts against the scale of the logits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scaleproof.cli import options

if TYPE_CHECKING:
    from scaleproof.analysis import Sweep
    from scaleproof.cli.setup import Job

DEMO_IMAGES = 256


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
    norm: options.Norm = "linf",
    eps: options.Eps = None,
    step_size: options.StepSize = None,
    alphas: Annotated[
        str, typer.Option(help="Scales, with commas between.")
    ] = "1e-3,1e-2,1e-1,1,1e1,1e2,1e3",
    seed: options.Seed = 0,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    compile: options.Compile = False,
    allow_train_mode: options.AllowTrainMode = False,
    report: options.Report = True,
    out: options.Out = None,
) -> None:
    """Multiply a model's logits by alpha and watch each attack's verdict: the paper's Figure 1."""
    words = {**locals(), "restarts": None}
    from scaleproof.analysis import checked_alphas
    from scaleproof.cli.headless import by_default
    from scaleproof.cli.setup import Request, prepare

    scales = [options.number(part, "alphas") for part in alphas.split(",")]
    checked_alphas(scales)
    usual = by_default(context, "attacks")
    job = prepare("scale-sweep", Request.of(words), {"alphas": scales}, usual=usual)
    run(job, scales, allow_train_mode, report)


def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("demo-report"),
    device: options.Device = "auto",
) -> None:
    """The paper's first figure from an embedded robust network and 256 real images, in a minute or two."""
    from rich.console import Console

    Console().print(
        f"An adversarially trained network, {DEMO_IMAGES} CIFAR-10 test images, four attacks at seven logit scales."
    )
    command(context, "demo", limit=DEMO_IMAGES, device=device, out=out)
    Console().print(
        "\nNext:\n"
        "  scaleproof evaluate demo --attacks paper --limit 200    robust accuracy with all its evidence\n"
        "  scaleproof evaluate my_package.my_module:build_model    your own model (a function that returns it)\n"
        "  scaleproof data get cifar10                             all 10,000 test images\n",
        markup=False,
        soft_wrap=True,
    )


def run(job: Job, alphas: list[float], allow_train_mode: bool, report: bool) -> None:
    """Sweep, unless the same run is finished; then show what is in the folder."""
    from scaleproof.analysis import scale_sweep
    from scaleproof.cli.live import live_bar
    from scaleproof.cli.show import show

    store = job.claim()
    if not job.finished():
        with live_bar() as progress:
            sweep = scale_sweep(
                job.loaded.classifier,
                job.dataset,
                job.attacks,
                alphas=alphas,
                seed=job.seed,
                batch_size=job.batch_size,
                speed=job.speed,
                store=store,
                progress=progress,
                allow_train_mode=allow_train_mode,
            )
        write(job, sweep)
    show(job.folder, report=report)


def write(job: Job, sweep: Sweep) -> None:
    from scaleproof.store import close_run, write_json

    write_json(
        job.folder / "sweep.json",
        {"schema": "scaleproof.sweep/1", **job.subject(sweep.head), **sweep.as_json()},
    )
    close_run(job.folder, job.run_json(sweep.seconds))
