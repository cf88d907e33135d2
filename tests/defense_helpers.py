"""Every defense's loss and attack once more in plain torch, from the papers: no loss of the package is called."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from helpers import LinearNet, SmallConvNet, images
from scaleproof.defenses import BatchNormPolicy
from scaleproof.models import Classifier, build
from scaleproof.speed import Speed
from scaleproof.training.learner import ModelLearner

EPS = 8 / 255
PLAIN = Speed(precision="float32", fold=False, graph=False)
LABELS = np.array([2, 0, 3, 1])
Array = NDArray[np.float64]
Value = Callable[[Tensor], Tensor]  # images to one number a row


def small_net(seed: int = 0) -> SmallConvNet:
    return SmallConvNet(classes=4, seed=seed, channels=3).double()


def small_images(count: int = 4) -> tuple[Tensor, Tensor]:
    """Images, some of them at the ends of the pixel range, and labels."""
    x = images(count, (3, 6, 6), seed=5, low=-0.1, high=1.1).double().clamp(0, 1)
    return x, torch.arange(count) % 4


def linear_batch() -> tuple[LinearNet, Tensor, Tensor]:
    x = images(6, low=-0.1, high=1.1).double().clamp(0, 1)
    return LinearNet().double(), x, torch.tensor([0, 1, 1, 0, 1, 0])


def uniform(x: Tensor, seed: int = 7) -> Tensor:
    return torch.rand(x.shape, generator=torch.Generator().manual_seed(seed), dtype=x.dtype)


def normal(x: Tensor, seed: int = 8) -> Tensor:
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=x.dtype)


def number(value: Tensor) -> float:
    return float(value.detach())


def log_probabilities(scores: Tensor) -> Tensor:
    shifted = scores - scores.max(1, keepdim=True).values
    return shifted - shifted.exp().sum(1, keepdim=True).log()


def ce(scores: Tensor, y: Tensor) -> Tensor:
    """Cross entropy of each row."""
    return -torch.stack(
        [row[label] for row, label in zip(log_probabilities(scores), y.tolist(), strict=True)]
    )


def kl(first: Tensor, second: Tensor) -> Tensor:
    """Sum of p log(p / q) of each row."""
    p, q = log_probabilities(first), log_probabilities(second)
    return (p.exp() * p - p.exp() * q).sum(1)


def squared_distance(first: Tensor, second: Tensor) -> Tensor:
    return ((log_probabilities(first).exp() - log_probabilities(second).exp()) ** 2).sum(1)


def clip(x: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    low, high = torch.as_tensor(low, dtype=x.dtype), torch.as_tensor(high, dtype=x.dtype)
    return torch.minimum(torch.maximum(x, low), high)


def into_ball(moved: Tensor, x: Tensor, eps: float = EPS) -> Tensor:
    return clip(clip(moved, x - eps, x + eps), 0.0, 1.0)


def gradient(value: Value, x: Tensor, *, differentiable: bool = False) -> Tensor:
    point = x.detach().clone().requires_grad_()
    (found,) = torch.autograd.grad(value(point).sum(), point, create_graph=differentiable)
    return found


def ascended(value: Value, start: Tensor, x: Tensor, steps: int, stride: float) -> Tensor:
    """Steps along the sign of the gradient, each put back into the ball and the pixel range."""
    current = start.detach()
    for _ in range(steps):
        current = into_ball(current + stride * torch.sign(gradient(value, current)), x)
    return current.detach()


@dataclass(frozen=True)
class Twin:
    """One batch and the network on it; `si` is the scale-invariant twin of a defense, with the paper's constants."""

    net: SmallConvNet
    x: Tensor
    y: Tensor
    noise: Tensor
    si: bool

    def logits(self, x: Tensor) -> Tensor:
        return self.features(x) @ self.net.head.weight.T + self.net.head.bias

    def features(self, x: Tensor) -> Tensor:
        maps: Tensor = self.net.body(x)
        return maps.flatten(2).sum(2) / maps.shape[2:].numel()

    def cosines(self, x: Tensor) -> Tensor:
        z, weight = self.features(x), self.net.head.weight
        dots = torch.einsum("bd,kd->bk", z, weight)
        return dots / (z.square().sum(1).sqrt()[:, None] * weight.square().sum(1).sqrt()[None])

    def attacked_ce(self, x: Tensor) -> Tensor:
        """What attacks on labels maximise: CE, or CE of 15 cos in the twin."""
        return ce(15 * self.cosines(x) if self.si else self.logits(x), self.y)

    def start(self) -> Tensor:
        return into_ball(self.x + (2 * self.noise - 1) * EPS, self.x)

    def multi_step(self, value: Value | None = None) -> Tensor:
        return ascended(value or self.attacked_ce, self.start(), self.x, 10, 2 / 255)

    def mean_ce(self, x: Tensor) -> Tensor:
        return ce(self.logits(x), self.y).mean()

    def with_margin(self, found: dict[str, Tensor], adversarial: Tensor) -> dict[str, Tensor]:
        """0.2 CE of 15 (cos_j - 0.2 [j = y]) on the adversarial examples, in the twin."""
        if not self.si:
            return found
        scores = 15 * (self.cosines(adversarial) - 0.2 * torch.eye(4, dtype=torch.float64)[self.y])
        return {**found, "margin": 0.2 * ce(scores, self.y).mean()}

    def standard(self) -> dict[str, Tensor]:
        return {"clean": self.mean_ce(self.x)}

    def at(self) -> dict[str, Tensor]:
        found = self.multi_step()
        return self.with_margin({"adversarial": self.mean_ce(found)}, found)

    def trades(self) -> dict[str, Tensor]:
        """The divergence inside becomes the cosine objective in the twin; the one outside stays."""
        clean = self.logits(self.x).detach()
        found = self.multi_step(None if self.si else lambda x: kl(clean, self.logits(x)))
        outer = 6 * kl(self.logits(self.x), self.logits(found)).mean()
        return self.with_margin({"clean": self.mean_ce(self.x), "divergence": outer}, found)

    def alp(self) -> dict[str, Tensor]:
        found = self.multi_step()
        difference = self.logits(self.x) - self.logits(found)
        terms = {"clean": 0.5 * self.mean_ce(self.x), "adversarial": 0.5 * self.mean_ce(found)}
        return self.with_margin({**terms, "pairing": 3 * (difference**2).sum() / difference.numel()}, found)

    def mart(self) -> dict[str, Tensor]:
        found = self.multi_step()
        p, q = (log_probabilities(self.logits(x)).exp() for x in (self.x, found))
        total, weighted = [], []
        divergences = kl(self.logits(self.x), self.logits(found))
        for i, label in enumerate(self.y.tolist()):
            wrong = torch.stack([q[i, k] for k in range(4) if k != label]).max()
            total.append(-q[i, label].log() - (1.0001 - wrong + 1e-12).log())
            weighted.append(divergences[i] * (1.0000001 - p[i, label]))
        terms = {"boosted": torch.stack(total).mean(), "divergence": 6 * torch.stack(weighted).mean()}
        return self.with_margin(terms, found)

    def rfgsm(self) -> dict[str, Tensor]:
        found = ascended(self.attacked_ce, self.start(), self.x, 1, 10 / 255)
        return self.with_margin({"adversarial": self.mean_ce(found)}, found)

    def gat(self, guidance: float = 10.0, weight: float = 10.0) -> dict[str, Tensor]:
        clean = self.logits(self.x).detach()
        signs = torch.where(self.noise < 0.5, 1.0, -1.0).double()

        def guided(x: Tensor) -> Tensor:
            return self.attacked_ce(x) + guidance * squared_distance(clean, self.logits(x))

        start = clip(self.x + 4 / 255 * signs, 0.0, 1.0)
        found = ascended(guided, start, self.x, 1, 8 / 255)
        outer = weight * squared_distance(self.logits(self.x), self.logits(found)).mean()
        return self.with_margin({"clean": self.mean_ce(self.x), "distance": outer}, found)

    def gradalign(self, *, constant: bool = True) -> dict[str, Tensor]:
        found = ascended(self.attacked_ce, self.x, self.x, 1, 8 / 255)
        here = gradient(self.attacked_ce, self.x, differentiable=not constant).flatten(1)
        there = gradient(self.attacked_ce, self.start(), differentiable=True).flatten(1)
        lengths = here.square().sum(1).sqrt() * there.square().sum(1).sqrt()
        alignment = 0.2 * (1 - ((here * there).sum(1) / lengths).mean())
        return self.with_margin({"adversarial": self.mean_ce(found), "alignment": alignment}, found)

    def free(self, delta: Tensor) -> dict[str, Tensor]:
        moved = clip(self.x + delta, 0.0, 1.0)
        return self.with_margin({"adversarial": self.mean_ce(moved)}, moved)


