"""`scaleproof reproduce`: the paper's tables and figures, trained, attacked and held against what it prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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


Targets = Annotated[
    list[str] | None, typer.Argument(help="table-multi-step, fig-scale, ..., or all: see --list.")
]
List = Annotated[
    bool, typer.Option("--list", help="Show every table and figure: claims, measured and missing.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")]
Size = Annotated[str, typer.Option(help="full, or small: a smoke test on a CPU in minutes.")]
Models = Annotated[
    str, typer.Option(help="Of the tables, only models like these: 'cifar10/resnet18/*', commas between.")
]
TrainOnly = Annotated[bool, typer.Option("--train-only", help="Leave attacks and figures for another time.")]
Seeds = Annotated[str, typer.Option(help="Seeds, with commas between.")]
Epochs = Annotated[int | None, typer.Option(help="In place of each recipe's own; such numbers are marked.")]
Recipe = Annotated[str | None, typer.Option(help="In place of the reading's recipe.")]
Checkpoints = Annotated[
    Path | None,
    typer.Option(help="A folder with published models, DATASET/THREAT/NAME.pt.", show_default=False),
]
Jobs = Annotated[int, typer.Option(help="Models side by side on this machine.")]
Ray = Annotated[bool, typer.Option("--ray", help="Spread the models over a Ray cluster.")]
RayAddress = Annotated[
    str | None, typer.Option(help="Of the cluster; else one that runs here, or a new one.")
]
Out = Annotated[
    Path | None, typer.Option(help="Root of all run folders; runs/paper by default.", show_default=False)
]


def command(
    targets: Targets = None,
    show_list: List = False,
    dry_run: DryRun = False,
    scale: Size = "full",
    models: Models = "*",
    train_only: TrainOnly = False,
    seeds: Seeds = "0",
    epochs: Epochs = None,
    recipe: Recipe = None,
    checkpoints: Checkpoints = None,
    data_folder: options.DataFolder = None,
    device: options.Device = "auto",
    jobs: Jobs = 1,
    ray: Ray = False,
    ray_address: RayAddress = None,
    out: Out = None,
) -> None:
    """Train what is missing, attack what is missing, and print measured beside claimed; run it again to go on."""
    words = locals()
    from rich.console import Console

    from scaleproof.paper.scales import scale as chosen_scale
    from scaleproof.paper.targets import ALL, wanted

    if not targets and not show_list:
        raise ValueError(
            "say what to reproduce: table-multi-step, fig-scale, ..., or all; --list shows everything"
        )
    size, far, console = chosen_scale(scale), ray or ray_address is not None, Console()
    place, choice = place_of(words, size, far), wanted(targets or [ALL], models)
    if show_list:
        show_tables(console, choice, size, place)
        return
    chains = choice.chains(size, place, options.whole_numbers(seeds, "seeds"))
    chains = tuple(chain.training_alone() for chain in chains) if train_only else chains
    show_plan(console, chains, size, place)
    if dry_run:
        return
    failures = run(chains, jobs=jobs, address=ray_address, far=far, after=lambda: write(size, place.root))
    write(size, place.root)
    show_results(console, read_results(choice, size, place), drawn(choice, size, place), place.root)
    if failures:
        raise SystemExit(told(console, failures))


def place_of(words: dict[str, Any], size: Scale, far: bool) -> Place:
    """Where and how steps run; other machines need whole paths."""
    from scaleproof.paper.steps import Place

    if size.architecture is not None and any(words[name] for name in ("epochs", "recipe", "checkpoints")):
        raise ValueError(
            f"--scale {size.name} has its own length and models: leave --epochs, --recipe and --checkpoints"
        )
    own = Path("runs") / ("paper" if size.architecture is None else f"paper-{size.name}")
    paths = {
        "root": words["out"] or own,
        "data_folder": words["data_folder"],
        "checkpoints": words["checkpoints"],
    }
    if far:
        paths = {name: path and path.absolute() for name, path in paths.items()}
    return Place(**paths, device=words["device"], epochs=words["epochs"], recipe=words["recipe"])


def run(
    chains: Sequence[Chain], *, jobs: int, address: str | None, far: bool, after: Callable[[], object]
) -> list[Failure]:
    """All chains with something left, here or on a cluster."""
    from scaleproof.paper.cluster import run_on_ray
    from scaleproof.paper.runner import Runner

    failures = lost_weights(chains)
    left = [chain for chain in chains if chain.missing and not chain.lost_weights]

    def ended(chain: Chain) -> None:
        try:
            after()
        except (ValueError, OSError) as error:  # the other models go on; the end tells it again
            typer.echo(f"the results so far could not be written: {error}")

    if far:
        return failures + run_on_ray(left, address=address, tell=typer.echo, after=ended)
    fresh = any(chain.scale.architecture is None for chain in left)
    return failures + Runner(jobs=jobs, fresh=fresh, tell=typer.echo).run(left, ended)


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
            shown = (
                figure if size.architecture is None else replace(figure, remark=f"{size.words}.".capitalize())
            )
            paths.append(draw(shown, next(iter(folders.values()), {}), place.root))
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
