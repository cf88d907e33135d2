"""The commands `scaleproof data ...`: list, get, import and compact image sets."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from scaleproof.data.locate import Found

app = typer.Typer(
    help="List, fetch and keep image sets. Images of your own need none of this: --data takes an .npz, or a folder "
    "with a subfolder of images for each class.",
    no_args_is_help=True,
)

Folder = Annotated[
    Path | None,
    typer.Option(help="The data folder; else SCALEPROOF_DATA, else the user's cache.", show_default=False),
]
Name = Annotated[str, typer.Argument(help="cifar10, cifar100 or svhn.")]


@app.command("list")
def list_sets(folder: Folder = None) -> None:
    """Show every known set, its size, and whether it is there."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from scaleproof.data.catalog import data_folder, names

    table = Table(title=escape(f"Image sets in {data_folder(folder)}"), title_justify="left")
    for column in ("name", "images", "pixels", "where"):
        table.add_column(
            column, overflow="fold", justify="right" if column in ("images", "pixels") else "left"
        )
    for name in names():
        table.add_row(*(escape(cell) for cell in _row(name, folder)))
    Console().print(table)


@app.command("get", short_help="Fetch a set from its home page; a cut download goes on.")
def get_set(name: Name, folder: Folder = None) -> None:
    """Fetch a set from its home page; a cut run is resumed by running again."""
    from scaleproof.data.catalog import data_folder, locations, remotes
    from scaleproof.data.download import fetch
    from scaleproof.data.locate import SPLITS

    wanted = remotes(name)
    if len(locations(name, folder)) == len(SPLITS):
        typer.echo(f"{name} is there already: {_places(name, folder)}")
        return
    for remote in wanted:
        with _bar(remote.file, of_bytes=True) as progress:
            path = fetch(remote, data_folder(folder) / name, progress)
        typer.echo(f"{path} is there and checked.")


@app.command("import", short_help="Verify a set on this machine; keep it as lossless mosaics.")
def import_set(
    source: Annotated[Path, typer.Argument(help="A folder, an archive or a MATLAB file that holds the set.")],
    name: Name,
    folder: Folder = None,
) -> None:
    """Verify a set that is on this machine and keep it as lossless mosaics."""
    from scaleproof.data.store import import_folder

    with _bar(name) as progress:
        target = import_folder(source, name, folder, progress)
    typer.echo(f"{name} is kept in {target}, verified.")


@app.command("compact", short_help="Write the small form of a set: 17 MB for 10,000 images.")
def compact_set(name: Name, folder: Folder = None) -> None:
    """Write the small form of a fetched set, 17 MB for 10,000 images; the fetched files stay."""
    from scaleproof.data.store import compact

    with _bar(name) as progress:
        target = compact(name, folder, progress)
    typer.echo(f"{name} is kept in {target}, verified. The files it was read from are no longer needed.")


def _row(name: str, folder: Path | None) -> tuple[str, str, str, str]:
    """Write one row of the table of sets."""
    from scaleproof.data.known import CLASS_COUNTS

    if name.startswith("sample"):
        return name, "1,000", "3 MB", "comes with scaleproof"
    counts = [sum(CLASS_COUNTS[name, split]) for split in ("train", "test")]
    return (
        name,
        " + ".join(f"{n:,}" for n in counts),
        f"{sum(counts) * 3072 // 10**6} MB",
        _places(name, folder),
    )


def _places(name: str, folder: Path | None) -> str:
    """Say where the splits of a set are, in words."""
    from scaleproof.data.catalog import locations

    found = locations(name, folder)
    if not found:
        return f"not there: scaleproof data get {name}"
    return "; ".join(sorted({_place(place, found) for place in found.values()}))


def _place(place: "Found", found: "dict[str, Found]") -> str:
    """Write a path, its form and the splits that it holds."""
    splits = [split for split, other in found.items() if (other.form, other.path) == (place.form, place.path)]
    return f"{place.path} ({place.form}, {' and '.join(splits)})"


@contextmanager
def _bar(title: str, *, of_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """Show what is done of how much, and the time left, on stderr where that is a terminal; of bytes also the speed."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    counts = (DownloadColumn(), TransferSpeedColumn()) if of_bytes else (MofNCompleteColumn(),)
    columns = (TextColumn("{task.description}"), BarColumn(), *counts, TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
