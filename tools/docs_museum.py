"""The generated parts on the museum of broken defenses and its annex."""

from __future__ import annotations

from typing import Any

from docs_parts import RESULTS, read, table


def museum() -> str:
    """Broken defenses: what PGD says, what catches them, what their key leaves."""
    record = read("museum.json")
    held_back = {room["name"] for room in record["rooms"] if room["held_back"]}

    def cell(share: float | None) -> str:
        return "refused" if share is None else f"{100 * share:.1f}"

    rows = [
        [
            f"{visit['words']} (`{visit['room']}`)",
            f"{visit['strength']:g}",
            "held back" if visit["room"] in held_back else "setting",
            cell(visit["clean"]),
            cell(visit["before"]),
            visit["caught_by"] if visit["caught"] else "missed",
            "" if visit["key"] is None else cell(visit["after"]),
            visit["key"] or "nothing is hidden",
        ]
        for visit in record["visits"]
    ]
    head = ["defense", "strength", "half", "clean", "PGD says", "caught by", "with the key", "key"]
    place = f"{record['hardware']['name']}, commit {record['commit']}"
    return table(head, rows) + f"\n(accuracy in %, n = {record['count']}, seed {record['seed']}, {place})\n"


def limits() -> str:
    """Each check that a room is named after: how far apart healthy networks and exhibits lie, half by half."""
    tour, healthy = read("museum.json"), read("healthy.json")
    held_back = {room["name"] for room in tour["rooms"] if room["held_back"]}
    seen: dict[str, dict[bool, list[float]]] = {}
    shipped: dict[str, float] = {}
    for visit in tour["visits"]:
        check = next(check for check in visit["checks"] if check["name"] == visit["caught_by"])
        seen.setdefault(check["name"], {}).setdefault(visit["room"] in held_back, []).append(check["value"])
        shipped[check["name"]] = check["limit"]
    rows = []
    for name, halves in seen.items():
        values = [
            check["value"] for one in healthy["networks"] for check in one["checks"] if check["name"] == name
        ]
        least = {half: f"{min(halves[half]):.3g}" if half in halves else "" for half in (False, True)}
        rows.append([name, f"{max(values):.2g}", f"{shipped[name]:g}", least[False], least[True]])
    head = ["check", "healthy: at most", "limit", "setting half: at least", "held-back half: at least"]
    facts = f"{len(healthy['networks'])} healthy networks, {healthy['hardware']['name']}, commit {healthy['commit']}"
    return table(head, rows) + f"\n({facts})\n"


ANNEX = {  # what each record of a tour of the annex is
    "annex.json": ("first look", "the museum's network"),
    "annex-svhn.json": ("first look", "another network, on SVHN"),
    "annex-again.json": ("after the changes", "the museum's network"),
    "annex-svhn-again.json": ("after the changes", "another network, on SVHN"),
}


def looks() -> dict[tuple[str, str], dict[str, Any]]:
    return {what: read(name) for name, what in ANNEX.items() if (RESULTS / name).exists()}


def annex() -> str:
    """How many exhibits of the annex were caught, look by look."""
    rows, facts = [], []
    for (look, network), record in looks().items():
        visits = record["visits"]
        named = sum(visit["caught"] for visit in visits)
        missed = sum(not visit["failed"] for visit in visits)
        locked = [visit["after"] for visit in visits if visit["key"] is not None]
        opened = f"{sum(after < 0.1 for after in locked)} of {len(locked)}"
        fooled = [visit for visit in visits if (visit["before"] or 0) >= 0.1]
        found = f"{sum(bool(visit['failed']) for visit in fooled)} of {len(fooled)}"
        counts = [len(visits), named, len(visits) - named - missed, missed, found]
        rows.append([f"{look}, {network}", *map(str, counts), opened])
        facts.append(f"{record['hardware']['name']}, commit {record['commit']}")
    head = [*("look", "exhibits", "by the named check", "by another", "missed")]
    head += ["caught where PGD leaves 10% or more", "below 10% with the key"]
    count, seed = record["count"], record["seed"]
    return table(head, rows) + f"\n(n = {count}, seed {seed}, {'; '.join(dict.fromkeys(facts))})\n"


def annex_first() -> str:
    """Every exhibit of the annex at the first look: what PGD says, what caught it, what the key leaves."""
    found = {network: record for (look, network), record in looks().items() if look == "first look"}

    def cell(share: float | None) -> str:
        return "" if share is None else f"{100 * share:.0f}"

    def caught(visit: dict[str, Any]) -> str:
        if visit["caught"]:
            return "yes"
        return f"no, but {', '.join(visit['failed'])}" if visit["failed"] else "**missed**"

    rows = []
    for pair in zip(*(record["visits"] for record in found.values()), strict=True):
        what = [
            f"{pair[0]['words']} (`{pair[0]['room']}`)",
            f"{pair[0]['strength']:.3g}",
            pair[0]["caught_by"],
        ]
        for visit in pair:
            numbers = [visit["clean"], visit["before"], visit["after"]]
            what += [" / ".join(filter(None, map(cell, numbers))), caught(visit)]
        rows.append(what)
    head = ["defense", "strength", "its check"]
    for network in found:
        head += [f"{network}: clean / PGD / key", "caught"]
    return table(head, rows) + "\n(accuracy in %)\n"


def check_cost() -> str:
    """What examining a model costs beside AutoAttack on the same images."""
    lines = []
    for path in sorted((RESULTS / "benchmarks").glob("check-cost-*.json")):
        record = read(f"benchmarks/{path.name}")
        lines.append(
            f"On {record['images']:,} images ({record['model']}, {record['hardware']['name']}, commit "
            f"{record['commit']}) the {record['checks']} checks, which look at 64 of them, took "
            f"{record['checks_seconds']:.1f} s and `standard` "
            f"{record['standard_seconds']:,.0f} s in the same process: {record['share_percent']:.2f}%.\n"
        )
    return "".join(lines)
