"""What a person sees at the end of a run, be it fresh or finished long ago."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scaleproof.files import read_json

if TYPE_CHECKING:
    from rich.console import Console


def say(console: Console, sentences: Iterable[str]) -> None:
    """Print sentences as they are, each on lines that the terminal alone breaks."""
    for sentence in sentences:
        console.print(sentence, soft_wrap=True, markup=False, highlight=False)


def show(folder: Path, *, report: bool = True) -> None:
    """Print the table and the remarks of a finished run folder, and render its report."""
    from rich.console import Console

    from scaleproof.cli import tables

    console, page = Console(), rendered(folder, report)
    if (folder / "evaluation.json").exists():
        document = read_json(folder / "evaluation.json")
        table, remarks = tables.evaluation_table(document), tables.evaluation_remarks(document)
    else:
        document = read_json(folder / "sweep.json")
        table, remarks = tables.sweep_table(document), tables.sweep_remarks(document)
    console.print(table)
    say(console, [*remarks, page])


def show_accuracies(folder: Path, console: Console, count: int) -> None:
    """What the attacks of an evaluation found, for people who wait for its checks on so many images."""
    from scaleproof.cli import tables

    document = read_json(folder / "evaluation.json")
    doubt = (
        tables.check_remarks(document) if "checks" in document else ["Not examined yet: is the number real?"]
    )
    going = (
        f"The checks are under way, on {count} images; if they are cut, the same command goes on with them."
    )
    say(console, [tables.accuracies(document), *doubt, going])


def rendered(folder: Path, report: bool) -> str:
    """Render the report now, or say how to; either way where it is."""
    from scaleproof.report import render

    return f"Report: {render(folder)[0]}" if report else f"Report: scaleproof report {folder}"


def show_training(folders: Sequence[Path], *, report: bool = True) -> None:
    """Print the results of finished trainings, and render their reports; of several also what they give together."""
    from rich.console import Console

    from scaleproof.cli import seeds, tables

    console = Console()
    documents = [read_json(folder / "training.json") for folder in folders]
    for folder, document in zip(folders, documents, strict=True):
        page = rendered(folder, report)
        console.print(
            tables.training_table(document, f"seed {seeds.seed_of(folder)}" if len(documents) > 1 else "")
        )
        say(console, [*tables.training_remarks(document), page])
    if len(documents) > 1:
        together = seeds.summary(folders, documents)
        console.print(seeds.seeds_table(together))
        written = " and ".join(map(str, seeds.write(folders, together)))
        say(console, [*seeds.remarks(together), f"Means: {written}"])
