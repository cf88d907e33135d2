"""Gallery: a few images and what an attack made of them, for people to look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from scaleproof.attacks.base import Attack
from scaleproof.attacks.loop import perturb
from scaleproof.attacks.sampled import whole
from scaleproof.evaluation import Evaluation
from scaleproof.images import Images
from scaleproof.losses import decided
from scaleproof.models.classifier import as_classifier, device_of
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.speed import Speed

MOST = 12


def gallery(
    model: nn.Module,
    images: Images,
    attacks: Sequence[Attack],
    evaluation: Evaluation,
    *,
    seed: int = 0,
    speed: Speed | None = None,
) -> dict[str, NDArray[Any]] | None:
    """Up to a dozen broken images of different classes under the attack that broke most; None where nothing broke."""
    results = {result.name: result.broken(1) for result in evaluation.attacks}
    ran = [one for attack in attacks for one in (whole(attack), attack) if one.name in results]
    strongest = max(ran, key=lambda attack: int(results[attack.name].sum()))
    rows = one_of_each(np.flatnonzero(results[strongest.name]), evaluation.labels)
    if len(rows) == 0:
        return None
    classifier = as_classifier(model)
    x, y = (tensor.to(device_of(classifier)) for tensor in images.select(rows))
    oracle = Oracle(classifier, speed=speed, images=x)
    attack, _ = strongest.for_classes(oracle.judge(x[:1]).shape[1])
    index, rng = torch.from_numpy(rows).to(x.device), Rng(seed, whole(attack).name, 0)
    found = perturb(attack, oracle, x, y, index, rng, drop=evaluation.mode == "cascade")
    prediction = decided(oracle.judge(found), y)
    arrays: dict[str, NDArray[Any]] = {
        "clean": (x * 255).round().to(torch.uint8).cpu().numpy(),
        "perturbed": found.float().cpu().numpy(),
        "label": y.cpu().numpy(),
        "clean_prediction": evaluation.clean_prediction[rows],
        "prediction": prediction.cpu().numpy(),
        "attack": np.array([attack.label] * len(rows)),
        "index": rows,
    }
    broken = arrays["prediction"] != arrays["label"]
    return {name: values[broken] for name, values in arrays.items()} if broken.any() else None


def one_of_each(rows: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first row of each class, then the second of each, until there are enough."""
    seen: dict[int, int] = {}
    order: list[tuple[int, int]] = []
    for row in rows:
        label = int(labels[row])
        order.append((seen.get(label, 0), int(row)))
        seen[label] = seen.get(label, 0) + 1
    return np.array([row for _, row in sorted(order)[:MOST]], dtype=np.int64)
