"""`scaleproof analyse`: losses, cosines and classes of a model, in a run folder or beside an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scaleproof.cli import options
from scaleproof.files import read_json

if TYPE_CHECKING:
    from rich.table import Table

    from scaleproof.analysis import Analysis, Classes, Plan
    from scaleproof.cli.setup import Job
    from scaleproof.store import UnitStore

UNFINISHED = "analysis-unfinished"  # what only a resume needs, beside an evaluation
ALL_PARTS = "surfaces,weights,cosines,eps,steps,classes"


def command(
    model: options.Model,
    data: options.OwnData = None,
    data_folder: options.DataFolder = None,
    split: options.Split = "test",
    limit: options.Limit = None,
    arch: options.Arch = None,
    head: options.Head = None,
    parts: Annotated[str, typer.Option(help="Some of these, with commas between.")] = ALL_PARTS,
    directions: Annotated[int, typer.Option(help="Random directions of the part `weights`.")] = 1,
    norm: options.Norm = "linf",
    eps: options.Eps = None,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    compile: options.Compile = False,
    allow_train_mode: options.AllowTrainMode = False,
    report: options.Report = True,
    out: options.Out = None,
    into: Annotated[
        Path | None,
        typer.Option(
            help="A finished evaluation of the same model and data: the analysis joins its page.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Loss surfaces, weight loss surface, cosines, accuracy against eps and steps, and which class becomes which."""
    words = {**locals(), "attacks": "pgd", "steps": None, "restarts": None, "step_size": None}
    from scaleproof.analysis import Plan, WeightPlan
    from scaleproof.cli.setup import Request, prepare

    if out is not None and into is not None:
        raise ValueError("give --out for a folder of its own or --into for an evaluation's, not both")
    chosen = tuple(part.strip() for part in parts.split(","))
    plan = Plan(parts=chosen, weights=WeightPlan(directions=directions))
    host = None if into is None else Host.read(into)
    words["out"] = out if host is None else host.folder
    beside = {} if host is None else {"into": host.settings_sha256}
    job = prepare("analysis", Request.of(words), {"plan": plan.as_json(), **beside})
    if host is None:
        run(job, plan, allow_train_mode, report)
    else:
        run_into(job, plan, allow_train_mode, host, report)


@dataclass(frozen=True, kw_only=True)
class Host:
    """A finished evaluation that an analysis is to join."""

    folder: Path
    settings_sha256: str
    evaluation: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Host:
        """Read what an analysis must agree with, or say that there is nothing to join."""
        try:
            record = read_json(folder / "run.json")
            evaluation = read_json(folder / "evaluation.json")
        except FileNotFoundError as error:
            name = Path(str(error.filename)).name
            raise ValueError(
                f"--into must be the folder of a finished evaluation, {folder} has no {name}"
            ) from None
        return cls(folder=folder, settings_sha256=record["settings_sha256"], evaluation=evaluation)

    def check(self, job: Job) -> None:
        """Refuse an analysis of another model, other data or another threat."""
        found, own = self.evaluation, job.subject(None)
        pairs = [
            ("weights", found["model"]["weights_sha256"], job.loaded.sha256),
            (
                "data",
                f"{found['data']['name']}/{found['data']['split']}",
                f"{job.dataset.name}/{job.dataset.split}",
            ),
            ("threat", found["threat"], own["threat"]),
        ]
        wrong = "; ".join(
            f"its {name}: {theirs}, here: {ours}" for name, theirs, ours in pairs if theirs != ours
        )
        if wrong:
            raise ValueError(
                f"{self.folder} is an evaluation of something else ({wrong}): give --out instead"
            )

    def finished(self, job: Job) -> bool:
        """Whether the same analysis is there already; another one is never overwritten."""
        from scaleproof.store import changes

        path = self.folder / "analysis.json"
        if not path.exists():
            return False
        before = read_json(path)["run"]
        other = changes(before, job.settings)
        if other:
            raise ValueError(
                f"{self.folder} holds another analysis ({other}): remove its "
                "analysis.json and analysis.npz first, or give --out instead"
            )
        typer.echo(f"{self.folder} holds this analysis already.")
        return True

    def classes(self) -> Classes | None:
        """Which class becomes which by the evaluation's own verdicts, where they are kept."""
        from scaleproof.analysis import classes_of_verdicts
        from scaleproof.store import read_arrays

        arrays = read_arrays(self.folder / "verdicts.npz")
        if arrays is None:
            return None
        names = [attack["name"] for attack in self.evaluation["attacks"]]
        seen = ("labels", "clean_prediction", *(f"prediction__{name}" for name in names))
        count = max(len(self.evaluation["data"]["classes"]), *(1 + int(arrays[name].max()) for name in seen))
        counted = classes_of_verdicts(arrays, names, count, "verdicts of the evaluation")
        return replace(counted, attacks=tuple(attack["label"] for attack in self.evaluation["attacks"]))


