"""Which target should be tried first? Rankings of targets beside what a search towards every one of them finds.

    python benchmarks/rankings.py --models demo --data cifar10 --skip 3000 --images 3000 --seeds 0,1,2 \
        --out docs/results/benchmarks/rankings-cpu.json
    python benchmarks/rankings.py --models at=at.safetensors --data cifar10 --device cuda --out ...

A short PGD on the standardised margin leaves some images. On each of them targeted APGD on the CW margin searches
towards each of the nine likeliest wrong classes; images that any of these searches breaks are the ones that count.
A ranking is as good as the share of them that its first, first two or first three targets break. Rankings: the
clean logits (AutoAttack), the logits where the PGD ended, scouts, slopes (MALT); chance is one of the nine drawn.
A screen says which images are worth a search at all: by the margin where the PGD ended, or by that of the best scout.
It is as good as the share of the images, nearest first, among which those are that count.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from budget import first, search
from numpy.typing import NDArray
from objectives import classifiers
from torch import Tensor

from scaleproof import Classifier, Threat, attack_batch, evaluate, load
from scaleproof.attacks import Scouts, Slopes
from scaleproof.attacks.base import likeliest_wrong
from scaleproof.attacks.rankings import ordered
from scaleproof.losses import cw_margin, standardised_margin
from scaleproof.oracle import Oracle
from scaleproof.provenance import provenance
from scaleproof.statistics import paired

BASE, FIRSTS, AMONG = "clean logits", (1, 2, 3), 9
PARTS = {"half": 0.5, "nine tenths": 0.9, "all": 1.0}

Flags = NDArray[np.bool_]


def orders(classifier: Classifier, x: Tensor, y: Tensor, ended: Tensor) -> dict[str, Tensor]:
    """Of each ranking: nine wrong classes, the first to try first (B, 9); with gradients in float32."""
    oracle, threat = Oracle(classifier, images=x), Threat()
    by_logits = [
        torch.stack([likeliest_wrong(oracle.logits(at), y, place) for place in range(1, AMONG + 1)], dim=1)
        for at in (x, ended)
    ]
    found = {BASE: by_logits[0], "logits where PGD ended": by_logits[1]}
    return found | {kind.name: ordered(kind, oracle, threat, x, y) for kind in (Scouts(), Slopes())}


def best_scout(classifier: Classifier, x: Tensor, y: Tensor, batch: int) -> Tensor:
    """The margin that the best of nine scouts reaches (B,)."""
    oracle, parts = Oracle(classifier, images=x), []
    for clean, truth in zip(x.split(batch), y.split(batch), strict=True):
        logits = oracle.logits(clean)
        targets = [likeliest_wrong(logits, truth, place) for place in range(1, AMONG + 1)]
        reached = [Scouts().promise(oracle, Threat(), clean, truth, target) for target in targets]
        parts.append(torch.stack(reached).amax(0))
    return torch.cat(parts)


def needed(margin: NDArray[np.floating[Any]], counts: Flags) -> dict[str, float]:
    """The share of the images, largest margin first, that holds so much of those that count."""
    places = np.flatnonzero(counts[np.argsort(-margin, kind="stable")])
    last = {name: places[math.ceil(part * len(places)) - 1] for name, part in PARTS.items()}
    return {name: float(place + 1) / len(counts) for name, place in last.items()}


def measured(
    classifier: Classifier, images: tuple[Tensor, Tensor], seed: int, given: argparse.Namespace
) -> dict[str, Any]:
    """One seed: how many images were left, how many a target breaks, and how often each ranking is right."""
    pgd = first(standardised_margin(4.0))
    short = evaluate(classifier, images, pgd, mode="cascade", seed=seed, batch_size=given.batch)
    left = short.survivors()
    device = next(classifier.parameters()).device
    x, y = (tensor[torch.from_numpy(left)].to(device) for tensor in images)
    every = search(cw_margin, given.steps, targets=AMONG)
    found = evaluate(classifier, (x, y), every, mode="independent", seed=seed, batch_size=given.batch)
    breaks = torch.from_numpy(
        np.asarray(found.attacks[0].verdicts["broken"])
    ).T  # (B, 9), by the clean logits
    counts = breaks.any(1).numpy()
    margins = {
        "margin where PGD ended": np.asarray(short.attacks[0].verdicts["margin"])[0, left],
        "margin of the best scout": best_scout(classifier, x, y, given.batch).cpu().numpy(),
    }
    rows = np.flatnonzero(counts)
    x, y, breaks = x[rows], y[rows], breaks[rows]
    ended = attack_batch(pgd, classifier, x, y, seed=seed)
    tried = orders(classifier, x, y, ended)
    table = torch.zeros(len(x), int(tried[BASE].max()) + 1, dtype=torch.bool)
    table.scatter_(1, tried[BASE].cpu(), breaks)  # whether the search towards a class breaks an image
    hits = {name: table.gather(1, order.cpu()).numpy() for name, order in tried.items()}
    return {
        "seed": seed,
        "left": int(left.sum()),
        "breakable": len(rows),
        "chance": float(breaks.float().mean()),
        "screens": {name: needed(margin, counts) for name, margin in margins.items()},
        "rankings": {name: judged(hit, hits[BASE]) for name, hit in hits.items()},
    }


def judged(hits: Flags, base: Flags) -> dict[str, Any]:
    """How many images the first few targets break, and beside the clean logits which the first one alone does."""
    return {
        "broken_by_first": {str(count): int(hits[:, :count].any(1).sum()) for count in FIRSTS},
        "beside_logits": paired(hits[:, 0], base[:, 0]).as_json(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="demo=demo", help="NAME=FILE or a model's own name, with commas")
    parser.add_argument("--data", default="sample")
    parser.add_argument(
        "--skip", type=int, default=0, help="leave out the first images: some may be known by heart"
    )
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--steps", type=int, default=50, help="of the search towards each target")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--seeds", default=[0], type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device, data = torch.device(given.device), load(given.data)
    images = data.batch(given.skip, given.skip + given.images)
    document: dict[str, Any] = {
        "schema": "scaleproof.benchmark-rankings/1",
        **provenance(device),
        "data": data.name,
        "skipped": given.skip,
        "images": len(images[1]),
        "steps": given.steps,
        "seeds": given.seeds,
        "models": [],
    }
    for name, net in classifiers(given.models, device):
        document["models"].append({"model": name, "seeds": []})
        for seed in given.seeds:
            document["models"][-1]["seeds"].append(measured(net, images, seed, given))
            show(name, document["models"][-1]["seeds"][-1])
            if given.out is not None:  # after every seed: a run that is cut keeps what it has
                given.out.write_text(json.dumps(document, indent=1) + "\n")


def show(name: str, found: Mapping[str, Any]) -> None:
    count = max(found["breakable"], 1)
    print(f"{name}, seed {found['seed']}: {found['breakable']} of {found['left']} images can be broken")
    print(f"  {100 * found['chance']:5.1f}%  a target by chance")
    for screen, shares in found["screens"].items():
        told = ", ".join(f"{part} in {100 * share:.1f}%" for part, share in shares.items())
        print(f"  {screen}: {told}")
    for ranking, row in found["rankings"].items():
        shares = "  ".join(f"{100 * hits / count:5.1f}%" for hits in row["broken_by_first"].values())
        print(f"  {shares}  {ranking}", flush=True)


if __name__ == "__main__":
    main()
