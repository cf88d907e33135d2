"""`scaleproof museum`: broken defenses, what catches each, and what its key leaves of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scaleproof.cli import options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from torch import nn

    from scaleproof.museum import Room, Visit

WIDEST = 1000  # columns of a terminal


def command(
    room: Annotated[
        list[str] | None,
        typer.Argument(help="Rooms to visit, all by default; a wrong name lists them.", show_default=False),
    ] = None,
    annex: Annotated[
        bool, typer.Option("--annex", help="The rooms that no check was made for.", show_default=False)
    ] = False,
    healthy: Annotated[
        bool,
        typer.Option(
            "--healthy", help="Networks that no check may accuse, in place of rooms.", show_default=False
        ),
    ] = False,
    model: Annotated[
        str, typer.Option(help="The network that the defenses are built around.")
    ] = "undefended",
    data: options.Data = "sample",
    limit: options.Limit = 100,
    eps: options.Eps = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Also write what was seen, as JSON.", show_default=False)
    ] = None,
) -> None:
    """Visit defenses that only look robust: PGD's number, the check that fails, and the number with the key."""
    if out is not None and out.exists():
        raise ValueError(f"{out} exists: give another --out")
    if healthy and (room or annex):
        raise ValueError("--healthy shows networks in place of rooms: leave out the rooms and --annex")
    if healthy:
        show_healthy(seed, out)
    else:
        show_rooms(room or [], annex, model, data, limit, eps, seed, device, out)


def show_rooms(
    names: list[str],
    annex: bool,
    model: str,
    data: str,
    limit: int | None,
    eps: str | None,
    seed: int,
    device: str,
    out: Path | None,
) -> None:
    """Every exhibit of some rooms, or of a whole wing."""
    from rich.console import Console
    from rich.progress import track

    from scaleproof.cli.setup import checked_device, limited
    from scaleproof.data import load
    from scaleproof.look import first_logits
    from scaleproof.models import Classifier
    from scaleproof.museum import ANNEX, ROOMS, room, visit
    from scaleproof.provenance import provenance
    from scaleproof.store import write_json
    from scaleproof.threat import UNSET, Threat

    wing = ANNEX if annex else ROOMS
    rooms = [room(name, wing) for name in names] or list(wing)
    place, images = checked_device(device), limited(load(data), limit)
    threat = Threat(eps=UNSET if eps is None else options.number(eps, "eps"))
    net = bare_network(model).to(place)
    first_logits(Classifier(net), images)  # refuses images that the network does not take
    exhibits = [(found, strength) for found in rooms for strength in found.strengths]
    visits = [
        visit(found, strength, net, images, threat, surrogate=Classifier(net), seed=seed)
        for found, strength in track(exhibits, "Visiting", transient=True)
    ]
    show(visits, len(images), Console())
    if out is not None:
        facts = {"model": model, "data": data, "count": len(images), "seed": seed, **provenance(place)}
        write_json(out, {**record(rooms, visits), **facts})


def show_healthy(seed: int, out: Path | None) -> None:
    """Examine every healthy network: what came closest to an alarm, and what was one."""
    import torch
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    from scaleproof.checks import failed
    from scaleproof.museum import HEALTHY, examined
    from scaleproof.provenance import provenance
    from scaleproof.store import write_json

    seen = [examined(name, seed) for name in track(HEALTHY, "Examining", transient=True)]
    found = Table("network", "checks", "failed", title="Healthy networks", title_justify="left")
    for one in seen:
        found.add_row(one.network, str(len(one.checks)), ", ".join(failed(one.checks)) or "none")
    Console().print(found)
    if out is not None:
        facts = {"seed": seed, **provenance(torch.device("cpu"))}
        networks = [one.as_json() for one in seen]
        write_json(out, {"schema": "scaleproof.healthy/1", "networks": networks, **facts})


def bare_network(model: str) -> nn.Module:
    """The network that a spec names, where nothing stands between it and the images."""
    from scaleproof.models import load_model

    classifier = load_model(model).classifier
    if classifier.mean is not None:
        raise ValueError(
            f"the museum is built around a network that takes images in [0, 1], {model} normalises them"
        )
    return classifier.net


def record(rooms: list[Room], visits: list[Visit]) -> dict[str, object]:
    """What was seen, as the JSON keeps it."""
    from scaleproof.museum import SETTING

    return {
        "schema": "scaleproof.museum/1",
        "rooms": [{"name": found.name, "held_back": found not in SETTING} for found in rooms],
        "visits": [one.as_json() for one in visits],
    }


def show(visits: list[Visit], count: int, console: Console) -> None:
    """The table of visits; on a terminal that is narrower than it, keys stand below."""
    from scaleproof.cli.show import say

    found = table(visits, count)
    if found.__rich_measure__(console, console.options.update(max_width=WIDEST)).maximum <= console.width:
        console.print(found)
        return
    console.print(narrow(table(visits, count, keys=False)))
    rooms: dict[str, list[str]] = {}
    for one in visits:
        rooms.setdefault(key(one), []).append(one.room)
    say(console, [f"Key of {', '.join(dict.fromkeys(names))}: {words}." for words, names in rooms.items()])


def table(visits: list[Visit], count: int, *, keys: bool = True) -> Table:
    """One row an exhibit, with or without what its key is."""
    from rich.table import Table

    found = Table(title=f"Robust accuracy in %, n = {count}", title_justify="left")
    heads = (
        "room",
        "strength",
        "clean",
        "PGD says",
        "caught by",
        "with the key",
        *(("key",) if keys else ()),
    )
    for name in heads:
        words = name in ("caught by", "key")
        found.add_column(
            name if keys else name.replace(" ", "\n", 1),
            justify="left" if words or name == "room" else "right",
            overflow="fold",
            no_wrap=not words,
        )
    for one in visits:
        after = "" if one.key is None else number(one.after)
        cells = [one.room, f"{one.strength:g}", number(one.clean), number(one.before), verdict(one), after]
        found.add_row(*cells, *([key(one)] if keys else []))
    return found


def narrow(found: Table) -> Table:
    """The same table without what it can do without: its frame."""
    found.show_edge = found.pad_edge = False
    return found


def key(one: Visit) -> str:
    return one.key or "nothing is hidden"


def verdict(one: Visit) -> str:
    """The check that should fail, or the others that did in its place."""
    from scaleproof.checks import failed

    others = failed(one.checks)
    if one.caught or not others:
        return one.caught_by if one.caught else f"{one.caught_by}: MISSED"
    return f"not {one.caught_by}, but {', '.join(others)}"


def number(share: float | None) -> str:
    return "refused" if share is None else f"{100 * share:.1f}"
