"""`scaleproof compare`: several run folders side by side, on one page."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from scaleproof.report.tables import Table as ReportTable

WIDTH = 19  # of a name that leaves the numbers their room on 80 columns


def command(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Finished run folders, or folders of several seeds; the first is the measure."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page: .html, or .md for Markdown; compare.html, or compare-2.html, by default."
        ),
    ] = None,
) -> None:
    """Compare run folders with the first of them: differences, tests, agreement, curves; needs no torch."""
    from rich.console import Console

    from scaleproof.cli.show import say
    from scaleproof.report.compare import compare

    out = out or free_name(Path("compare.html"))
    (document, tables), console = compare(folders, out), Console()
    found = {section.identifier: section for section in document.sections}
    for shown in (*tables, *(found["scale"].tables if "scale" in found else ())):
        console.print(on_terminal(shown))
    said = found["differences"].paragraphs if "differences" in found else ()
    claim = f"{document.headline} ({document.detail})."
    say(console, filter(None, (claim, document.alarm, *document.meaning, *said, f"Page: {out}")))


def free_name(path: Path) -> Path:
    """The name itself, or the first of NAME-2, NAME-3, ... that no file has."""
    names = (path if number == 1 else path.with_stem(f"{path.stem}-{number}") for number in count(1))
    return next(name for name in names if not name.exists())


def on_terminal(table: ReportTable) -> Table:
    """A table of the report as one for a terminal; long names are broken so that numbers keep their room."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=table.caption, title_justify="left")
    for place, column in enumerate(table.columns):
        side: Literal["left", "right"] = "right" if column.numeric else "left"
        shown.add_column(Text(column.title), justify=side, no_wrap=place == 0, overflow="fold")
    for row in table.rows:
        name, *others = row.cells
        shown.add_row(*map(Text, (broken(name), *others)), style="bold" if row.strong else None)
    return shown


def broken(name: str) -> str:
    """A name on lines of at most WIDTH letters, broken after hyphens, slashes and spaces where it has any there."""
    lines = [""]
    for word in re.findall(rf"[^-/ ]{{1,{WIDTH - 1}}}[-/ ]?|[-/ ]", name):
        if lines[-1] and len((lines[-1] + word).rstrip()) > WIDTH:
            lines.append("")
        lines[-1] += word
    return "\n".join(line.rstrip() for line in lines)
