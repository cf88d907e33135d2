"""How much of AutoAttack's figure do how many passes buy? Short attacks beside "standard", on the same images.

    python benchmarks/budget.py --models at=at.safetensors,trades=trades.safetensors --data cifar10 --images 2000 \
        --device cuda --out docs/results/benchmarks/budget-h200.json

A recipe is a cascade: each attack gets what the ones before it left. Its price is its forward and backward passes, its
worth what it leaves: images that "standard" breaks and the recipe does not are missed, the other way round gained.
Every recipe runs once for each seed; "standard" (gradients in bf16 on a GPU, verdicts in float32) runs once.
Targets are ranked by the clean logits; by scouts, one step towards each of nine classes; or by slopes, as MALT does.
Where a recipe names the nearest images, scouts go to all of them and the search to those alone that they bring nearest.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from objectives import classifiers
from torch import Tensor

from scaleproof import PGD, Classifier, Evaluation, Threat, evaluate, load, suite
from scaleproof.attacks import APGD, Attack, Nearest, Ranking, Scouting, Scouts, Slopes
from scaleproof.losses import Objective, cw_margin, dlr, probability_margin, standardised_margin
from scaleproof.provenance import provenance
from scaleproof.statistics import paired

STANDARD = "standard-bf16"
FAMILIES = (  # as the picture tells them apart: a title, how the names of its recipes begin, a colour
    ("one objective", ("PGD", "APGD-100"), "#8c8c8c"),
    ("targets, DLR", "DLR", "#0072b2"),
    ("targets, CW", "CW", "#d55e00"),
    ("targets by scouts or slopes", ("scouts", "slopes"), "#009e73"),
    ("nearest images", "nearest", "#cc79a7"),
    ("AutoAttack's first two", "APGD-CE", "#222222"),
)


def first(objective: Objective = probability_margin, steps: int = 20, restarts: int = 1) -> PGD:
    name = f"pgd {objective.name} {steps}x{restarts}"
    return PGD(
        threat=Threat(),
        objective=objective,
        steps=steps,
        restarts=restarts,
        keep="best",
        name=name,
        label=name,
    )


def search(
    objective: Objective, steps: int, *, targets: int | None = None, ranking: Ranking | None = None
) -> APGD:
    name = f"apgd {objective.name} {steps}x{targets or 1}" + ("" if ranking is None else f" {ranking.name}")
    return APGD(
        threat=Threat(),
        objective=objective,
        steps=steps,
        targets=targets,
        ranking=ranking,
        name=name,
        label=name,
    )


def recipes() -> Mapping[str, tuple[Attack, ...]]:
    """By name: single attacks, AutoAttack's first two, and cascades that begin with a short PGD."""
    invariant = standardised_margin(4.0)
    found: dict[str, tuple[Attack, ...]] = {
        "PGD-20, cross entropy": (*suite("pgd"),),
        "PGD-20, probability margin": (first(),),
        "PGD-20, standardised margin": (first(invariant),),
        "PGD-20, standardised margin, 5 starts": (first(invariant, restarts=5),),
        "PGD-100, standardised margin": (first(invariant, 100),),
        "APGD-100, standardised margin": (first(invariant), search(invariant, 100)),
        "APGD-CE and APGD-T": (*suite("apgd-ce,apgd-t"),),
        "CW, 9 targets, 20 steps": (*suite("quick"),),
    }
    for targets, steps in ((9, 100), (9, 50), (9, 20), (5, 50), (3, 100), (3, 50), (3, 20), (1, 100)):
        found[f"DLR, {counted(targets)}, {steps} steps"] = (
            first(invariant),
            search(dlr, steps, targets=targets),
        )
    for targets, steps in ((9, 50), (9, 10), (5, 50), (5, 20), (3, 50), (1, 50)):
        found[f"CW, {counted(targets)}, {steps} steps"] = (
            first(invariant),
            search(cw_margin, steps, targets=targets),
        )
    for ranking in (Scouts(), Slopes()):
        for targets, steps in ((1, 20), (1, 50), (1, 100), (2, 20), (2, 50), (2, 100), (3, 20), (3, 50)):
            found[f"{ranking.name}, {counted(targets)}, {steps} steps"] = (
                first(invariant),
                search(cw_margin, steps, targets=targets, ranking=ranking),
            )
    for share, targets, steps in (
        *((0.05, 9, 20), (0.05, 9, 50), (0.05, 9, 100)),
        *((0.1, 3, 50), (0.1, 9, 20), (0.1, 9, 50), (0.1, 9, 100)),
        *((0.2, 3, 50), (0.2, 9, 20), (0.2, 9, 50), (0.2, 9, 100)),
    ):
        found[f"nearest {100 * share:g}%, {counted(targets)}, {steps} steps"] = (
            first(invariant),
            Scouting(threat=Threat()),
            Nearest(
                search(cw_margin, steps, targets=targets, ranking=Scouts() if targets < 9 else None), share
            ),
        )
    return found


def counted(targets: int) -> str:
    return f"{targets} target{'s' * (targets > 1)}"


