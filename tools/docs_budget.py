"""Generated parts on short attacks beside AutoAttack, what each costs and leaves beyond, and on rankings of targets."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from docs_objectives import signed
from docs_parts import RESULTS, percent, read, table

Rows = list[dict[str, Any]]


SUITE = {
    "CW, 9 targets, 20 steps": "**CW, 9 targets, 20 steps** (`quick`)"
}  # which recipe has a name of its own


def budget(machine: str) -> str:
    """For each record of a machine: the picture, and every recipe with its price."""
    parts = []
    for path in sorted((RESULTS / "benchmarks").glob(f"budget-*{machine}.json")):
        record = read(f"benchmarks/{path.name}")
        parts += [f"![Passes against what is left](results/benchmarks/{path.stem}.png)\n"]
        parts += [standards(record), recipes(record), facts(record)]
    return "\n".join(parts)


def nearest() -> str:
    """What searching the nearest tenth alone costs on a ResNet-18, and how often it differs from AutoAttack."""
    record = read("benchmarks/budget-mart-h200.json")
    (model,) = record["models"]
    rows = [row for row in model["rows"] if row["recipe"].startswith("nearest 10%")]
    shares = [100 * passes(row) / passes(model["standard"]) for row in rows]
    most = max(row["beside_standard"]["lost"] + row["beside_standard"]["won"] for row in rows)
    seeds = ", ".join(str(seed) for seed in record["seeds"])
    return (
        f"The nearest tenth alone, on `{model['model']}`: {min(shares):.1f} to {max(shares):.1f}% of AutoAttack's "
        f"passes, another verdict than AutoAttack's on at most {most} of {record['images']:,} images "
        f"(seeds {seeds}; {record['hardware']['name']}, commit {record['commit']}).\n"
    )


def standards(record: dict[str, Any]) -> str:
    lines = [
        [
            model["model"],
            percent(model["clean"]),
            percent(model["standard"]["robust"]),
            f"{passes(model['standard']):,}",
        ]
        for model in record["models"]
    ]
    return table(["model", "clean", "AutoAttack leaves, %", "its passes"], lines)


def recipes(record: dict[str, Any]) -> str:
    """From the cheapest on: the share of the passes, and for each model the points left beyond AutoAttack."""
    names = list(dict.fromkeys(row["recipe"] for row in record["models"][0]["rows"]))
    shares = {name: fmean(share(model, name) for model in record["models"]) for name in names}
    lines = []
    for name in sorted(names, key=shares.__getitem__):
        found = [of(model, name) for model in record["models"]]
        drops = [[100 * row["beside_standard"]["drop"] for row in rows] for rows in found]
        ends = [max(100 * row["beside_standard"]["interval"][1] for row in rows) for rows in found]
        cells = [
            f"{signed(fmean(one))} ({signed(min(one))} to {signed(max(one))}; {signed(end)})"
            for one, end in zip(drops, ends, strict=True)
        ]
        lines.append([SUITE.get(name, name), f"{100 * shares[name]:.1f}", *cells])
    models = [model["model"] for model in record["models"]]
    return table(["attack", "passes, %", *models], lines)


def of(model: dict[str, Any], name: str) -> Rows:
    return [row for row in model["rows"] if row["recipe"] == name]


def share(model: dict[str, Any], name: str) -> float:
    return fmean(passes(row) for row in of(model, name)) / passes(model["standard"])


def passes(row: dict[str, Any]) -> int:
    return int(row["forwards"] + row["backwards"])


def facts(record: dict[str, Any]) -> str:
    seeds = ", ".join(str(seed) for seed in record["seeds"])
    place = f"{record['hardware']['name']}, torch {record['versions']['torch']}, commit {record['commit']}"
    brackets = (
        "in brackets the lowest and the highest seed, and the highest end of their paired 95% intervals"
    )
    what = (
        f"{record['data']}, n = {record['images']:,}{skipped(record)}; means over seeds {seeds}; {brackets}"
    )
    return f"({what}; {place}; `benchmarks/budget.py`)\n"


def skipped(record: dict[str, Any]) -> str:
    return f" after the first {record['skipped']:,}" if record.get("skipped") else ""


def rankings() -> str:
    """For each record: how often the first targets of each ranking break an image that some target breaks."""
    parts = []
    found = (RESULTS / "benchmarks").glob("rankings-*.json")
    for path in sorted(found, key=lambda one: ("cpu" in one.name, one.name)):
        record = read(f"benchmarks/{path.name}")
        for model in record["models"]:
            parts += [ranked(model["seeds"]), screened(model["seeds"]), ranking_facts(record, model)]
    return "\n".join(parts)


def ranked(seeds: Rows) -> str:
    count, chance = sum(one["breakable"] for one in seeds), fmean(one["chance"] for one in seeds)
    lines = [["a target by chance", f"{100 * chance:.1f}", "", "", ""]]
    for name in seeds[0]["rankings"]:
        rows = [one["rankings"][name] for one in seeds]
        hits = (sum(row["broken_by_first"][first] for row in rows) for first in ("1", "2", "3"))
        pairs = [row["beside_logits"] for row in rows]  # before: this ranking, after: the clean logits
        ends = "; ".join(f"{pair['lost']} to {pair['won']}" for pair in pairs)
        lines.append(
            [name, *(f"{100 * hit / count:.1f}" for hit in hits), "" if name == "clean logits" else ends]
        )
    head = ["ranking", "first target breaks, %", "first two", "first three", "better to worse, by seed"]
    return table(head, lines)


def screened(seeds: Rows) -> str:
    lines = []
    for name in seeds[0]["screens"]:
        shares = [[100 * one["screens"][name][part] for one in seeds] for part in seeds[0]["screens"][name]]
        lines.append([name, *(f"{min(found):.1f} to {max(found):.1f}" for found in shares)])
    parts = [f"{part}, %" for part in next(iter(seeds[0]["screens"].values()))]
    return table(["nearest first by the", *parts], lines)


def ranking_facts(record: dict[str, Any], model: dict[str, Any]) -> str:
    seeds = ", ".join(str(one["seed"]) for one in model["seeds"])
    left = ", ".join(f"{one['breakable']} of {one['left']:,}" for one in model["seeds"])
    place = f"{record['hardware']['name']}, torch {record['versions']['torch']}, commit {record['commit']}"
    what = f"{model['model']}, {record['data']}, n = {record['images']:,}{skipped(record)}"
    told = f"of the images that PGD left some target breaks {left}, by seed"
    return f"({what}; seeds {seeds}; {told}; {place}; `benchmarks/rankings.py`)\n"
