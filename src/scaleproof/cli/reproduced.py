"""What `reproduce` shows and writes: plans, lists, results and figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scaleproof.cli.show import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from scaleproof.paper.reproduction import Reproduction
    from scaleproof.paper.runner import Failure
    from scaleproof.paper.scales import Scale
    from scaleproof.paper.steps import Chain, Place
    from scaleproof.paper.targets import Wanted

RESULT, PAGE = "reproduction.json", "reproduction.md"


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
            small = size.architecture is not None and figure.command is not None
            shown = replace(figure, remark=f"{size.words}.".capitalize()) if small else figure
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
    figures = [f"![{path.stem}]({path.name})\n" for path in sorted(root.glob("fig-*.png"))]
    shown = "\n".join(["", "### Figures\n", *figures]) if figures else ""
    write_atomically(root / PAGE, (title + page(found) + shown).encode())


def show_tables(console: Console, choice: Wanted, size: Scale, place: Place) -> None:
    """Every table and figure: how many models, claims, what was measured, and what is missing."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Grid

    from scaleproof.paper.observed import figure_folders

    found, variants = read_results(choice, size, place), variants_of(choice, size, place)
    title = f"What there is to reproduce, and what is in {place.root}"
    grid = Grid(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("name", "models", "numbers", "measured", "missing", "what"):
        words = name in ("name", "what")
        grid.add_column(name, justify="left" if words else "right", no_wrap=name != "what")
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


def outdated(chain: Chain) -> str:
    """Why a finished training does not count as what it is called, where that is its recipe."""
    from scaleproof.paper.stated import CHANGED, departure
    from scaleproof.paper.steps import TRAIN

    folders = [step.folder for step in chain.steps if step.kind == TRAIN]
    why = departure(chain.experiment, folders[0].parent) if folders else ""
    return why if why == CHANGED else ""


def standing(chain: Chain) -> Iterator[str]:
    """Which steps of a chain are done, cut or missing, and what else is to be known before it starts."""
    if not chain.steps:
        yield chain.absence
    states = {step.kind: step.state for step in chain.steps}
    for state in dict.fromkeys(states.values()):
        yield f"{state}: {', '.join(kind for kind in states if states[kind] == state)}"
    if why := outdated(chain):
        yield f"{why}: move it away to train again"
    if chain.lost_weights:
        yield "weights not here"


def show_plan(console: Console, chains: Sequence[Chain], size: Scale, place: Place) -> None:
    """Every chain with its steps, done or not, and the minutes that the rest takes on one H200."""
    import torch
    from rich.padding import Padding

    from scaleproof.paper.estimate import minutes, total_minutes
    from scaleproof.report.words import plural

    if not chains:
        return
    changed = place.epochs is not None or place.recipe is not None
    what = "another recipe or length than stated" if changed else size.words
    console.print(f"Plan: {plural(len(chains), 'model')}, {what}; minutes on one H200", style="italic")
    for chain in chains:
        left = sum(minutes(step, chain) for step in chain.steps)
        name = f"{chain.experiment.model}, {chain.variant}, seed {chain.seed}"
        console.print(f"{f'{left:.0f}' if left else '':>5}  {name}", soft_wrap=True, highlight=False)
        console.print(Padding("; ".join(standing(chain)), (0, 0, 0, 9), expand=False), highlight=False)
    total = total_minutes(chains)
    if total:
        console.print(
            f"About {plural(max(round(total), 1), 'minute')} on one H200, one after the other, each alone on the chip."
        )
        if not torch.cuda.is_available():
            console.print("There is no GPU here, a CPU takes far longer: --scale small tries the whole path.")


def show_results(console: Console, found: Reproduction, pictures: Sequence[Path], root: Path) -> None:
    from rich.markdown import Markdown

    from scaleproof.paper.page import LEGEND, own_part, table_part
    from scaleproof.paper.scales import FULL, scale

    for table in found.tables:
        console.print(Markdown(table_part(table, found) + "\n" + own_part(table, found.own)))
    if found.tables:
        console.print(Markdown(LEGEND))
    if found.scale != FULL.name:
        console.print(f"{scale(found.scale).words.capitalize()}.", style="bold")
    for picture in pictures:
        console.print(f"Figure: {picture}")
    console.print(f"Everything, with the sentences of the paper: {root / PAGE} and {root / RESULT}")


def told(console: Console, failures: Sequence[Failure]) -> None:
    """Name what failed, with the end of what it printed."""
    for failure in failures:
        words = f"failed: {failure.step.folder} (exit code {failure.code})"
        console.print(words, style="bold red", soft_wrap=True)
        if failure.words:
            console.print(failure.words, markup=False, highlight=False)
        say(console, ["by hand: scaleproof " + " ".join(failure.step.command)])
