"""Which objective makes the strongest short PGD, and why: invariance, agreement with the decision, or temperature?

    python benchmarks/objectives.py --models at=at.safetensors,gat=gat.safetensors --data cifar10 --images 2000 \
        --device cuda --out docs/results/benchmarks/objectives-h200.json

Every objective attacks the same images of every model with the same number of steps, from three random starts. An
image's score is the share of the starts that it withstands; objectives are compared image by image. What the gradient
attacks of the suite `fast` leave together on the same images (targeted APGD among them) is the floor below all of them.
Starts are drawn for each objective anew. Intervals are for one comparison each, and over images, not over models.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scaleproof import PGD, Classifier, Dataset, Threat, evaluate, load, load_model, suite
from scaleproof.attacks.suites import OBJECTIVES, SUITES
from scaleproof.losses import (
    Objective,
    cosine_cross_entropy,
    standardised_cross_entropy,
    standardised_margin,
)
from scaleproof.provenance import provenance
from scaleproof.statistics import Z95

SEEDS = (0, 1, 2)
STEPS = 20  # at which all objectives are compared
LENGTHS = (5, 10, 40)  # further numbers of steps, for those with a name of their own
REFERENCE = "pgd-std"
FLOOR = "pgd-pm,pgd-std,apgd-t"
TEMPERATURES: Mapping[str, Objective] = {
    **{f"cosine x{scale}": cosine_cross_entropy(scale) for scale in (5, 45)},
    **{f"standardised x{scale}": standardised_cross_entropy(scale) for scale in (1, 2, 8, 16)},
    **{f"standardised margin x{scale}": standardised_margin(scale) for scale in (1, 2, 4, 8)},
}

Scores = NDArray[np.float64]  # (images,) the share of the starts that an image withstands


def attacks(steps: int, objectives: Mapping[str, Objective]) -> list[PGD]:
    return [
        PGD(threat=Threat(), objective=objective, steps=steps, name=name, label=name)
        for name, objective in objectives.items()
    ]


def scores(classifier: Classifier, data: Dataset, steps: int, given: argparse.Namespace) -> dict[str, Scores]:
    """Of each objective; those that differ in temperature alone at the common number of steps."""
    objectives = {name: OBJECTIVES[name][1] for name in SUITES["objectives"]}
    objectives |= TEMPERATURES if steps == given.steps else {}
    found = [
        evaluate(classifier, data, attacks(steps, objectives), seed=seed, batch_size=given.batch)
        for seed in given.seeds
    ]
    right = [{result.name: run.clean_correct & ~result.broken() for result in run.attacks} for run in found]
    return {name: np.mean([one[name] for one in right], axis=0) for name in objectives}


def compared(name: str, score: Scores, reference: Scores) -> dict[str, Any]:
    """What is left in percent, and how much more than the reference leaves, with a paired 95% interval."""
    gap = 100 * (score - reference)
    reach = Z95 * float(gap.std(ddof=1)) / np.sqrt(len(gap))
    return {
        "objective": name,
        "robust": 100 * float(score.mean()),
        "more": float(gap.mean()),
        "interval": [float(gap.mean()) - reach, float(gap.mean()) + reach],
    }


def measured(name: str, classifier: Classifier, data: Dataset, given: argparse.Namespace) -> dict[str, Any]:
    floor = evaluate(classifier, data, suite(FLOOR), mode="cascade", batch_size=given.batch)
    by_steps, kept = [], {}
    for steps in sorted({given.steps, *given.lengths}):
        found = scores(classifier, data, steps, given)
        rows = [compared(objective, score, found[REFERENCE]) for objective, score in found.items()]
        by_steps.append({"steps": steps, "rows": rows})
        kept[steps] = found
        print(name, steps, {row["objective"]: round(row["robust"], 2) for row in rows}, flush=True)
    return {
        "model": name,
        "clean": floor.clean.as_json(),
        "floor": floor.robust().as_json(),
        "speed": floor.speed,
        "steps": by_steps,
        "scores": kept,
    }


def pooled(models: list[dict[str, Any]], steps: int) -> list[dict[str, Any]]:
    """The mean over the models, image by image: models share the images, and every one counts alike."""
    names = models[0]["scores"][steps]
    means = {name: np.mean([one["scores"][steps][name] for one in models], axis=0) for name in names}
    return [compared(name, score, means[REFERENCE]) for name, score in means.items()]


def classifiers(names: str, device: torch.device) -> Iterator[tuple[str, Classifier]]:
    """Models by NAME=FILE or by their own names, with commas between."""
    for pair in names.split(","):
        name, _, spec = pair.partition("=")
        yield name, load_model(spec or name).classifier.to(device)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="demo=demo", help="NAME=FILE or a model's own name, with commas")
    parser.add_argument("--data", default="sample")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=STEPS)
    numbers = {"type": lambda text: [int(one) for one in text.split(",")]}
    parser.add_argument("--lengths", default=list(LENGTHS), **numbers)  # type: ignore[arg-type]
    parser.add_argument("--seeds", default=list(SEEDS), **numbers)  # type: ignore[arg-type]
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device, data = torch.device(given.device), load(given.data).first(given.images)
    models = [measured(name, net, data, given) for name, net in classifiers(given.models, device)]
    lengths = sorted({given.steps, *given.lengths})
    together = [{"steps": steps, "rows": pooled(models, steps)} for steps in lengths]
    document: dict[str, Any] = {
        "schema": "scaleproof.benchmark-objectives/1",
        **provenance(device),
        "data": data.name,
        "images": given.images,
        "seeds": given.seeds,
        "compared_at": given.steps,
        "speed": models[0]["speed"],
        "reference": REFERENCE,
        "together": together,
        "models": [
            {key: value for key, value in one.items() if key not in ("scores", "speed")} for one in models
        ],
    }
    if given.out is not None:
        given.out.write_text(json.dumps(document, indent=1) + "\n")
        draw(document, given.out.with_suffix(".png"))


def draw(document: dict[str, Any], path: Path) -> None:
    """Left: every objective against the reference. Right: how far each is from the floor, by steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    at = {one["steps"]: one["rows"] for one in document["together"]}
    rows = sorted(at[document["compared_at"]], key=lambda row: -row["more"])
    for place, row in enumerate(rows):
        left.plot(row["interval"], [place, place], color="tab:blue")
        left.plot(row["more"], place, "o", color="tab:blue")
    left.axvline(0, color="grey", linewidth=0.8)
    left.set_yticks(range(len(rows)), [shown(row["objective"]) for row in rows])
    left.set(
        title=f"{document['compared_at']} steps",
        xlabel=f"points left beyond {shown(document['reference'])}, with 95% intervals",
    )
    floor = np.mean([100 * one["floor"]["accuracy"] for one in document["models"]])
    for name in SUITES["objectives"]:
        above = [
            next(row["robust"] for row in one if row["objective"] == name) - floor for one in at.values()
        ]
        right.plot(list(at), above, "o-", label=shown(name))
    right.set(title="By steps", xlabel="steps", ylabel="points above the floor", xscale="log")
    right.set_xticks(list(at), [str(steps) for steps in at])
    right.minorticks_off()
    right.set_ylim(bottom=0)
    right.legend(fontsize=8)
    for panel in (left, right):
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def shown(name: str) -> str:
    """PGD-STD for pgd-std; variants of temperature have speaking names."""
    return OBJECTIVES[name][0] if name in OBJECTIVES else name


if __name__ == "__main__":
    main()
