"""The paper's geometric sketch from real vectors: the embedded network in the plane of two of its class weights.

In that plane the logits of the two classes are what they are in the network, biases left out: it is a classifier of two
classes with features of two dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from scaleproof.attacks.loop import perturb
from scaleproof.attacks.pgd import PGD
from scaleproof.data import load
from scaleproof.losses import Objective, cosine_cross_entropy, cross_entropy
from scaleproof.models import load_model
from scaleproof.models.output import Output
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.speed import PLAIN

CLASSES = ("deer", "horse")
ATTACKED = 32  # images of the first class, of which one becomes the example
STEPS = 10
SURE = 0.9  # how probable the true class is once the weights have learned an example
RATE = 0.02  # of the gradient steps on the weights
MOST_STEPS = 10_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Plane:
    """Features (n, 2) and labels of both classes, their weights (2, 2), and one image before and after PGD (2,)."""

    features: Tensor
    labels: Tensor
    weights: Tensor
    clean: Tensor
    adversarial: Tensor

    @property
    def right(self) -> Tensor:
        """Features of the first class that are taken for it (m, 2)."""
        chosen = (self.labels == 0) & (self.logits(self.features).argmax(1) == 0)
        return self.features[chosen]

    def logits(self, features: Tensor) -> Tensor:
        return features @ self.weights.T


def plane() -> Plane:
    """Two classes of the embedded images through the embedded network; seconds on a CPU, nothing left to chance."""
    data = load("sample")
    numbers = [data.classes.index(name) for name in CLASSES]
    rows = np.flatnonzero(np.isin(data.labels, numbers))
    x, y = data.select(rows)
    oracle = Oracle(load_model("demo").classifier, speed=PLAIN)
    output = oracle.judge_outputs(x, features=True)
    assert output.features is not None
    assert output.weight is not None
    weights = output.weight[numbers].detach()
    basis = basis_of(weights)
    found = Plane(
        features=output.features @ basis.T,
        labels=(y == numbers[1]).long(),
        weights=weights @ basis.T,
        clean=torch.zeros(2),
        adversarial=torch.zeros(2),
    )
    chosen = torch.nonzero((found.labels == 0) & (found.logits(found.features).argmax(1) == 0))[:ATTACKED, 0]
    moved = attacked(oracle, x[chosen], y[chosen], torch.from_numpy(rows)[chosen]) @ basis.T
    first = int(torch.nonzero(found.logits(moved).argmax(1) == 1)[0])
    return replace(found, clean=found.features[chosen[first]], adversarial=moved[first])


def basis_of(weights: Tensor) -> Tensor:
    """Two directions of length one (2, D): from the second weight to the first, and what halves their angle."""
    one, two = F.normalize(weights, dim=1)
    return F.normalize(torch.stack([one - two, one + two]), dim=1)


def attacked(oracle: Oracle, x: Tensor, y: Tensor, index: Tensor) -> Tensor:
    """The features of PGD's examples."""
    attack = PGD(steps=STEPS, name="geometry")
    output = oracle.judge_outputs(perturb(attack, oracle, x, y, index, Rng(0, attack.name, 0)), features=True)
    assert output.features is not None
    return output.features


def objectives() -> dict[str, Objective]:
    """The two losses that are set side by side."""
    return {"Cross entropy": cross_entropy, "Cosine loss": cosine_cross_entropy()}


def pull(objective: Objective, features: Tensor, weights: Tensor, alpha: float = 1.0) -> Tensor:
    """Which way an attacker moves features of the first class (n, 2), when the weights are alpha times as long."""
    z = features.clone().requires_grad_()
    return gradient(objective, z, alpha * weights, z)


def gradient(objective: Objective, features: Tensor, weights: Tensor, by: Tensor) -> Tensor:
    """The gradient of the loss of features of the first class, in float32."""
    output = Output(logits=features @ weights.T, features=features, weight=weights)
    loss = objective(output, torch.zeros(len(features), dtype=torch.long)).sum()
    return torch.autograd.grad(loss, by)[0]


def learned(objective: Objective, feature: Tensor, weights: Tensor) -> Tensor:
    """The weights (2, 2) after gradient steps on one feature of the first class, until they are sure of it."""
    for _ in range(MOST_STEPS):
        if (feature @ weights.T).softmax(0)[0] >= SURE:
            break
        weights = weights.detach().requires_grad_()
        weights = weights - RATE * gradient(objective, feature[None], weights, weights)
    return weights.detach()


def turned(before: Tensor, after: Tensor) -> float:
    """The angle between two vectors, in degrees."""
    return math.degrees(math.acos(min(1.0, float(F.cosine_similarity(before, after, dim=0)))))


def vanished(objective: Objective, plane: Plane, alphas: list[float]) -> list[float]:
    """The share of right features whose gradient is exactly zero in float32, for each length of the weights."""
    return [
        float((pull(objective, plane.right, plane.weights, a) == 0).all(1).float().mean()) for a in alphas
    ]
