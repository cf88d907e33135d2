"""Which part of SI helps: the cosine in the training attack, the margin term outside, or both together?

    for seed in 0 1 2; do
        scaleproof train at                         --seed $seed --out runs/plain/seed-$seed ...
        scaleproof train at --si --si-half inner    --seed $seed --out runs/inner/seed-$seed ...
        scaleproof train at --si --si-half outer    --seed $seed --out runs/outer/seed-$seed ...
        scaleproof train at --si                    --seed $seed --out runs/both/seed-$seed ...
    done
    python benchmarks/parts_of_si.py --runs runs --seeds 0,1,2 --data cifar10 --out parts.json

The selected weights of every training are attacked on the same test images: by PGD-20 on cross entropy, which SI is
said to withstand, and by a cascade that comes near AutoAttack's figure (docs/budget.md), or by AutoAttack itself
(`--floor standard-bf16`). What lies between the two is what PGD overlooks. Every part is compared with the plain
training of the same seed, which began with the same weights and saw the same images in the same order.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from budget import first, search
from numpy.typing import NDArray

from scaleproof import Classifier, Dataset, evaluate, load, load_model, suite
from scaleproof.attacks import Attack
from scaleproof.losses import cw_margin, standardised_margin
from scaleproof.provenance import provenance
from scaleproof.statistics import paired

PLAIN = "plain"
CASCADE = "cascade"

Right = dict[str, NDArray[np.bool_]]  # by column: which images a network gets right


def floor(name: str) -> tuple[Attack, ...]:
    """The attacks that are to find what PGD overlooks."""
    if name == CASCADE:
        return first(standardised_margin(4.0)), search(cw_margin, 20, targets=9)
    return suite(name)


def right(classifier: Classifier, data: Dataset, given: argparse.Namespace) -> Right:
    found = evaluate(classifier, data, suite("pgd"), batch_size=given.batch)
    lowest = evaluate(classifier, data, floor(given.floor), mode="cascade", batch_size=given.batch)
    return {
        "clean": found.clean_correct,
        "pgd": found.survivors(),
        "floor": found.survivors() & lowest.survivors(),
    }


def measured(folder: Path, data: Dataset, device: torch.device, given: argparse.Namespace) -> dict[str, Any]:
    """One training: what it was, and what its selected weights get right."""
    loaded = load_model(str(folder))
    training, run = (json.loads((folder / f"{name}.json").read_text()) for name in ("training", "run"))
    return {
        "right": right(loaded.classifier.to(device), data, given),
        "command": run["command"],
        "commit": run["commit"],
        "hardware": run["hardware"],
        "epoch": training["results"]["selected"]["epoch"],
        "epochs": len(training["history"]),
        "weights_sha256": training["results"]["selected"]["weights_sha256"],
        "last": training["history"][-1],
    }


def row(seed: int, one: Mapping[str, Any], plain: Right) -> dict[str, Any]:
    """A training as a document keeps it: accuracies, and where it differs from the plain one."""
    facts = {key: value for key, value in one.items() if key not in ("right", "last")}
    telemetry = {key: one["last"][key] for key in ("weight_norm",)}
    telemetry |= {key: one["last"]["validation"][key] for key in ("feature_norm", "true_cosine")}
    flags: Right = one["right"]
    return {
        "seed": seed,
        **facts,
        **telemetry,
        "correct": {column: int(found.sum()) for column, found in flags.items()},
        "beside_plain": {column: paired(plain[column], found).as_json() for column, found in flags.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=Path, required=True, help="holds PART/seed-N for every part and seed")
    parser.add_argument("--parts", default="plain,inner,outer,both", type=lambda text: text.split(","))
    parser.add_argument("--seeds", default=[0, 1, 2], type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--floor", default=CASCADE, help=f"{CASCADE}, or a suite: standard-bf16")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device, data = torch.device(given.device), load(given.data).first(given.images)
    document: dict[str, Any] = {
        "schema": "scaleproof.benchmark-parts/1",
        **provenance(device),
        "data": data.name,
        "images": len(data),
        "floor": given.floor,
        "seeds": [],
        "parts": [{"part": part, "seeds": []} for part in ordered(given.parts)],
    }
    for seed in given.seeds:
        plain: Right = {}
        for part in document["parts"]:
            one = measured(given.runs / part["part"] / f"seed-{seed}", data, device, given)
            plain = plain or one["right"]
            part["seeds"].append(row(seed, one, plain))
            print(seed, part["part"], part["seeds"][-1]["correct"], flush=True)
        document["seeds"].append(seed)
        if given.out is not None:  # after every seed: a run that is cut keeps what it has
            given.out.write_text(json.dumps(document, indent=1) + "\n")


def ordered(parts: Sequence[str]) -> list[str]:
    """The plain training first: the others are compared with it."""
    if PLAIN not in parts:
        raise SystemExit(
            f"--parts needs {PLAIN!r}, with which the others are compared; got {','.join(parts)}"
        )
    return [PLAIN, *(part for part in parts if part != PLAIN)]


if __name__ == "__main__":
    main()
