"""A live progress bar with the current robust accuracy; without a terminal, a line from time to time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from scaleproof.checks import Examining
    from scaleproof.progress import Progress as Step
    from scaleproof.train import Attacked, Plan, Watch
    from scaleproof.training import Progress as TrainStep

    WatchChecks = Callable[[Examining, Console], None]

GO_ON = "interrupted; finished work is kept: run the same command again to go on"
SECONDS_BETWEEN_LINES = 30.0  # where there is no terminal


@contextmanager
def live_bar(*, shown: bool = True, robust: bool = True) -> Iterator[Callable[[Step], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    bound = [TextColumn("robust so far at most {task.fields[robust]}")] if robust else []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        *bound,
        TimeRemainingColumn(),
    )
    with (
        stoppable(console),
        Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as bar,
    ):
        task = bar.add_task("loading", total=None, robust="-")
        told = time.monotonic()

        def show(step: Step) -> None:
            nonlocal told
            robust = f"{100 * step.unbroken / step.count:.1f}%"
            bar.update(task, description=step.label, completed=step.done, total=step.total, robust=robust)
            if shown and not console.is_terminal and time.monotonic() - told >= SECONDS_BETWEEN_LINES:
                told, share = time.monotonic(), 100 * step.done / max(step.total, 1)
                console.print(f"{step.label}: {share:.0f}% of the work done", soft_wrap=True)

        yield show


@contextmanager
def live_checks(watch: WatchChecks | None = None, cut: str = GO_ON) -> Iterator[Callable[[Examining], None]]:
    """Which check of a model is under way; without a terminal, a line from time to time."""
    from rich.console import Console

    console, told = Console(stderr=True), time.monotonic()
    with stoppable(console, cut), console.status("Examining the model: is the number real?") as status:

        def show(at: Examining) -> None:
            nonlocal told
            if watch is not None:
                watch(at, console)
            where = f"check {at.number} of {at.total}, {at.name.replace('-', ' ')}"
            where += f", {at.steps} steps taken" if at.steps else ""
            status.update(f"Examining the model: {where}")
            if not console.is_terminal and time.monotonic() - told >= SECONDS_BETWEEN_LINES:
                told = time.monotonic()
                console.print(f"Examining the model: {where}", soft_wrap=True, highlight=False)

        yield show


@contextmanager
def stoppable(console: Console, words: str = GO_ON) -> Iterator[None]:
    """Ctrl-C ends a run with a word on how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        console.print(words, soft_wrap=True)
        raise SystemExit(130) from None


def bars(console: Console, shown: bool) -> Progress:
    """Bars with time gone and time left, on a terminal alone."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[standing]}"),
    )
    return Progress(*columns, console=console, disable=not (shown and console.is_terminal))


@contextmanager
def training_bar(shown: bool, tensorboard: bool) -> Iterator[tuple[Watch, Attacked]]:
    """One bar a training, with time left, then for the attacks on its weights; without a terminal, a line for each."""
    from rich.console import Console

    console = Console(stderr=True)
    tasks: dict[Path, TaskID] = {}  # by run folder
    attacks: dict[tuple[Path, str], TaskID] = {}
    told: dict[Path, int] = {}
    curves = Curves() if tensorboard and shown else None
    with stoppable(console), bars(console, shown) as bar:

        def say(words: str, *, always: bool = False) -> None:
            if shown and (always or not console.is_terminal):
                console.print(words, soft_wrap=True)

        def watch(plan: Plan, step: TrainStep) -> None:
            if plan.folder not in tasks:
                tasks[plan.folder] = bar.add_task(plan.name, total=step.epochs * step.steps, standing="")
                told[plan.folder] = step.epoch - 1
                if told[plan.folder]:
                    say(
                        f"{called(plan)}: going on after epoch {told[plan.folder]} of {step.epochs}",
                        always=True,
                    )
            where = f"{called(plan)}, epoch {step.epoch} of {step.epochs}"
            done = (step.epoch - 1) * step.steps + step.step
            bar.update(
                tasks[plan.folder], description=where, completed=done, standing=standing(plan, step.last)
            )
            if step.last is not None and int(step.last["epoch"]) > told[plan.folder]:
                told[plan.folder] = int(step.last["epoch"])
                if curves is not None:
                    curves.write(plan, step.last)
                say(f"{called(plan)} epoch {told[plan.folder]}/{step.epochs}: {standing(plan, step.last)}")

        def attacked(plan: Plan, kind: str, step: Step) -> None:
            where = f"{called(plan)}, attacking the {kind} weights: {step.label}"
            if plan.folder not in told:
                told[plan.folder] = plan.config.epochs
                say(f"{called(plan)}: its epochs are done already, going on with the attacks", always=True)
            if (plan.folder, kind) not in attacks:
                attacks[plan.folder, kind] = bar.add_task(where, total=step.total, standing="")
                say(f"{called(plan)}: attacking the {kind} weights on {step.count} test images")
            bar.update(attacks[plan.folder, kind], description=where, completed=step.done, total=step.total)

        yield watch, attacked


def called(plan: Plan) -> str:
    """A training's name, with its seed where the folder says one."""
    seed = f"seed-{plan.config.seed}"
    return f"{plan.name} {seed}" if seed in plan.folder.name else plan.name


def standing(plan: Plan, last: Mapping[str, Any] | None) -> str:
    """The last epoch in a few words."""
    if last is None:
        return ""
    words = [f"loss {last['loss']:.3f}"]
    for name in ("validation", "test"):
        if name in last:
            found, probe = last[name], f"PGD-{plan.config.probe_steps}"
            words.append(f"{name} {found['clean']:.1f} clean, {found['pgd']:.1f} {probe}")
    return ", ".join([*words, f"{last['seconds']:.1f} s"])


class Curves:
    """Scalars of every epoch for TensorBoard, in a folder `tensorboard` beside the run's files."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError("--tensorboard needs the package tensorboard: pip install tensorboard") from None
        self.make: Any = SummaryWriter
        self.writers: dict[Path, Any] = {}

    def write(self, plan: Plan, record: Mapping[str, Any]) -> None:
        if plan.folder not in self.writers:
            self.writers[plan.folder] = self.make(str(plan.folder / "tensorboard"))
        for name, value in record.items():
            parts = value if isinstance(value, Mapping) else {"": value}
            for part, number in parts.items():
                if isinstance(number, int | float):
                    self.writers[plan.folder].add_scalar(
                        f"{name}/{part}".rstrip("/"), number, record["epoch"]
                    )
        self.writers[plan.folder].flush()