def run(job: Job, plan: Plan, allow_train_mode: bool, report: bool) -> None:
    """Analyse into a folder of its own, unless the same run is finished; then show what is there."""
    from scaleproof.store import close_run

    store = job.claim()
    if not job.finished():
        analysis = work(job, plan, allow_train_mode, store, None)
        record = job.run_json(analysis.seconds)
        write(job, analysis, record)
        close_run(job.folder, record)
    show(job.folder, report)


def run_into(job: Job, plan: Plan, allow_train_mode: bool, host: Host, report: bool) -> None:
    """Analyse beside a finished evaluation; its own files stay as they are, its page is rendered again."""
    import shutil

    from scaleproof.store import open_run

    host.check(job)
    if not host.finished(job):
        store = open_run(host.folder / UNFINISHED, job.settings)
        classes = host.classes() if "classes" in plan.parts else None
        analysis = work(job, plan, allow_train_mode, store, classes)
        write(job, analysis, job.run_json(analysis.seconds))
        shutil.rmtree(host.folder / UNFINISHED, ignore_errors=True)
    show(job.folder, report)


def work(job: Job, plan: Plan, allow_train_mode: bool, store: UnitStore, classes: Classes | None) -> Analysis:
    """All parts of the plan, with a bar."""
    from scaleproof.analysis import analyse
    from scaleproof.cli.live import live_bar

    with live_bar(robust=False) as progress:
        return analyse(
            job.loaded.classifier,
            job.dataset,
            plan,
            threat=job.threat,
            seed=job.seed,
            batch_size=job.batch_size,
            speed=job.speed,
            store=store,
            progress=progress,
            allow_train_mode=allow_train_mode,
            classes=classes,
        )


def write(job: Job, analysis: Analysis, record: dict[str, object]) -> None:
    """The arrays first: analysis.json makes an analysis finished."""
    from scaleproof.store import write_arrays, write_json

    write_arrays(job.folder / "analysis.npz", analysis.arrays())
    document = {
        "schema": "scaleproof.analysis/1",
        **job.subject(analysis.head),
        "run": record,
        **analysis.as_json(),
    }
    write_json(job.folder / "analysis.json", document)


def show(folder: Path, report: bool) -> None:
    """Print the curves of an analysis and its notes, and render the report."""
    from rich.console import Console

    from scaleproof.cli.show import rendered, say

    console, page = Console(), rendered(folder, report)
    document = read_json(folder / "analysis.json")
    if "eps" in document["parts"]:
        console.print(eps_table(document))
    done = f"Parts: {', '.join(document['parts'])}; n = {document['count']}."
    notes = [f"note: {note}." for note in document["notes"]]
    say(console, [done, *notes, "Robust accuracy is an upper bound.", page])


def eps_table(document: dict[str, Any]) -> Table:
    """One row a budget, one column an attack."""
    from rich.table import Table

    from scaleproof.cli.tables import percent, radius

    part, norm = document["parts"]["eps"], document["threat"]["norm"]
    table = Table(title=f"Accuracy in % against eps, n = {document['count']}", title_justify="left")
    for name in ("eps", *(line["label"] for line in part["lines"])):
        table.add_column(name, justify="left" if name == "eps" else "right", no_wrap=True)
    table.add_row("clean", *[percent(part["clean"]) for _ in part["lines"]])
    for points in zip(*(line["points"] for line in part["lines"]), strict=True):
        at = points[0]["at"]
        name = "unbounded" if at == part["unbounded"] else radius({"norm": norm, "eps": at})
        table.add_row(name, *[percent(point["robust"]) for point in points])
    return table
