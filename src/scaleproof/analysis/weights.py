"""Weight loss surface: the loss while all filters move along a random direction of their own lengths (Figure 5).

Filter normalisation is that of Li et al. 2018; adversarial examples are made anew at every point, as by Wu et al. 2020.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scaleproof.analysis.kept import Kept, seconds_of, silent, step
from scaleproof.analysis.subject import Subject, checked_grid, symmetric
from scaleproof.attacks.base import at_least
from scaleproof.images import spans
from scaleproof.losses import cross_entropy
from scaleproof.models.output import Output
from scaleproof.progress import Report
from scaleproof.rng import Rng
from scaleproof.store import Arrays, MemoryStore, UnitStore
from scaleproof.threat import rows_like

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
KINDS = ("clean", "adversarial")
NUMBERS = tuple(f"{what}_{kind}" for what in ("loss", "accuracy") for kind in KINDS)

Direction = Sequence[tuple[nn.Parameter, Tensor]]


@dataclass(frozen=True, kw_only=True)
class WeightPlan:
    """`points` amounts in +-`reach` along each of `directions` directions, measured on the first `images` images."""

    images: int = 128
    reach: float = 1.0
    points: int = 21
    directions: int = 1
    steps: int = 10  # of the PGD at every point

    def __post_init__(self) -> None:
        at_least(1, images=self.images, directions=self.directions, steps=self.steps)
        checked_grid(self.reach, self.points)

    @property
    def amounts(self) -> list[float]:
        """How far along a direction: at 1 every filter has been moved by its own length."""
        return symmetric(self.reach, self.points)


DEFAULT_WEIGHTS = WeightPlan()


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightSurface:
    """Mean cross entropy and accuracy, clean and adversarial, at every amount of every direction (D, P)."""

    plan: WeightPlan
    count: int
    loss: dict[str, NDArray[np.float64]] = field(repr=False)
    accuracy: dict[str, NDArray[np.float64]] = field(repr=False)
    seconds: float

    def as_json(self) -> dict[str, object]:
        return {
            "plan": vars(self.plan),
            "amounts": self.plan.amounts,
            "count": self.count,
            "seconds": self.seconds,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        losses = {f"weights__loss_{kind}": values for kind, values in self.loss.items()}
        return losses | {f"weights__accuracy_{kind}": values for kind, values in self.accuracy.items()}


def weight_surface(
    subject: Subject,
    plan: WeightPlan = DEFAULT_WEIGHTS,
    *,
    store: UnitStore | None = None,
    progress: Report = silent,
) -> WeightSurface:
    """Losses along random directions in the space of weights; the model is left bit for bit as it was found."""
    plan = replace(plan, images=min(plan.images, len(subject.images)))
    kept = Kept(store or MemoryStore(), subject.mark("weights", plan))
    total = plan.directions * plan.points
    pieces: list[Arrays] = []
    with subject.at_rest():
        for number in range(plan.directions):
            direction = filter_normalised_direction(subject.classifier.net, subject.seed, number)
            for place, amount in enumerate(plan.amounts):
                step(progress, len(pieces), total, f"point {len(pieces) + 1} of {total}")
                work = partial(losses_at, subject, plan, direction, amount)
                pieces.append(kept.get(f"direction-{number}-{place:03d}", work))
    step(progress, total, total, "done")
    values = {
        name: np.array([float(piece[name]) for piece in pieces]).reshape(plan.directions, plan.points)
        for name in NUMBERS
    }
    return WeightSurface(
        plan=plan,
        count=plan.images,
        loss={kind: values[f"loss_{kind}"] for kind in KINDS},
        accuracy={kind: values[f"accuracy_{kind}"] for kind in KINDS},
        seconds=seconds_of(pieces),
    )


def losses_at(
    subject: Subject, plan: WeightPlan, direction: Direction, amount: float
) -> dict[str, NDArray[Any]]:
    """Clean and adversarial loss and accuracy with the weights moved so far."""
    sums = dict.fromkeys(NUMBERS, 0.0)
    with moved(direction, amount):
        oracle = subject.oracle(graph=False)  # folded weights are copies: each point has its own
        for rows in spans(plan.images, subject.batch_size):
            x, y, index = subject.batch(oracle, rows)
            found = subject.perturbed(oracle, "weights", plan.steps, x, y, index)
            for kind, images in zip(KINDS, (x, found), strict=True):
                logits = oracle.judge(images)
                sums[f"loss_{kind}"] += float(cross_entropy(Output(logits=logits), y).double().sum())
                sums[f"accuracy_{kind}"] += int((logits.argmax(1) == y).sum())
    return {name: np.array(value / plan.images) for name, value in sums.items()}


def filter_normalised_direction(net: nn.Module, seed: int, number: int = 0) -> Direction:
    """A random step for every weight of two dimensions or more, each filter as long as the weights' own filter.

    Biases and the parameters of normalisation layers are left alone.
    """
    found = [
        (parameter, filter_step(parameter.detach(), Rng(seed, f"weight-direction/{name}", number)))
        for name, parameter in movable_weights(net).items()
    ]
    if not found:
        raise ValueError("a weight loss surface needs weights of two or more dimensions, the model has none")
    return found


def movable_weights(net: nn.Module) -> dict[str, nn.Parameter]:
    """Every weight that a direction moves, by name, once."""
    found: dict[int, tuple[str, nn.Parameter]] = {}
    for place, module in net.named_modules():
        if isinstance(module, NORMS):
            continue
        for name, parameter in module.named_parameters(prefix=place, recurse=False):
            if parameter.dim() > 1 and parameter.is_floating_point():
                found.setdefault(id(parameter), (name, parameter))
    return dict(found.values())


def filter_step(weight: Tensor, rng: Rng) -> Tensor:
    """Normal numbers keyed by the filter's position, each filter scaled to the length of the weight's."""
    index = torch.arange(len(weight), device=weight.device)
    noise = rng.normal(index, tuple(weight.shape[1:])).double()
    wanted, seen = (value.double().flatten(1).norm(dim=1) for value in (weight, noise))
    return (noise * rows_like(wanted / seen.clamp_min(torch.finfo(torch.float64).tiny), noise)).to(weight)


@contextmanager
def moved(direction: Direction, amount: float) -> Iterator[None]:
    """Weights moved along a direction, and their own bits back afterwards, also on an exception."""
    saved = [(parameter, parameter.detach().clone()) for parameter, _ in direction]
    try:
        with torch.no_grad():
            for parameter, change in direction:
                parameter.add_(change, alpha=amount)
        yield
    finally:
        with torch.no_grad():
            for parameter, value in saved:
                parameter.copy_(value)