# Terms of (4, 5) arrays of logits with the labels LABELS, row by row, class by class.


def softmax_by_loops(logits: Array) -> Array:
    found = np.zeros_like(logits)
    for i, row in enumerate(logits):
        total = sum(math.exp(value) for value in row)
        found[i] = [math.exp(value) / total for value in row]
    return found


def ce_by_loops(logits: Array, shift: float = 0.0) -> float:
    total = 0.0
    for i, label in enumerate(LABELS):
        row = [value - shift if k == label else value for k, value in enumerate(logits[i])]
        total -= row[label] - math.log(sum(math.exp(value) for value in row))
    return total / len(LABELS)


def kl_by_loops(first: Array, second: Array) -> list[float]:
    """Sum over classes of p log(p / q), p of the first and q of the second."""
    p, q = softmax_by_loops(first), softmax_by_loops(second)
    return [sum(p[i, k] * math.log(p[i, k] / q[i, k]) for k in range(p.shape[1])) for i in range(len(LABELS))]


def boosted_by_loops(logits: Array) -> float:
    p, total = softmax_by_loops(logits), 0.0
    for i, label in enumerate(LABELS):
        wrong = max(p[i, k] for k in range(p.shape[1]) if k != label)
        total += -math.log(p[i, label]) - math.log(1.0001 - wrong + 1e-12)
    return total / len(LABELS)


