"""AutoAttack "standard" beside the published implementation (pyautoattack), stage by stage, on the same images.

    pip install --no-deps pyautoattack
    python benchmarks/autoattack_parity.py --images 200 --out docs/results/benchmarks/parity-cpu.json       (CPU)
    python benchmarks/autoattack_parity.py --device cuda --model weights.safetensors --arch resnet18 --data cifar10 \
        --images 1000 --batch 500 --out docs/results/benchmarks/parity-h200.json
    python benchmarks/autoattack_parity.py --norm l2 --eps 0.5 --images 50 \
        --out docs/results/benchmarks/parity-l2-cpu.json

Both attack what their own earlier stages left. Robust accuracy after each stage, the share of images on which the two
agree, seconds, and forward and backward passes, counted by a wrapper around the peer's model and by our oracle.
"""

from __future__ import annotations

import argparse
import json
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scaleproof import Speed, Threat, evaluate, load, load_model, suite
from scaleproof.attacks import Square
from scaleproof.provenance import provenance

PEERS_NAMES = {"linf": "Linf", "l2": "L2"}
STAGES = ("apgd-ce", "apgd-t", "fab-t", "square")


class Counting(nn.Module):
    """The peer's view of the model: counts images that pass forwards, and those that are differentiated."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.forwards, self.backwards = net, 0, 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += len(x)
        if torch.is_grad_enabled() and x.requires_grad:
            self.backwards += len(x)
        logits: Tensor = self.net(x)
        return logits


def seconds_since(began: float, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def run_peer(net: nn.Module, x: Tensor, y: Tensor, given: argparse.Namespace) -> list[dict[str, Any]]:
    from pyautoattack import AutoAttack

    model, rows = Counting(net).eval(), []
    with torch.no_grad():
        alive = torch.cat([net(part) for part in x.split(given.batch)]).argmax(1) == y
    for stage in given.stages.split(","):
        model.forwards = model.backwards = 0
        attack = AutoAttack(
            model,
            norm=PEERS_NAMES[given.norm],
            eps=float(Fraction(given.eps)),
            version="custom",
            attacks=[stage],
            device=given.device,
            seed=0,
        )
        attack.apgd.n_restarts = 1  # as in its version "standard"
        attack.square.n_queries = given.queries
        began = time.perf_counter()
        found = attack.run_standard_evaluation(x[alive], y[alive], batch_size=given.batch)[0]
        with torch.no_grad():
            right = torch.cat([net(part) for part in found.split(given.batch)]).argmax(1) == y[alive]
        seconds = seconds_since(began, x.device)
        before, alive = alive, alive.clone()
        alive[before] = right
        rows.append(
            {
                "stage": stage,
                "robust": alive.cpu().numpy(),
                "seconds": seconds,
                "forwards": model.forwards,
                "backwards": model.backwards,
            }
        )
    return rows


def run_ours(
    net: nn.Module, x: Tensor, y: Tensor, given: argparse.Namespace, precision: str
) -> list[dict[str, Any]]:
    attacks = [
        Square(threat=attack.threat, steps=given.queries) if attack.name == "square" else attack
        for attack in suite(given.stages, Threat(norm=given.norm, eps=float(Fraction(given.eps))))
    ]
    speed = Speed(precision=precision)  # type: ignore[arg-type]
    evaluation = evaluate(net, (x, y), attacks, mode="cascade", batch_size=given.batch, speed=speed)
    alive, rows = evaluation.clean_correct.copy(), []
    for result in evaluation.attacks:
        alive = alive & ~result.broken()
        rows.append(
            {
                "stage": result.name,
                "robust": alive.copy(),
                "seconds": result.seconds,
                "forwards": result.forwards,
                "backwards": result.backwards,
            }
        )
    return rows


def compared(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for mine, peer in zip(ours, theirs, strict=True):
        rows.append(
            {
                "stage": mine["stage"],
                "ours": {key: mine[key] for key in ("seconds", "forwards", "backwards")}
                | {"robust": 100 * float(np.mean(mine["robust"]))},
                "theirs": {key: peer[key] for key in ("seconds", "forwards", "backwards")}
                | {"robust": 100 * float(np.mean(peer["robust"]))},
                "agreement": 100 * float(np.mean(mine["robust"] == peer["robust"])),
            }
        )
    return rows


def told(who: str, run: dict[str, Any]) -> str:
    passes = f"{run['forwards']:>10,}/{run['backwards']:>9,}"
    return f"{who} {run['robust']:6.2f}% {run['seconds']:7.1f} s {passes}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="demo")
    parser.add_argument("--arch")
    parser.add_argument("--data", default="sample")
    parser.add_argument("--norm", default="linf", choices=sorted(PEERS_NAMES))
    parser.add_argument("--eps", default="8/255")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--precisions", default="float32")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device = torch.device(given.device)
    classifier = load_model(given.model, architecture=given.arch).classifier.to(device)
    x, y = (tensor.to(device) for tensor in load(given.data).batch(0, given.images))
    theirs = run_peer(classifier, x, y, given)
    document: dict[str, Any] = {
        "schema": "scaleproof.benchmark-parity/1",
        **provenance(device),
        "model": given.arch or given.model,
        "threat": f"{given.norm} {given.eps}",
        "batch": given.batch,
        "images": given.images,
        "queries": given.queries,
        "rows": {},
    }
    for precision in given.precisions.split(","):
        rows = compared(run_ours(classifier, x, y, given, precision), theirs)
        document["rows"][precision] = rows
        for row in rows:
            mine, peer = row["ours"], row["theirs"]
            print(f"{precision:8} {row['stage']:8} {told('ours', mine)}   {told('theirs', peer)}", end="   ")
            print(f"agree {row['agreement']:6.2f}%", flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
