"""`scaleproof`: the commands, and how errors reach a person."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

import scaleproof
from scaleproof import __version__
from scaleproof.cli import (
    analyse,
    compare,
    data,
    evaluate,
    export,
    gate,
    museum,
    plan,
    reproduce,
    sweep,
    train,
    verify,
)

app = typer.Typer(
    help="Measure adversarial robustness honestly, and train for it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: two columns, where panels leave a description 24 letters in 80
    context_settings={"max_content_width": 110},
)
app.add_typer(data.app, name="data")
app.add_typer(export.app, name="export")
app.command("evaluate", short_help="Attack a model; report its robust accuracy, an upper bound.")(
    evaluate.command
)
app.command("train", short_help="Train a robust network; the same command resumes it.")(train.command)
app.command("sweep", short_help="Verdicts against the scale of a model's logits.")(sweep.command)
app.command("analyse", short_help="Loss surfaces, cosines, accuracy against eps and steps.")(analyse.command)
app.command("analyze", hidden=True)(analyse.command)
app.command("demo", short_help="The paper's first figure from an embedded robust network.")(sweep.demo)
app.command("museum", short_help="Tour of defenses that only look robust.")(museum.command)
app.command("verify", short_help="Judge a run's adversarial examples again.")(verify.command)
app.command("gate", short_help="Pass or fail a model, for continuous integration.")(gate.command)
app.command("plan", short_help="How many images an interval, or a drop, takes.")(plan.command)
app.command("reproduce", short_help="The paper's tables and figures, measured beside printed.")(
    reproduce.command
)


@app.command("report", short_help="Render a run folder again as HTML, Markdown and LaTeX.")
def report(
    folder: Annotated[Path, typer.Argument(help="A finished run folder, or a folder of several.")],
) -> None:
    """Render a run folder again as HTML, Markdown and LaTeX; needs no torch."""
    from scaleproof.report import render

    inside = (
        [] if (folder / "run.json").exists() else sorted(path.parent for path in folder.glob("*/run.json"))
    )
    for run in inside or [folder]:
        for path in render(run):
            typer.echo(str(path))


app.command("compare", short_help="Compare run folders: differences, intervals, tests.")(compare.command)


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if show:
        typer.echo(f"scaleproof {__version__}")
        raise typer.Exit()


def main() -> None:
    """Run a command; a user's mistake is one line and exit code 2, not a traceback."""
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # waiting threads leave the cores to others
    keep_freed_memory()
    before = warnings.showwarning
    warnings.showwarning = show_warning(before)
    try:
        app()
    except ValueError as error:
        fail(str(error))
    except OSError as error:
        fail(advice(error))
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        fail("the device ran out of memory: give a smaller --batch-size")
    finally:  # a process may run many commands
        warnings.showwarning = before


def keep_freed_memory() -> None:
    """Large buffers come from memory the process has already: asking the system for each takes time."""
    with suppress(OSError, AttributeError, TypeError):  # another libc than glibc
        set_option = ctypes.CDLL(None).mallopt
        for option, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 2**28)):
            set_option(option, value)


M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # of glibc's malloc.h


def advice(error: OSError) -> str:
    """What is wrong with which file or folder, and what to do about it."""
    place = None if error.filename is None else Path(str(error.filename))
    where = "" if place is None else f" at {place}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk is full{where}; finished work is kept: free some space and run the same command again"
        )
    if place is not None and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{place} may not be used ({error.strerror}): change its rights, or {ANOTHER}"
    blocks = file_among(place) if error.errno in (errno.ENOTDIR, errno.EEXIST) else None
    if blocks is not None:
        return f"{place} cannot be a folder, for {blocks} is a file: {ANOTHER}"
    return str(error)


ANOTHER = "give another path (--out, where it is the folder of the run)"


def file_among(place: Path | None) -> Path | None:
    """A path or the one above it that is a file where a folder was wanted."""
    candidates = [] if place is None else [place, *place.parents]
    return next((path for path in candidates if path.exists() and not path.is_dir()), None)


def show_warning(show: Callable[..., None]) -> Callable[..., None]:
    """Warnings of this package are notes, as those on results are; those of others stay as they were."""

    def note(message: Warning | str, category: type[Warning], filename: str, *rest: Any) -> None:
        if category is UserWarning and Path(filename).is_relative_to(PACKAGE):
            typer.echo(f"note: {message}", err=True)
        else:
            show(message, category, filename, *rest)

    return note


PACKAGE = Path(scaleproof.__file__).parent


def fail(message: str) -> None:
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, soft_wrap=True).print(
        Text("error: ", style="bold red") + Text(message, style="default")
    )
    sys.exit(2)
