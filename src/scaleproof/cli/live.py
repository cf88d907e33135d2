"""A live progress bar with the current robust accuracy; silent where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaleproof.progress import Progress as Step


@contextmanager
def live_bar() -> Iterator[Callable[[Step], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("robust so far at most {task.fields[robust]}"),
        TimeRemainingColumn(),
    )
    try:
        with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("loading", total=None, robust="-")

            def show(step: Step) -> None:
                robust = f"{100 * step.unbroken / step.count:.1f}%"
                bar.update(task, description=step.label, completed=step.done, total=step.total, robust=robust)

            yield show
    except KeyboardInterrupt:
        console.print(
            "interrupted; finished work is kept: run the same command again to go on", soft_wrap=True
        )
        raise SystemExit(130) from None
