"""`scaleproof verify`: a stored evaluation judged again from the examples it kept."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scaleproof.cli import options
from scaleproof.files import read_json

if TYPE_CHECKING:
    from rich.table import Table

    from scaleproof.evaluation import Share
    from scaleproof.verify import Flip, Verification

LISTED = 20  # images that are named; the rest is counted


def command(
    folder: Annotated[Path, typer.Argument(help="A finished run of evaluate --keep-examples.")],
    model: Annotated[
        str | None,
        typer.Option(help="The model, where the run's own name for it leads nowhere.", show_default=False),
    ] = None,
    arch: options.Arch = None,
    data: Annotated[
        str | None,
        typer.Option(help="The images, where the run's own name for them leads nowhere.", show_default=False),
    ] = None,
    data_folder: options.DataFolder = None,
    device: options.Device = "auto",
) -> None:
    """Judge a run's adversarial examples again: exit code 0 when its claims hold, 1 when they do not."""
    from rich.console import Console

    from scaleproof.cli.setup import checked_device
    from scaleproof.cli.show import say
    from scaleproof.verify import verify

    found = verify(
        folder,
        model=model,
        data=data,
        architecture=arch,
        data_folder=data_folder,
        device=checked_device(device),
    )
    console = Console()
    console.print(shares_table(found))
    for table in [checks_table(found), *([flips_table(found)] if found.flips else [])]:
        console.print(table)
    say(console, [*remarks(found), *own_doubt(folder)])
    raise typer.Exit(0 if found.confirmed else 1)


def own_doubt(folder: Path) -> list[str]:
    """What the run's own checks said: a number can be counted right and still not be reliable."""
    document = read_json(folder / "evaluation.json")
    bad = [check["label"] for check in document.get("checks") or () if check["passed"] is False]
    if bad:
        return [f"UNRELIABLE by the run's own checks: {'; '.join(bad)}."]
    return [] if document.get("checks") else ["The run's model was not examined."]


def shares_table(found: Verification) -> Table:
    """What is claimed and what the recount gives."""
    from rich.table import Table

    table = Table(title=f"Accuracy in %, n = {found.claimed_clean.count}", title_justify="left")
    for name in ("", "claimed", "recounted", "images that differ"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    pairs: list[tuple[str, Share, Share | None, str]] = [
        ("clean", found.claimed_clean, found.clean, "clean"),
        ("robust, worst case", found.claimed_robust, found.robust, "example"),
    ]
    for name, claimed, recounted, kind in pairs:
        flips = sum(flip.on == kind for flip in found.flips)
        differ = str(max(flips, abs(claimed.correct - recounted.correct))) if recounted else ""
        table.add_row(name, percent(claimed), percent(recounted) if recounted else "not judged", differ)
    return table


def percent(share: Share) -> str:
    return f"{100 * share.accuracy:.2f} ({share.correct})"


def checks_table(found: Verification) -> Table:
    from rich.table import Table

    table = Table(title="Checks", title_justify="left")
    for name in ("", "result", "what was seen"):
        table.add_column(name, overflow="fold")
    for check in found.checks:
        table.add_row(check.name, "ok" if check.passed else "NOT OK", check.seen)
    return table


def flips_table(found: Verification) -> Table:
    """Images on which the recount differs, those that rounding does not explain first."""
    from rich.table import Table

    against = set(found.contradictions)
    ordered = sorted(found.flips, key=lambda flip: (flip not in against, flip.row))
    table = Table(title="Images that differ", title_justify="left")
    for name in ("image", "on", "claimed", "now", "margin", "margin then", ""):
        right = "margin" in name or name == "image"
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for flip in ordered[:LISTED]:
        table.add_row(*flip_row(flip, "contradicts" if flip in against else "numerics"))
    if len(ordered) > LISTED:
        table.add_row("...", f"{len(ordered) - LISTED} more", *[""] * 5)
    return table


def flip_row(flip: Flip, cause: str) -> list[str]:
    before = "-" if math.isnan(flip.claimed_margin) else f"{flip.claimed_margin:.3g}"
    return [str(flip.row), flip.on, flip.claimed, flip.recounted, f"{flip.margin:.3g}", before, cause]


def remarks(found: Verification) -> list[str]:
    """The verdict, and what it does and does not mean."""
    from scaleproof.verify import TOLERANCE

    said: list[str] = []
    numerical = len(found.flips) - len(found.contradictions)
    if found.flips:
        said.append(
            f"{numerical} images differ by numerics (margins at most {TOLERANCE:g} of the largest logit), "
            f"{len(found.contradictions)} contradict the claim."
        )
    if found.robust is not None:
        said.append(f"Margins moved by at most {found.largest_shift:.1e} of the largest logit.")
    if not found.confirmed:
        return [*said, "NOT CONFIRMED: see the checks and the images above."]
    return [
        *said,
        "CONFIRMED: on these images the robust accuracy is at most what is claimed. "
        "Whether other attacks find more, this does not say.",
    ]
