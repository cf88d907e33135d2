"""How much of a small difference survives each number format: what SPSA lives on.

    python benchmarks/differences.py --model weights.safetensors --data cifar10 --device cuda \
        --out docs/results/benchmarks/differences-h200.json

Difference quotients of the margin over a thousandth of the pixel range along random signs, against float64; and SPSA
itself on some images: all in true float32, and with differences in float16 pairs and its other looks in bf16.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scaleproof import Classifier, Dataset, Speed, evaluate, load, load_model, suite
from scaleproof.losses import margin
from scaleproof.oracle import Oracle
from scaleproof.provenance import provenance
from scaleproof.speed import PLAIN

DIFFERENCE = 1e-3
FORMATS = {"float32": False, "tf32": False, "fp16": False, "bf16": False, "fp16, in pairs": True}


def quotients(oracle: Oracle, x: Tensor, y: Tensor, signs: Tensor, *, pairs: bool) -> Tensor:
    """(f(x + h v) - f(x - h v)) / 2h, f being the margin, in float64 behind the logits."""
    moves = DIFFERENCE * signs
    if pairs:
        sides = oracle.both_sides(x, signs, DIFFERENCE)
    else:
        ahead, behind = ((x[:, None] + side * moves).flatten(0, 1) for side in (1, -1))
        sides = oracle.logits(ahead), oracle.logits(behind)
    labels = y.repeat_interleave(signs.shape[1])
    ahead, behind = (margin(logits.double(), labels) for logits in sides)
    return (ahead - behind) / (2 * DIFFERENCE)


def errors(classifier: Classifier, x: Tensor, y: Tensor, samples: int) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    signs = torch.randn(len(x), samples, *x.shape[1:], device=x.device).sign()
    plain = Oracle(copy.deepcopy(classifier).double(), speed=PLAIN)
    exact = quotients(plain, x.double(), y, signs.double(), pairs=False)
    rows = []
    for name, pairs in FORMATS.items():
        precision = name.split(",", maxsplit=1)[0]
        oracle = Oracle(classifier, speed=Speed(precision=precision, graph=False))  # type: ignore[arg-type]
        found = quotients(oracle, x, y, signs, pairs=pairs)
        rows.append(
            {
                "format": name,
                "computed": "in pairs" if pairs and oracle.choice.pairs is not None else oracle.format,
                "relative_error": float((found - exact).norm() / exact.norm()),
                "correlation": float(torch.corrcoef(torch.stack([found, exact]))[0, 1]),
            }
        )
        print(rows[-1], flush=True)
    return rows


def outcome(classifier: Classifier, data: Dataset, precision: str) -> dict[str, Any]:
    speed = Speed(precision=precision)  # type: ignore[arg-type]
    found = evaluate(classifier, data, suite("spsa-128"), mode="cascade", speed=speed)
    (attack,) = found.attacks
    print(precision, found.robust(), f"{attack.seconds:.1f} s", flush=True)
    return {
        "precision": precision,
        "robust": found.robust().as_json(),
        "queries": attack.forwards,
        "seconds": attack.seconds,
        "broken": [int(row) for row in attack.broken().nonzero()[0]],
        "notes": found.speed["notes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="demo")
    parser.add_argument("--data", default="sample")
    parser.add_argument("--images", type=int, default=32, help="that SPSA attacks; 0: none")
    parser.add_argument("--samples", type=int, default=64, help="directions from each of 16 images")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device, data = torch.device(given.device), load(given.data)
    classifier = load_model(given.model).classifier.to(device)
    x, y = (tensor.to(device) for tensor in data.batch(0, 16))
    document: dict[str, Any] = {
        "schema": "scaleproof.benchmark-differences/1",
        **provenance(device),
        "model": Path(given.model).stem,
        "data": data.name,
        "difference": DIFFERENCE,
        "directions": 16 * given.samples,
        "rows": errors(classifier, x, y, given.samples),
        "images": given.images,
        "spsa": [],
    }
    for precision in ("auto", "float32"):
        if given.out is not None:  # what is known is kept, should the slow part be cut
            given.out.write_text(json.dumps(document, indent=1) + "\n")
        if given.images:
            document["spsa"].append(outcome(classifier, data.first(given.images), precision))
    if given.out is not None:
        given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
