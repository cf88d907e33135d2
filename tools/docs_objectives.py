"""Generated parts on objectives of a short PGD: which is strongest, by how much, and on which models."""

from __future__ import annotations

from typing import Any

from docs_parts import RESULTS, percent, read, table

LABELS = {"pgd": "cross entropy", "pgd-cw": "CW margin", "pgd-dlr": "DLR", "si-pgd": "cosine x15 (SI-PGD)"}
LABELS |= {"pgd-pm": "probability margin", "pgd-std": "standardised x4"}


def objectives() -> str:
    """For each record: the picture, all objectives together, and the named ones model by model."""
    parts = []
    for path in sorted((RESULTS / "benchmarks").glob("objectives-*.json")):
        record = read(f"benchmarks/{path.name}")
        parts += [f"![Objectives compared](results/benchmarks/{path.stem}.png)\n", together(record)]
        parts += [by_model(record), facts(record)]
    return "\n".join(parts)


def together(record: dict[str, Any]) -> str:
    steps = record["compared_at"]
    (rows,) = (one["rows"] for one in record["together"] if one["steps"] == steps)
    lines = [
        [label(row["objective"]), f"{row['robust']:.2f}", signed(row["more"]), interval(row["interval"])]
        for row in sorted(rows, key=lambda row: float(row["robust"]))
    ]
    reference = label(record["reference"])
    return table([f"{steps} steps", "left, %", f"more than {reference}", "95% interval"], lines)


def by_model(record: dict[str, Any]) -> str:
    """What each named objective leaves of each model; the lowest is bold."""
    lines = []
    for model in record["models"]:
        (rows,) = (one["rows"] for one in model["steps"] if one["steps"] == record["compared_at"])
        left = {row["objective"]: float(row["robust"]) for row in rows if row["objective"] in LABELS}
        lowest = min(left.values())
        cells = [f"**{left[name]:.2f}**" if left[name] == lowest else f"{left[name]:.2f}" for name in LABELS]
        lines.append([model["model"], percent(model["clean"]), *cells, percent(model["floor"])])
    return table(["model", "clean", *LABELS.values(), "floor"], lines)


def facts(record: dict[str, Any]) -> str:
    seeds = ", ".join(str(seed) for seed in record["seeds"])
    place = f"{record['hardware']['name']}, torch {record['versions']['torch']}, commit {record['commit']}"
    what = f"{record['data']}, n = {record['images']:,}, seeds {seeds}, gradients in {record['speed']['precision']}"
    return f"({what}, {place}; `benchmarks/objectives.py`)\n"


def label(name: str) -> str:
    return LABELS.get(name, name)


def signed(value: float) -> str:
    return f"{value:+.2f}"


def interval(ends: list[float]) -> str:
    return f"{ends[0]:+.2f} to {ends[1]:+.2f}"