def priced(name: str, seed: int, found: Evaluation, standard: Evaluation) -> dict[str, Any]:
    """What a recipe cost and left; beside "standard", lost are the images that it misses, won those that it gains."""
    return {
        "recipe": name,
        "seed": seed,
        "robust": found.robust().as_json(),
        "beside_standard": paired(found.survivors(), standard.survivors()).as_json(),
        **cost(found),
    }


def cost(found: Evaluation) -> dict[str, Any]:
    totals = {
        part: sum(getattr(result, part) for result in found.attacks) for part in ("forwards", "backwards")
    }
    return {**totals, "seconds": sum(result.seconds for result in found.attacks)}


def measured(
    name: str, classifier: Classifier, images: tuple[Tensor, Tensor], given: argparse.Namespace
) -> dict[str, Any]:
    standard = evaluate(classifier, images, STANDARD, batch_size=given.batch)
    print(name, STANDARD, standard.robust(), cost(standard), flush=True)
    rows = []
    for recipe, attacks in recipes().items():
        if not re.search(given.match, recipe):
            continue
        for seed in given.seeds:
            found = evaluate(classifier, images, attacks, mode="cascade", seed=seed, batch_size=given.batch)
            rows.append(priced(recipe, seed, found, standard))
        more, share = 100 * rows[-1]["beside_standard"]["drop"], price(rows[-1]) / price(cost(standard))
        print(f"{more:+.2f} points at {share:.4f} of the passes: {recipe}", flush=True)
    return {
        "model": name,
        "clean": standard.clean.as_json(),
        "standard": {"robust": standard.robust().as_json(), **cost(standard)},
        "speed": standard.speed,
        "rows": rows,
    }


def price(row: Mapping[str, Any]) -> int:
    return int(row["forwards"] + row["backwards"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="demo=demo", help="NAME=FILE or a model's own name, with commas")
    parser.add_argument("--data", default="sample")
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument(
        "--skip", type=int, default=0, help="leave out the first images: some may be known by heart"
    )
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--seeds", default=[0], type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--match", default="", help="only recipes whose names this regular expression finds")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device, data = torch.device(given.device), load(given.data)
    images = data.batch(given.skip, given.skip + given.images)
    document: dict[str, Any] = {
        "schema": "scaleproof.benchmark-budget/1",
        **provenance(device),
        "data": data.name,
        "skipped": given.skip,
        "images": len(images[1]),
        "seeds": given.seeds,
        "models": [],
    }
    for name, net in classifiers(given.models, device):
        document["models"].append(measured(name, net, images, given))
        if given.out is not None:  # after every model: a run that is cut keeps what it has
            given.out.write_text(json.dumps(document, indent=1) + "\n")
            draw(document, given.out.with_suffix(".png"))


def summaries(model: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """By recipe: its share of the passes of "standard", and the points that it leaves beyond, means over seeds."""
    whole = price(model["standard"])
    names = dict.fromkeys(row["recipe"] for row in model["rows"])
    rows = {name: [row for row in model["rows"] if row["recipe"] == name] for name in names}
    return {
        name: (
            fmean(price(row) / whole for row in one),
            fmean(100 * row["beside_standard"]["drop"] for row in one),
        )
        for name, one in rows.items()
    }


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Points beyond AutoAttack's figure against the share of its passes, means over models; the best have names."""
    from matplotlib.figure import Figure

    found = [summaries(model) for model in document["models"]]
    means = {
        name: (100 * fmean(one[name][0] for one in found), fmean(one[name][1] for one in found))
        for name in found[0]
    }
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    panel = figure.subplots()
    for family, begins, colour in FAMILIES:
        dots = [dot for name, dot in means.items() if name.startswith(begins)]
        if dots:
            panel.plot(*zip(*dots, strict=True), "o", color=colour, label=family)
    best = efficient(means)
    panel.step(*zip(*(means[name] for name in best), strict=True), where="post", color="grey", linewidth=0.8)
    for name in best:
        panel.annotate(
            name, means[name], (3, 5), textcoords="offset points", fontsize=8, rotation=35, zorder=3
        )
    left = min(x for x, _ in means.values())
    bottom, top = min(0, *(y for _, y in means.values())), max(y for _, y in means.values())
    ticks = [tick for tick in (0.5, 1, 2, 5, 10, 20, 50) if 0.8 * left < tick]
    panel.axhline(0, color="black", linewidth=0.8)
    panel.set(xscale="log", xlim=(0.8 * left, 60), ylim=(bottom - 0.05 * top, 1.55 * top))
    panel.set(xlabel="passes, % of AutoAttack's", ylabel="points left beyond AutoAttack")
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.minorticks_off()
    panel.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=len(FAMILIES), fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


def efficient(means: Mapping[str, tuple[float, float]]) -> list[str]:
    """From the cheapest on: those that leave less than everything that costs no more."""
    found: list[str] = []
    for name in sorted(means, key=lambda name: means[name]):
        if not found or means[name][1] < means[found[-1]][1]:
            found.append(name)
    return found


if __name__ == "__main__":
    main()
