"""What the checks cost beside AutoAttack `standard` on the same images, measured in one run.

python benchmarks/check_cost.py [--device cuda] [--model demo] [--images 1000] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from scaleproof import evaluate, load, load_model, suite
from scaleproof.attacks import preset
from scaleproof.checks import examine, failed
from scaleproof.files import write_atomically
from scaleproof.provenance import provenance
from scaleproof.speed import Speed
from scaleproof.threat import Threat


def settled(device: torch.device) -> float:
    """The time, once the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def measure(given: argparse.Namespace) -> dict[str, Any]:
    device = torch.device(given.device)
    dataset = load(given.data, folder=given.data_folder).first(given.images)
    loaded = load_model(given.model, architecture=given.arch)
    model, surrogate = loaded.classifier.to(device), load_model("undefended").classifier.to(device)
    threat = Threat(eps=8 / 255)
    examine(model, dataset, threat, count=8, surrogate=surrogate)  # warm
    start = settled(device)
    checks = examine(model, dataset, threat, surrogate=surrogate)
    examined = settled(device)
    speed = Speed(precision=preset("standard").precision)  # type: ignore[arg-type]
    found = evaluate(model, dataset, suite("standard", threat), mode="cascade", speed=speed)
    end = settled(device)
    return {
        "model": loaded.architecture,
        "images": len(dataset),
        "checks": len(checks),
        "failed": list(failed(checks)),
        "robust": 100 * found.robust().accuracy,
        "checks_seconds": examined - start,
        "standard_seconds": end - examined,
        "share_percent": 100 * (examined - start) / (end - examined),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--arch")
    parser.add_argument("--data", default="sample")
    parser.add_argument("--data-folder")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    document = {
        "schema": "scaleproof.benchmark-checks/1",
        **provenance(torch.device(given.device)),
        **measure(given),
    }
    text = json.dumps(document, indent=2) + "\n"
    print(text)
    if given.out:
        write_atomically(given.out, text.encode())


if __name__ == "__main__":
    main()
