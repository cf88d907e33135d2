"""`scaleproof plan`: how many images a question needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

COUNTS = (100, 1000, 10_000)


def command(
    robust: Annotated[float, typer.Option(help="The robust accuracy that is expected, in percent.")] = 50.0,
    half_width: Annotated[
        float | None,
        typer.Option(help="Half the length of the interval that is wanted, in points.", show_default=False),
    ] = None,
    detect_drop: Annotated[
        float | None,
        typer.Option(help="A drop between two models that is to be found, in points.", show_default=False),
    ] = None,
    discordance: Annotated[
        float, typer.Option(help="Share of images on which the two models disagree, in percent.")
    ] = 5.0,
    power: Annotated[float, typer.Option(help="How surely the drop is to be found, in percent.")] = 80.0,
    confidence: Annotated[float, typer.Option(help="Of intervals and tests, in percent.")] = 95.0,
) -> None:
    """Say how many images an interval, or the search for a drop, needs; nothing is attacked."""
    from rich.console import Console

    from scaleproof.cli.show import say
    from scaleproof.planning import images_for_drop, images_for_half_width
    from scaleproof.report.words import counted

    said: list[str] = []
    if half_width is not None:
        count = images_for_half_width(robust / 100, half_width / 100, confidence / 100)
        said.append(
            f"{count} images give {robust:g}% ± {counted(half_width, 'point')} (Wilson, {confidence:g}% confidence)."
        )
    if detect_drop is not None:
        count = images_for_drop(detect_drop / 100, discordance / 100, confidence / 100, power / 100)
        said.append(
            f"{count} images, the same for both models, show a drop of {counted(detect_drop, 'point')} in "
            f"{power:g}% of all cases, when the models disagree on {discordance:g}% of them (exact McNemar "
            f"test, {confidence:g}%)."
        )
    if not said:
        said.append(
            "How many images an answer needs: give --half-width for an interval of so many points to either side, or "
            "--detect-drop for a drop of so many points between two models."
        )
    console = Console()
    console.print(interval_table(robust / 100, confidence / 100))
    say(console, said)


def interval_table(share: float, confidence: float) -> Table:
    """What the interval around this share would be for some numbers of images."""
    from rich.table import Table

    from scaleproof.planning import checked_share
    from scaleproof.statistics import two_sided_z, wilson

    checked_share("robust", share, least=0.0)
    table = Table(title=f"Intervals around {100 * share:g}%", title_justify="left")
    for name in ("images", f"{100 * confidence:g}% interval"):
        table.add_column(name, justify="right")
    for count in COUNTS:
        low, high = wilson(round(share * count), count, two_sided_z(confidence))
        table.add_row(str(count), f"{100 * low:.2f} to {100 * high:.2f}")
    return table
