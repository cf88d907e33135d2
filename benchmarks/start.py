"""How long a training takes to its first step: a new process each, with empty and with filled compile caches.

    python benchmarks/start.py --out docs/results/benchmarks/start-h200.json

From the start of Python to the end of the first step of PGD-10 training on CIFAR-10: imports, reading the images,
compiling kernels, capturing the step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def first_step(model: str, data: str, device: str) -> None:
    """One step of a training as the command line runs it; prints the time after each part."""
    import torch

    from scaleproof import Classifier, load
    from scaleproof.defenses import defense
    from scaleproof.models import build
    from scaleproof.speed import waking
    from scaleproof.training import TrainConfig, Trainer

    say("imports")
    with waking(torch.device(device)):
        train, test = load(data, split="train"), load(data, split="test")
    say("data")
    classifier = Classifier(build(model).to(device))
    trainer = Trainer(classifier, train, defense("at"), TrainConfig(), test=test)
    say("trainer")
    next(trainer.run())
    if device == "cuda":
        torch.cuda.synchronize()
    say("first step")


def say(what: str) -> None:
    print(json.dumps({"what": what, "time": time.time()}), flush=True)


def timed(name: str, command: list[str], cache: str) -> dict[str, Any]:
    """Seconds from the start of the process to each line it prints."""
    began = time.time()
    environment = os.environ | {"TRITON_CACHE_DIR": cache, "CUDA_CACHE_PATH": f"{cache}/cuda"}
    found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    row = {"caches": name, "seconds": {line["what"]: line["time"] - began for line in lines}}
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", action="store_true", help="be the process that is timed")
    given = parser.parse_args()
    if given.child:
        first_step(given.model, given.data, given.device)
        return
    import torch

    from scaleproof.provenance import provenance

    words = ["--child", "--model", given.model, "--data", given.data, "--device", given.device]
    command = [sys.executable, __file__, *words]
    with tempfile.TemporaryDirectory() as cache:
        rows = [timed(name, command, cache) for name in ("empty", "filled")]
    document = {
        "schema": "scaleproof.benchmark-start/1",
        **provenance(torch.device(given.device)),
        "model": given.model,
        "data": given.data,
        "rows": rows,
    }
    if given.out is not None:
        given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
