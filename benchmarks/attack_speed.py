"""PGD-20 side by side with torchattacks and foolbox: image-steps a second, time to the verdict, robust accuracy.

    make bench                                                        (CPU: the demo network, 500 images)
    python benchmarks/attack_speed.py --device cuda --model weights.safetensors --arch resnet18 \
        --data cifar10 --images 10000 --out docs/results/benchmarks/h200.json

Every contender attacks the same correctly classified images with the same settings (Linf, eps 8/255, 20 steps of
eps / 4, uniform start, last iterate); every verdict is the model's own float32 decision. Each contender runs at each
of --batches (ours in float32 at the first alone) and is credited with its fastest. "No dropping" is the speed of the
attack alone; "verdict" is the whole way from images to a robust accuracy, clean pass and judgement included.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scaleproof import Oracle, Rng, Speed, evaluate, load, load_model, suite
from scaleproof.attacks import perturb
from scaleproof.attacks.loop import Packing
from scaleproof.evaluator import Mode
from scaleproof.images import even_chunks
from scaleproof.models import as_classifier
from scaleproof.models.specs import import_timm
from scaleproof.provenance import provenance
from scaleproof.speed import exact_float32

EPS, STEPS = 8 / 255, 20
Attack = Callable[[Tensor, Tensor], Tensor]
Contender = Callable[[int], dict[str, Any]]  # from a batch size to what was measured


def torchattacks_pgd(model: torch.nn.Module) -> Attack:
    import_timm()  # beside a CPU torch, torchvision imports only after this
    import torchattacks

    return torchattacks.PGD(model, eps=EPS, alpha=EPS / 4, steps=STEPS, random_start=True)


def foolbox_pgd(model: torch.nn.Module) -> Attack:
    import foolbox

    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=next(model.parameters()).device)
    attack = foolbox.attacks.LinfPGD(rel_stepsize=0.25, steps=STEPS, random_start=True)
    return lambda x, y: attack(wrapped, x, y, epsilons=EPS)[1]


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def predictions(model: torch.nn.Module, x: Tensor, batch: int) -> Tensor:
    with torch.no_grad(), exact_float32():
        return torch.cat([model(part).argmax(1) for part in x.split(batch)])


def run_peer(
    make: Callable[[torch.nn.Module], Attack], model: torch.nn.Module, x: Tensor, y: Tensor, batch: int
) -> dict[str, Any]:
    attack, device = make(model), x.device
    attack(x[:batch], y[:batch])  # warm-up
    synchronise(device)
    began = time.perf_counter()
    right = predictions(model, x, batch) == y
    chosen, labels = x[right], y[right]
    synchronise(device)
    started = time.perf_counter()
    found = torch.cat([attack(a, b) for a, b in zip(chosen.split(batch), labels.split(batch), strict=True)])
    synchronise(device)
    attacked = time.perf_counter() - started
    robust = int((predictions(model, found.detach(), batch) == labels).sum())
    synchronise(device)
    return {
        "batch": batch,
        "image_steps_per_second": len(chosen) * STEPS / attacked,
        "verdict_seconds": time.perf_counter() - began,
        "robust": 100 * robust / len(x),
    }


def run_ours(
    model: torch.nn.Module, x: Tensor, y: Tensor, batch: int, *, speed: Speed, mode: Mode = "independent"
) -> dict[str, Any]:
    attack = suite("pgd", steps=STEPS)
    began = time.perf_counter()
    evaluate(model, (x[: 2 * batch], y[: 2 * batch]), attack, mode=mode, batch_size=batch, speed=speed)
    synchronise(x.device)
    warm_up = time.perf_counter() - began
    began = time.perf_counter()
    evaluation = evaluate(model, (x, y), attack, mode=mode, batch_size=batch, speed=speed)
    seconds = time.perf_counter() - began
    (result,) = evaluation.attacks
    right = torch.from_numpy(evaluation.clean_correct).to(x.device)
    return {
        "batch": batch,
        "image_steps_per_second": steps_per_second(
            model, x[right], y[right], batch, speed, mode == "cascade"
        ),
        "verdict_seconds": seconds,
        "first_call_seconds": warm_up,
        "robust": 100 * evaluation.robust().accuracy,
        "backwards": result.backwards,
        "speed": evaluation.speed,
    }


def steps_per_second(
    model: torch.nn.Module, x: Tensor, y: Tensor, batch: int, speed: Speed, drop: bool
) -> float:
    """The attack alone, warm, on every image: steps asked for over seconds taken."""
    (attack,), oracle = suite("pgd", steps=STEPS), Oracle(as_classifier(model), speed=speed, images=x)
    index, rng = torch.arange(len(x), device=x.device), Rng(0, "pgd")
    parts = [torch.from_numpy(rows).to(x.device) for rows in even_chunks(index.cpu().numpy(), batch)]
    packing = Packing(len(parts[0]), pad=oracle.graphs is not None)
    chunks = [(x[part], y[part], part) for part in parts]
    for timed in (False, True):
        synchronise(x.device)
        began = time.perf_counter()
        for clean, labels, part in chunks if timed else (chunks[0], chunks[-1]):
            perturb(attack, oracle, clean, labels, part, rng, drop=drop, packing=packing)
        synchronise(x.device)
    return len(x) * STEPS / (time.perf_counter() - began)


def fastest(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return max(runs, key=lambda run: run["image_steps_per_second"])


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="demo")
    parser.add_argument("--arch")
    parser.add_argument("--data", default="sample")
    parser.add_argument("--data-folder", type=Path)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--batches", default="100,250")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true", help="time torch.compile as well")
    parser.add_argument("--skip", default="", help="contenders to leave out, with semicolons between")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def contenders_on(model: torch.nn.Module, x: Tensor, y: Tensor, *, compiled: bool) -> dict[str, Contender]:
    """Everyone who takes part, by name: each attacks these images at a batch size."""
    ours = partial(run_ours, model, x, y)
    contenders: dict[str, Contender] = {
        "torchattacks": partial(run_peer, torchattacks_pgd, model, x, y),
        "foolbox": partial(run_peer, foolbox_pgd, model, x, y),
        "ours, plain float32": partial(ours, speed=Speed(precision="float32", fold=False, graph=False)),
        "ours, float32": partial(ours, speed=Speed(precision="float32")),
        "ours": partial(ours, speed=Speed()),
        "ours, dropping": partial(ours, speed=Speed(), mode="cascade"),
    }
    if compiled:
        contenders["ours, compiled"] = partial(ours, speed=Speed(compile=True))
    return contenders


def main() -> None:
    given = options()
    device = torch.device(given.device)
    dataset = load(given.data, folder=given.data_folder)
    x, y = (tensor.to(device) for tensor in dataset.batch(0, given.images))
    model = load_model(given.model, architecture=given.arch).classifier.to(device)
    batches = [int(batch) for batch in given.batches.split(",")]
    results = {
        name: fastest([run(batch) for batch in (batches[:1] if "float32" in name else batches)])
        for name, run in contenders_on(model, x, y, compiled=given.compile).items()
        if name not in given.skip.split(";")
    }
    show(results, given.images)
    if given.out is not None:
        write(given, device, results)


def write(given: argparse.Namespace, device: torch.device, results: dict[str, dict[str, Any]]) -> None:
    """The results with what they were measured on, as JSON."""
    record = {
        "schema": "scaleproof.benchmark-attacks/1",
        **provenance(device),
        "model": given.model,
        "arch": given.arch,
        "images": given.images,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    peak = {"process_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}
    given.out.write_text(json.dumps({**record, "results": results, "peak": peak}, indent=2) + "\n")


def show(results: dict[str, dict[str, Any]], images: int) -> None:
    base = results["torchattacks"]
    print(f"PGD-20, {images} images; ratios to torchattacks in this run")
    print(
        f"{'':22}{'batch':>6}{'image-steps/s':>15}{'ratio':>7}{'verdict s':>11}{'ratio':>7}"
        f"{'robust %':>10}{'first call s':>14}"
    )
    for name, run in results.items():
        speed, verdict = run["image_steps_per_second"], run["verdict_seconds"]
        print(
            f"{name:22}{run['batch']:6}{speed:15,.0f}{speed / base['image_steps_per_second']:7.2f}{verdict:11.2f}"
            f"{base['verdict_seconds'] / verdict:7.2f}{run['robust']:10.2f}{run.get('first_call_seconds', 0):14.1f}"
        )


if __name__ == "__main__":
    main()
