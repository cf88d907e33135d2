"""`scaleproof compare`: several run folders side by side, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from scaleproof.report.tables import Table as ReportTable


def command(
    folders: Annotated[list[Path], typer.Argument(help="Finished run folders; the first is the measure.")],
    out: Annotated[Path, typer.Option(help="The page: .html, or .md for Markdown.")] = Path("compare.html"),
) -> None:
    """Compare run folders with the first of them: differences, tests, agreement, curves; needs no torch."""
    from rich.console import Console

    from scaleproof.report.compare import compare

    (document, table), console = compare(folders, out), Console()
    found = {section.identifier: section for section in document.sections}
    for shown in (table, *(found["scale"].tables if "scale" in found else ())):
        console.print(on_terminal(shown))
    said = found["differences"].paragraphs if "differences" in found else ()
    claim = f"{document.headline} ({document.detail})."
    for text in (claim, document.alarm, *document.meaning, *said, f"Page: {out}"):
        if text:
            console.print(text, soft_wrap=True, markup=False, highlight=False)


def on_terminal(table: ReportTable) -> Table:
    """A table of the report as one for a terminal."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=table.caption, title_justify="left")
    for column in table.columns:
        side: Literal["left", "right"] = "right" if column.numeric else "left"
        shown.add_column(Text(column.title), justify=side, no_wrap=not column.numeric, overflow="fold")
    for row in table.rows:
        shown.add_row(*map(Text, row.cells), style="bold" if row.strong else None)
    return shown
