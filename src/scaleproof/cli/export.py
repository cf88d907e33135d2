"""`scaleproof export`: results in other people's forms."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Write results in other people's forms.", no_args_is_help=True)
Words = Annotated[str | None, typer.Option(show_default=False)]


@app.callback()
def group() -> None:
    """Write results in other people's forms."""


@app.command("robustbench")
def robustbench(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished evaluation.")],
    name: Annotated[str, typer.Option(help="RobustBench's name of the model, such as Me2026First.")],
    title: Annotated[str | None, typer.Option(help="Title of the paper.", show_default=False)] = None,
    authors: Words = None,
    link: Annotated[str | None, typer.Option(help="Where the paper is.", show_default=False)] = None,
    venue: Words = None,
    reported: Annotated[
        str | None, typer.Option(help="Robust accuracy in the paper, in percent.", show_default=False)
    ] = None,
    additional_data: Annotated[
        bool | None,
        typer.Option(
            "--additional-data/--no-additional-data", help="Trained with more data than the set has."
        ),
    ] = None,
    architecture: Words = None,
    footnote: Words = None,
    out: Annotated[Path, typer.Option(help="Where model_info/ and models/ go.")] = Path("robustbench"),
) -> None:
    """RobustBench's record and checkpoint of an evaluated model."""
    from scaleproof.export import Entry, export_robustbench

    entry = Entry(
        model=name,
        title=title,
        authors=authors,
        link=link,
        venue=venue,
        reported=reported,
        additional_data=additional_data,
        architecture=architecture,
        footnote=footnote,
    )
    paths, warnings = export_robustbench(folder, entry, out)
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    for path in paths:
        typer.echo(str(path))
