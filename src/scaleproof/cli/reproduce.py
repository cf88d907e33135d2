"""`scaleproof reproduce`: the paper's tables and figures, trained, attacked and held against what it prints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scaleproof.cli import options
from scaleproof.cli.reproduced import (
    RESULT,
    drawn,
    read_results,
    show_plan,
    show_results,
    show_tables,
    told,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaleproof.paper.runner import Failure
    from scaleproof.paper.scales import Scale
    from scaleproof.paper.steps import Chain, Place
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
Jobs = Annotated[int, typer.Option(min=1, help="Models side by side on this machine, spread over its GPUs.")]
Ray = Annotated[
    bool,
    typer.Option("--ray", help="Spread the models over a Ray cluster, or over all GPUs of this machine."),
]
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
    carry_out(locals())


def carry_out(words: dict[str, Any]) -> None:
    """Show what there is, or the plan; then run it and show what came of it."""
    from rich.console import Console

    from scaleproof.paper.scales import scale
    from scaleproof.paper.targets import ALL, wanted

    if not words["targets"] and not words["show_list"]:
        raise ValueError(
            "say what to reproduce: table-multi-step, fig-scale, ..., or all; --list shows everything"
        )
    size, far, console = scale(words["scale"]), words["ray"] or words["ray_address"] is not None, Console()
    if far and words["jobs"] > 1:
        raise ValueError(
            f"--jobs is for this machine, with Ray as many run as it has workers: got {words['jobs']}"
        )
    place, choice = place_of(words, size, far), wanted(words["targets"] or [ALL], words["models"])
    check_root(place.root, size)
    if words["show_list"]:
        show_tables(console, choice, size, place)
        return
    chains = choice.chains(size, place, options.seed_numbers(words["seeds"]))
    chains = tuple(chain.training_alone() for chain in chains) if words["train_only"] else chains
    show_plan(console, chains, size, place)
    if not words["dry_run"]:
        check_at_hand(chains, size, place, here=not far)
        failures = run(chains, words, far=far, after=lambda: write(size, place.root))
        pictures = drawn(choice, size, place)
        write(size, place.root)
        show_results(console, read_results(choice, size, place), pictures, place.root)
        if failures:
            told(console, failures)
            raise SystemExit(1)


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


def check_root(root: Path, size: Scale) -> None:
    """A root holds the results of one scale: those of a smoke test must not stand among real ones."""
    from scaleproof.files import read_json

    if root.exists() and not root.is_dir():
        raise ValueError(f"--out must be a folder, {root} is a file")
    found = read_json(root / RESULT)["scale"] if (root / RESULT).exists() else size.name
    if found != size.name:
        raise ValueError(f"{root} holds results at the scale {found}, not {size.name}: give another --out")


def check_at_hand(chains: Sequence[Chain], size: Scale, place: Place, *, here: bool) -> None:
    """Ask for the device and the data that are needed before hours are spent on what does not need them."""
    from scaleproof.cli.setup import checked_device
    from scaleproof.data.catalog import data_folder, locations

    if here:
        checked_device(place.device)
    if size.training_data is not None or not here:  # the package has it; or other machines have their own
        return
    needed = sorted(
        {chain.experiment.dataset for chain in chains if chain.missing and not chain.lost_weights}
    )
    absent = [name for name in needed if len(locations(name, place.data_folder)) < 2]
    if absent:
        raise ValueError(
            f"{' and '.join(absent)} must be in {data_folder(place.data_folder)}, or given by --data-folder: "
            f"scaleproof data get {absent[0]}; or leave such models out, as with --models 'cifar10/*'"
        )


def run(
    chains: Sequence[Chain], words: dict[str, Any], *, far: bool, after: Callable[[], object]
) -> list[Failure]:
    """All chains with something left, here or on a cluster; Ctrl-C says how to go on."""
    from rich.console import Console

    from scaleproof.cli.live import stoppable
    from scaleproof.paper.cluster import run_on_ray
    from scaleproof.paper.runner import Runner

    failures = lost_weights(chains)
    left = [chain for chain in chains if chain.missing and not chain.lost_weights]

    def ended(chain: Chain) -> None:
        try:
            after()
        except (ValueError, OSError) as error:  # the other models go on; the end tells it again
            typer.echo(f"the results so far could not be written: {error}")

    with stoppable(Console(stderr=True)):
        if far:
            return failures + run_on_ray(left, address=words["ray_address"], tell=typer.echo, after=ended)
        fresh = any(chain.scale.architecture is None for chain in left)
        runner = Runner(jobs=words["jobs"], fresh=fresh, tell=typer.echo, gpus=gpus_of(words["device"]))
        return failures + runner.run(left, ended)


def gpus_of(device: str) -> tuple[str, ...]:
    """The GPUs that models side by side are spread over, by their names for CUDA; none where one was asked for."""
    import torch

    if device not in ("auto", "cuda") or torch.cuda.device_count() < 2:
        return ()
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return tuple(named.split(",")) if named else tuple(map(str, range(torch.cuda.device_count())))


def lost_weights(chains: Sequence[Chain]) -> list[Failure]:
    """Networks whose folders hold their results but no weights cannot be attacked again; the others can."""
    from scaleproof.paper.runner import Failure

    advice = "its training is finished but model.safetensors is gone: put it back, or give another --out"
    return [
        Failure(step=chain.missing[0], code=2, words=f"{chain.folder / 'train'}: {advice}")
        for chain in chains
        if chain.lost_weights
    ]
