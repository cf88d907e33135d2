"""Adversarial training side by side with the style of published code: seconds an epoch on one GPU.

    python benchmarks/training_speed.py --out docs/results/benchmarks/training-h200.json

PGD-10 adversarial training, batches of 128 CIFAR-sized images, 50,000 images an epoch. Every contender takes the same
steps on resident random images (loading is not measured) and is timed over some hundred of them after a warm-up; an
epoch is 391 steps. "Reference" is a loop as the published code of TRADES and MART writes it: eager float32 (TF32), the
attack's `loss.backward()` fills the weights' gradients too. "Eager" asks autograd for the image's gradient only.
"at-x3" is three networks at a time on streams of their own, as `--seeds` trains them; its time is a third of theirs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.data import Dataset
from scaleproof.defenses import defense, scale_invariant
from scaleproof.models import Classifier, build
from scaleproof.provenance import provenance
from scaleproof.speed import PLAIN, Speed
from scaleproof.training import TrainConfig, Trainer
from scaleproof.training.images import generator, random_places
from scaleproof.training.step import Draws

EPS, STEP, STEPS, BATCH, EPOCH = 8 / 255, 2 / 255, 10, 128, 391
SPEEDS = {
    "float32": PLAIN,
    "streams1": Speed(streams=1),
    "streams2": Speed(streams=2),
    "streams4": Speed(streams=4),
}
PEAK = {"NVIDIA H200": 790e12}  # bf16 FLOP a second, measured on that chip with large matrix products


def timed(step: Callable[[], None], count: int) -> float:
    """Seconds a step, after three for warming up."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / count


def eager(architecture: str, *, lean: bool) -> Callable[[], None]:
    """A plain loop; `lean` asks for the image's gradient alone."""
    net = build(architecture).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    x, y = torch.rand(BATCH, 3, 32, 32, device="cuda"), torch.randint(0, 10, (BATCH,), device="cuda")

    def gradient(point: Tensor) -> Tensor:
        loss = F.cross_entropy(net(point), y)
        if lean:
            return torch.autograd.grad(loss, point)[0]
        loss.backward()
        assert point.grad is not None
        return point.grad

    def step() -> None:
        net.eval()
        current = (x + torch.empty_like(x).uniform_(-EPS, EPS)).clamp(0, 1)
        for _ in range(STEPS):
            point = current.detach().requires_grad_()
            moved = point.detach() + STEP * gradient(point).sign()
            current = torch.min(torch.max(moved, x - EPS), x + EPS).clamp(0, 1)
        net.train()
        optimizer.zero_grad()
        F.cross_entropy(net(current), y).backward()
        optimizer.step()

    return step


def ours(architecture: str, method: str, si: bool, speed: Speed) -> tuple[Callable[[], None], Trainer, float]:
    """One captured step of the trainer, and the seconds until the first one was done."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (2000, 3, 32, 32), np.uint8)
    labels = random.integers(0, 10, 2000).astype(np.int64)
    names = tuple(str(number) for number in range(10))
    data = Dataset(name="noise", split="train", images=images, labels=labels, classes=names, source="random")
    chosen = defense(method)
    chosen = scale_invariant(chosen) if si else chosen
    began = time.perf_counter()
    classifier = Classifier(build(architecture).cuda())
    config = TrainConfig(validation=0, batch_size=BATCH, rate=0.01)
    trainer = Trainer(classifier, data, chosen, config, speed=speed)
    chance = generator(torch.device("cuda"), "benchmark")
    rows = torch.arange(BATCH, device="cuda")

    def step() -> None:
        draws = Draws(rows, random_places(BATCH, chance), trainer.noise(chosen, BATCH, chance))
        trainer.stepper.step(chosen, draws, 0.01)

    step()
    torch.cuda.synchronize()
    return step, trainer, time.perf_counter() - began


def beside(architecture: str, method: str, copies: int) -> tuple[Callable[[], None], Trainer, float]:
    """A step of each of several trainings, on a stream of its own."""
    stream: Any = torch.cuda.Stream
    streams, works = [stream() for _ in range(copies)], []
    for own in streams:
        with torch.cuda.stream(own):
            works.append(ours(architecture, method, False, Speed()))

    def step() -> None:
        for own, (work, _, _) in zip(streams, works, strict=True):
            with torch.cuda.stream(own):
                work()

    return step, works[0][1], sum(work[2] for work in works)


def convolution_flops(architecture: str) -> float:
    """Multiply-adds of one forward pass of one image, times two."""
    total = 0.0

    def count(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal total
        total += 2.0 * output[0].numel() * module.weight[0].numel()

    net = build(architecture).eval()
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(count)
    with torch.no_grad():
        net(torch.zeros(1, 3, 32, 32))
    return total


def measure(architecture: str, contenders: list[str], count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in contenders:
        row: dict[str, Any] = {"model": architecture, "contender": name, "steps": count}
        if name in ("reference", "eager"):
            seconds = timed(eager(architecture, lean=name == "eager"), count)
        else:
            method, _, kind = name.partition("-")
            copies = int(kind[1:]) if kind.startswith("x") else 1
            if copies > 1:
                step, trainer, first = beside(architecture, method, copies)
            else:
                step, trainer, first = ours(architecture, method, kind == "si", SPEEDS.get(kind, Speed()))
            seconds = timed(step, count) / copies
            row |= {"first_step_seconds": first, "speed": trainer.stepper.notes()}
            row["replays"] = trainer.defense.replays
        steps = EPOCH * row.get("replays", 1)
        rows.append(row | {"step_ms": 1000 * seconds, "epoch_seconds": steps * seconds})
        torch.cuda.empty_cache()
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="resnet18")
    parser.add_argument(
        "--contenders", default="reference,eager,at,at-si,trades,trades-si,alp,mart,rfgsm,free,gat"
    )
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    rows: list[dict[str, Any]] = []
    for model in given.models.split(","):
        rows += measure(model, given.contenders.split(","), given.steps)
    device = torch.device("cuda")
    passes = {"at": 23.0}  # forward, input gradient and weight gradient count one each
    for row in rows:
        if row["contender"] in passes:
            flops = convolution_flops(row["model"]) * BATCH * passes[row["contender"]]
            rate = flops / (row["step_ms"] / 1000)
            peak = PEAK.get(torch.cuda.get_device_name())
            row |= {"tflops": rate / 1e12, "share_of_peak": None if peak is None else rate / peak}
    schema = {"schema": "scaleproof.benchmark-training/1"}
    document = {**schema, "batch": BATCH, "epoch_steps": EPOCH, **provenance(device), "rows": rows}
    if given.out is not None:
        given.out.write_text(json.dumps(document, indent=1) + "\n")
    base = {row["model"]: row["epoch_seconds"] for row in rows if row["contender"] == "reference"}
    for row in rows:
        ratio = base.get(row["model"], float("nan")) / row["epoch_seconds"]
        print(f"{row['model']:10} {row['contender']:14} {row['epoch_seconds']:8.2f} s an epoch  {ratio:6.2f}")


if __name__ == "__main__":
    main()
