"""How the cost of an evaluation grows: with images, with classes, with the size of the model.

    python benchmarks/growth.py --device cuda --model weights.safetensors --arch resnet18 --data cifar10 \
        --out docs/results/benchmarks/growth-h200.json

Images: the suite `fast` on the first n images of a trained network. Classes and models: PGD-20 with every step, on
networks with fresh weights, whose decisions are taken as labels; what a step costs does not depend on the weights. A
picture goes beside the JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scaleproof import Threat, evaluate, load, load_model, suite
from scaleproof.audit import audit_of
from scaleproof.models import Classifier, build
from scaleproof.provenance import provenance

CLASSES = (2, 10, 100, 1000)


def by_images(given: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    classifier = load_model(given.model, architecture=given.arch).classifier.to(device)
    data, rows = load(given.data), []
    for count in given.images:
        began = time.perf_counter()
        found = evaluate(classifier, data.first(count), suite("fast"))
        audit = audit_of(found)
        passes = sum(result.forwards + result.backwards for result in found.attacks)
        rows.append(
            {
                "images": count,
                "seconds": time.perf_counter() - began,
                "passes": passes,
                "robust": found.robust().as_json(),
                "audit": None if audit is None else audit.as_json(),
            }
        )
        print(
            "images", json.dumps({key: rows[-1][key] for key in ("images", "seconds", "passes")}), flush=True
        )
    return rows


def steps_a_second(net: nn.Module, given: argparse.Namespace, device: torch.device) -> float:
    """Images times steps a second of PGD-20, after one run that warms up."""
    classifier = Classifier(net.eval().to(device))
    x, _ = load(given.data).batch(0, given.batch)
    with torch.no_grad():
        y = classifier(x.to(device)).argmax(1).cpu()
    attack = suite("pgd", Threat())
    evaluate(classifier, (x, y), attack, batch_size=given.batch)
    found = evaluate(classifier, (x, y), attack, batch_size=given.batch).attacks[0]
    return found.backwards / found.seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="demo")
    parser.add_argument("--arch")
    parser.add_argument("--data", default="sample")
    parser.add_argument(
        "--images", type=lambda text: [int(n) for n in text.split(",")], default=[50, 100, 200, 400]
    )
    parser.add_argument("--models", default="resnet-tiny,resnet-small,resnet18")
    parser.add_argument("--classes-model", default="resnet-small")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device = torch.device(given.device)
    document: dict[str, Any] = {
        "schema": "scaleproof.benchmark-growth/1",
        **provenance(device),
        "model": Path(given.model).stem,
        "batch": given.batch,
        "images": by_images(given, device),
        "classes": [],
        "models": [],
    }
    for classes in CLASSES:
        speed = steps_a_second(build(given.classes_model, classes=classes), given, device)
        document["classes"].append(
            {"model": given.classes_model, "classes": classes, "image_steps_per_second": speed}
        )
        print("classes", classes, round(speed), flush=True)
    for name in given.models.split(","):
        net = build(name)
        size = sum(parameter.numel() for parameter in net.parameters())
        speed = steps_a_second(net, given, device)
        document["models"].append({"model": name, "parameters": size, "image_steps_per_second": speed})
        print("model", name, round(speed), flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps(document, indent=1) + "\n")
        draw(document, given.out.with_suffix(".png"))


def draw(document: dict[str, Any], path: Path) -> None:
    """Three panels; the last is logarithmic in both directions."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    rows = document["images"]
    left.plot([row["images"] for row in rows], [row["seconds"] for row in rows], "o-")
    left.set(title="Suite fast, by images", xlabel="images", ylabel="seconds")
    rows = document["classes"]
    middle.plot([row["classes"] for row in rows], [1e6 / row["image_steps_per_second"] for row in rows], "s-")
    middle.set(
        title=f"PGD, by classes ({rows[0]['model']})",
        xlabel="classes",
        ylabel="microseconds an image and step",
    )
    rows = document["models"]
    right.plot(
        [row["parameters"] for row in rows], [1e6 / row["image_steps_per_second"] for row in rows], "^"
    )
    for row in rows:
        place = (row["parameters"], 1e6 / row["image_steps_per_second"])
        right.annotate(
            row["model"], place, xytext=(-6, 2), textcoords="offset points", fontsize=8, ha="right"
        )
    right.set(title="PGD, by model", xlabel="parameters", ylabel="microseconds an image and step")
    right.margins(0.15)
    for panel in (middle, right):
        panel.set_xscale("log")
    right.set_yscale("log")
    for panel in (left, middle):
        panel.set_ylim(0, 1.1 * panel.get_ylim()[1])
    for panel in (left, middle, right):
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
