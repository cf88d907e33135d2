"""`scaleproof reproduce`: the paper's tables and figures, trained, attacked and held against what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scaleproof.cli import options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from scaleproof.paper.reproduction import Reproduction
    from scaleproof.paper.runner import Failure
    from scaleproof.paper.scales import Scale
    from scaleproof.paper.steps import Chain, Place
    from scaleproof.paper.targets import Wanted

RESULT, PAGE = "reproduction.json", "reproduction.md"


def command(
    targets: Annotated[
        list[str] | None, typer.Argument(help="table-multi-step, fig-scale, ..., or all: see --list.")
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="Show every table and figure: claims, measured and missing.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    scale: Annotated[str, typer.Option(help="full, or small: a smoke test on a CPU in minutes.")] = "full",
    models: Annotated[
        str, typer.Option(help="Of the tables, only models like this: 'cifar10/resnet18/*'.")
    ] = "*",
    seeds: Annotated[str, typer.Option(help="Seeds, with commas between.")] = "0",
    epochs: Annotated[
        int | None, typer.Option(help="In place of each recipe's own; such numbers are marked.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="In place of the reading's recipe.")] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(help="A folder with published models, DATASET/THREAT/NAME.pt.", show_default=False),
    ] = None,
    data_folder: options.DataFolder = None,
    device: options.Device = "auto",
    jobs: Annotated[int, typer.Option(help="Models side by side on this machine.")] = 1,
    ray: Annotated[bool, typer.Option("--ray", help="Spread the models over a Ray cluster.")] = False,
    ray_address: Annotated[
        str | None, typer.Option(help="Of the cluster; else one that runs here, or a new one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Root of all run folders; runs/paper by default.", show_default=False)
    ] = None,
) -> None:
    """Train what is missing, attack what is missing, and print measured beside claimed; run it again to go on."""
    from rich.console import Console

    from scaleproof.paper.scales import scale as chosen_scale
    from scaleproof.paper.steps import Place
    from scaleproof.paper.targets import ALL, wanted

    size = chosen_scale(scale)
    root = out or Path("runs") / ("paper" if size.architecture is None else f"paper-{size.name}")
    if not targets and not show_list:
        raise ValueError(
            "say what to reproduce: table-multi-step, fig-scale, ..., or all; --list shows everything"
        )
    if size.architecture is not None and (epochs, recipe, checkpoints) != (None, None, None):
        raise ValueError(
            f"--scale {scale} has its own length and models: leave --epochs, --recipe and --checkpoints"
        )
    far = ray or ray_address is not None
    place = Place(
        root=root.absolute() if far else root,
        data_folder=data_folder.absolute() if far and data_folder else data_folder,
        checkpoints=checkpoints.absolute() if far and checkpoints else checkpoints,
        device=device,
        epochs=epochs,
        recipe=recipe,
    )
    choice, console = wanted(targets or [ALL], models), Console()
    if show_list:
        show_tables(console, choice, size, place)
        return
    chains = choice.chains(size, place, options.whole_numbers(seeds, "seeds"))
    show_plan(console, chains, size, place)
    if dry_run:
        return
    failures = lost_weights(chains)
    able = [chain for chain in chains if not chain.lost_weights]
    failures += run(able, jobs=jobs, address=ray_address, far=far, after=lambda: write(size, root))
    write(size, root)
    show_results(console, read_results(choice, size, place), drawn(choice, size, place), root)
    if failures:
        raise SystemExit(told(console, failures))


def run(
    chains: Sequence[Chain], *, jobs: int, address: str | None, far: bool, after: Callable[[], object]
) -> list[Failure]:
    """All chains with something left, here or on a cluster."""
    from scaleproof.paper.cluster import run_on_ray
    from scaleproof.paper.runner import Runner

    left = [chain for chain in chains if chain.missing]

    def ended(chain: Chain) -> None:
        after()

    if far:
        return run_on_ray(left, address=address, tell=typer.echo, after=ended)
    fresh = any(chain.scale.architecture is None for chain in left)
    return Runner(jobs=jobs, fresh=fresh, tell=typer.echo).run(left, ended)


def lost_weights(chains: Sequence[Chain]) -> list[Failure]:
    """Networks whose folders hold their results but no weights cannot be attacked again; the others can."""
    from scaleproof.paper.runner import Failure

    advice = "its training is finished but model.safetensors is gone: put it back, or give another --out"
    return [
        Failure(step=chain.missing[0], code=2, words=f"{chain.folder / 'train'}: {advice}")
        for chain in chains
        if chain.lost_weights
    ]


def read_results(choice: Wanted, size: Scale, place: Place) -> Reproduction:
    """What the folders say about a choice; of the variants that were asked for, if any."""
    from scaleproof.paper.claims import claims
    from scaleproof.paper.measured import measurements
    from scaleproof.paper.observed import observed
    from scaleproof.paper.reproduction import reproduction

    models, variants = choice.experiments(), variants_of(choice, size, place)
    found = measurements(place.root, models, variants)
    seen = observed(place.root, choice.figures, models, variants)
    return reproduction(choice.tables, claims(), found, scale=size.name, quantities=seen)


def variants_of(choice: Wanted, size: Scale, place: Place) -> dict[str, str]:
    """The folders to look at, by model, where they are not those that count by themselves."""
    from scaleproof.paper.steps import variant_of

    if size.architecture is None and place.epochs is None and place.recipe is None:
        return {}
    return {one.model: variant_of(one, size, place)[0] for one in choice.experiments()}


def drawn(choice: Wanted, size: Scale, place: Place) -> list[Path]:
    """Every figure that there is something to draw from, by the first seed."""
    from scaleproof.paper.figures import draw
    from scaleproof.paper.observed import figure_folders

    paths, variants = [], variants_of(choice, size, place)
    for figure in choice.figures:
        folders = figure_folders(place.root, figure, choice.experiments(), variants)
        if folders or figure.command is None:
            paths.append(draw(figure, next(iter(folders.values()), {}), place.root))
    return paths


def write(size: Scale, root: Path) -> None:
    """All that the folders say now, whatever was asked for, as JSON and as a page."""
    from scaleproof.files import write_atomically
    from scaleproof.paper.page import page
    from scaleproof.paper.steps import Place
    from scaleproof.paper.targets import ALL, wanted
    from scaleproof.store import write_json

    found = read_results(wanted([ALL]), size, Place(root=root))
    write_json(root / RESULT, found.as_json(root))
    title = "# The paper, measured\n\n" + (
        "" if size.architecture is None else f"{size.words.capitalize()}.\n\n"
    )
    write_atomically(root / PAGE, (title + page(found)).encode())


def show_tables(console: Console, choice: Wanted, size: Scale, place: Place) -> None:
    """Every table and figure: how many models, claims, what was measured, and what is missing."""
    from rich.table import Table as Grid

    from scaleproof.paper.observed import figure_folders

    found, variants = read_results(choice, size, place), variants_of(choice, size, place)
    grid = Grid(title=f"What there is to reproduce, and what is in {place.root}", title_justify="left")
    for name in ("name", "models", "numbers", "measured", "missing", "what"):
        grid.add_column(name, justify="left" if name in ("name", "what") else "right")
    for table in choice.tables:
        outcomes = found.of(table)
        measured = sum(bool(outcome.runs) for outcome in outcomes)
        models = len({outcome.claim.row.model for outcome in outcomes})
        numbers = [str(value) for value in (models, len(outcomes), measured, len(outcomes) - measured)]
        grid.add_row(f"table-{table.id}", *numbers, table.title)
    for figure in choice.figures:
        folders = figure_folders(place.root, figure, choice.experiments(), variants)
        runs = len(next(iter(folders.values()), {}))
        left = len(figure.models) - runs
        grid.add_row(figure.id, str(len(figure.models)), "", str(runs), str(left), figure.title)
    console.print(grid)


def show_plan(console: Console, chains: Sequence[Chain], size: Scale, place: Place) -> None:
    """Every chain with its steps, done or not, and the minutes that the rest takes on one H200."""
    from rich.table import Table as Grid

    from scaleproof.paper.estimate import minutes, total_minutes

    changed = place.epochs is not None or place.recipe is not None
    what = "another recipe or length than stated" if changed else size.words
    grid = Grid(title=f"Plan: {len(chains)} models, {what}", title_justify="left")
    for name in ("model", "variant", "seed", "steps", "H200 minutes"):
        grid.add_column(name, justify="right" if name == "H200 minutes" else "left", overflow="fold")
    for chain in chains:
        steps = ", ".join(f"{step.kind} ({step.state})" for step in chain.steps)
        left = sum(minutes(step, chain) for step in chain.steps)
        grid.add_row(
            chain.experiment.model,
            chain.variant,
            str(chain.seed),
            steps or "no checkpoint: give --checkpoints",
            f"{left:.0f}" if left else "",
        )
    console.print(grid)
    total = total_minutes(chains)
    if total:
        console.print(f"About {total:.0f} minutes on one H200, one after the other.")


def show_results(console: Console, found: Reproduction, pictures: Sequence[Path], root: Path) -> None:
    from rich.markdown import Markdown

    from scaleproof.paper.page import LEGEND, own_part, table_part

    for table in found.tables:
        console.print(Markdown(table_part(table, found.of(table)) + "\n" + own_part(table, found.own)))
    if found.tables:
        console.print(LEGEND)
    for picture in pictures:
        console.print(f"Figure: {picture}")
    console.print(f"Everything, with the sentences of the paper: {root / PAGE} and {root / RESULT}")


def told(console: Console, failures: Sequence[Failure]) -> int:
    """Name what failed, with the end of what it printed."""
    for failure in failures:
        console.print(f"failed: {failure.step.folder} (exit code {failure.code})", style="bold red")
        if failure.words:
            console.print(failure.words, markup=False, highlight=False)
        console.print("by hand: scaleproof " + " ".join(failure.step.command), markup=False, highlight=False)
    return 1