def weighted_by_loops(first: Array, second: Array) -> float:
    p = softmax_by_loops(first)
    weights = [1.0000001 - p[i, label] for i, label in enumerate(LABELS)]
    return sum(a * b for a, b in zip(kl_by_loops(first, second), weights, strict=True)) / len(LABELS)


def distance_by_loops(first: Array, second: Array) -> float:
    p, q = softmax_by_loops(first), softmax_by_loops(second)
    return sum((p[i, k] - q[i, k]) ** 2 for i in range(4) for k in range(5)) / 4


def square_by_loops(first: Array, second: Array) -> float:
    return sum((first[i, k] - second[i, k]) ** 2 for i in range(4) for k in range(5)) / 20


def norm_by_loops(first: Array, second: Array) -> float:
    return sum(math.sqrt(sum((first[i, k] - second[i, k]) ** 2 for k in range(5))) for i in range(4)) / 4


def alignment_by_loops(first: Array, second: Array) -> float:
    total = 0.0
    for a, b in zip(first, second, strict=True):
        lengths = math.sqrt(sum(v * v for v in a)) * math.sqrt(sum(v * v for v in b))
        total += sum(v * w for v, w in zip(a, b, strict=True)) / lengths
    return 1 - total / len(first)


def weight_gradients(terms: Iterable[Tensor], net: torch.nn.Module) -> Tensor:
    """The gradient of the sum of some terms in all weights, as one vector."""
    total = torch.stack(list(terms)).sum()
    found = torch.autograd.grad(total, list(net.parameters()), allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in found])


def norm_net() -> Any:
    """A network with BatchNorm, in train mode, whose running statistics are those of no batch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net: Any = build("resnet-small", 4).double().train()
        for norm in net.modules():
            if isinstance(norm, torch.nn.BatchNorm2d):
                norm.running_mean.normal_(0, 0.2)
                norm.running_var.uniform_(0.5, 2)
    return net


def statistics(net: torch.nn.Module) -> Tensor:
    return torch.cat([value.double().flatten() for value in net.buffers()])


def moved(net: Any, passes: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The first running statistics after these passes in train mode, at a momentum of 0.1."""
    mean, variance = net.bn1.running_mean.clone(), net.bn1.running_var.clone()
    for x in passes:
        rows = net.conv1(x).detach().transpose(0, 1).flatten(1)
        mean, variance = 0.9 * mean + 0.1 * rows.mean(1), 0.9 * variance + 0.1 * rows.var(1)
    return mean, variance


def learner_of(net: torch.nn.Module, policy: BatchNormPolicy | None = None) -> ModelLearner:
    return ModelLearner(Classifier(net), policy or BatchNormPolicy(), PLAIN, False)
