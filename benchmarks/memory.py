"""Peak memory of an evaluation against the number of images: it must not grow.

    python benchmarks/memory.py [--device cuda] [--counts 250,1000] [--data sample]

Each count runs in a process of its own: a one-step PGD on the demo network, cascade mode, and the process's peak.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

import torch

from scaleproof import evaluate, load, load_model, suite

BATCH = 100  # far below every count, so that only the number of images differs


def measure(count: int, device: str, data: str, folder: str | None) -> dict[str, float]:
    dataset = load(data, folder=folder).first(count)
    model = load_model("demo").classifier.to(device)
    evaluation = evaluate(model, dataset, suite("pgd,si-pgd", steps=1), mode="cascade", batch_size=BATCH)
    peak = {
        "images": evaluation.count,
        "process_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    if device != "cpu":
        peak["device_mb"] = torch.cuda.max_memory_allocated() / 2**20
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", default="sample")
    parser.add_argument("--data-folder")
    parser.add_argument("--counts", default="250,500,1000")
    parser.add_argument("--one", type=int, help="measure this count in this process")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one, given.device, given.data, given.data_folder)))
        return
    for count in given.counts.split(","):
        words = [sys.executable, __file__, *sys.argv[1:], "--one", count]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        print(done.stdout.strip())


if __name__ == "__main__":
    main()
