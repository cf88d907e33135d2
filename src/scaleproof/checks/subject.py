"""What checks look at: a classifier, some images, a threat, and short attacks on them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import torch
from torch import Tensor

from scaleproof.attacks.base import Attack
from scaleproof.attacks.loop import Packing, Tick, perturb
from scaleproof.attacks.pgd import PGD
from scaleproof.contract import full_precision, understood
from scaleproof.look import FIRST_LOOK
from scaleproof.losses import Objective, cross_entropy, cw_margin, margin, misclassified
from scaleproof.models.classifier import Classifier, device_of
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.speed import PLAIN, Speed
from scaleproof.threat import Threat

STEPS = 20


@dataclass(frozen=True)
class Path:
    """What a short attack met on its way, a row an image."""

    broken: Tensor  # (B,) the last iterate is misclassified, or the one that it left with
    ever: Tensor  # (B,) some iterate is
    margins: Tensor  # (steps, B) best other logit minus true one at each iterate


@dataclass(eq=False)
class Subject:
    """A model under examination; expensive answers are kept."""

    classifier: Classifier
    all_x: Tensor
    all_y: Tensor
    threat: Threat
    _: KW_ONLY
    seed: int = 0
    draws: int = 1
    surrogate: Classifier | None = None
    classes: int | None = None  # of the data, where they are known
    invariant: bool = False  # whether the number rests on attacks that no scale of the logits can fool
    tick: Tick = lambda: None  # called after every step of a short attack

    def __post_init__(self) -> None:
        device = device_of(self.classifier)
        self.all_x, self.all_y = self.all_x.to(device), self.all_y.to(device)
        self.oracle = self.view(self.classifier, self.draws)
        self.exact = Oracle(self.classifier, speed=PLAIN)  # one draw, in float32

    def view(self, classifier: Classifier, draws: int) -> Oracle:
        """Gradients as an evaluation takes them, but no graphs: for ever fewer images recording would not pay."""
        images = full_precision(self.all_x[:FIRST_LOOK])
        return Oracle(classifier, speed=Speed(graph=False), draws=draws, images=images)

    @cached_property
    def logits(self) -> Tensor:
        """Of all images, in float32."""
        with self.chance("look"), understood(self.all_x, self.classifier):
            return self.oracle.judge_chance(self.all_x, self.all_y)[0]

    @cached_property
    def right(self) -> Tensor:
        """Positions of the images classified right."""
        return (~misclassified(self.logits, self.all_y)).nonzero().squeeze(1)

    @property
    def x(self) -> Tensor:
        return self.all_x[self.right]

    @property
    def y(self) -> Tensor:
        return self.all_y[self.right]

    @property
    def count(self) -> int:
        return len(self.right)

    def seconds_of_a_gradient(self) -> float:
        """On all images, once the first has warmed everything up."""
        times: list[float] = []
        for _ in range(2):
            began = time.perf_counter()
            found = self.oracle.value_and_grad(cw_margin, self.all_x, self.all_y)
            float(found.value.sum())  # a device answers when it is asked
            times.append(time.perf_counter() - began)
        return min(times)

    @contextmanager
    def chance(self, name: str) -> Iterator[None]:
        with self.oracle.chance(self.seed, "checks", name):
            yield

    def share(self, flags: Tensor) -> float:
        """Of the images classified right; 0 where there are none."""
        return float(flags.sum()) / max(self.count, 1)

    def path(self, attack: PGD, *, leave: bool = True) -> Path:
        """Run an attack on every image classified right and watch it.

        With `leave` an image that was misclassified takes no further steps, as soon as an eighth of them can go.
        """
        oracle, x, y = self.oracle, self.x, self.y
        ever, margins = torch.zeros_like(y, dtype=torch.bool), [torch.full_like(x[:, 0, 0, 0], -math.inf)]
        broken, rows = ever.clone(), torch.arange(len(y), device=y.device)
        packing = Packing(len(y))
        with self.chance(attack.name):
            fitted, _ = attack.for_classes(self.logits.shape[1])
            state = fitted.init(oracle, x, y, self.right, Rng(self.seed, f"checks {attack.name}"))
            for _ in range(fitted.steps):
                state = fitted.step(oracle, state)
                ever[rows] |= misclassified(state.logits, y[rows])
                margins.append(margins[-1].clone())
                margins[-1][rows] = margin(state.logits, y[rows]).to(margins[-1])
                self.tick()
                stay = ~ever[rows]
                if leave and oracle.draws == 1 and packing.shrinks(int(stay.sum()), len(rows)):
                    broken[rows[~stay]], rows = True, rows[stay]
                    if len(rows) == 0:
                        break
                    state = state.rows(stay.nonzero().squeeze(1))
            if len(rows) > 0:
                broken[rows] = misclassified(oracle.judge_chance(state.current, y[rows])[0], y[rows])
        return Path(broken, ever | broken, torch.stack(margins[1:]))

    def near(self, stride: float) -> float:
        """The size of a perturbation by `stride` a pixel."""
        return stride * self.threat.reach(self.x[0].numel())

    def broken_by(
        self, attack: Attack, rows: Tensor, classifier: Classifier | None = None, *, leave: bool = True
    ) -> Tensor:
        """Which of some of the images an attack breaks (B,), judged on the model itself.

        With `leave` an image leaves the attack once it is broken: not where another model is attacked in its place.
        """
        broken = torch.zeros(self.count, dtype=torch.bool, device=self.oracle.device)
        positions = rows.nonzero().squeeze(1)
        if len(positions) == 0:
            return broken
        oracle = self.oracle if classifier is None else self.view(classifier, self.oracle.draws)
        fitted, _ = attack.for_classes(self.logits.shape[1])
        x, y = self.x[positions], self.y[positions]
        with self.chance(attack.name):
            rng = Rng(self.seed, f"checks {attack.name}")
            drop = leave and oracle.draws == 1
            found = perturb(fitted, oracle, x, y, self.right[positions], rng, drop=drop, tick=self.tick)
            broken[positions] = misclassified(self.oracle.judge_chance(found, y)[0], y)
        return broken

    def pgd(self, objective: Objective, steps: int = STEPS, eps: float | None = None) -> PGD:
        threat = self.threat if eps is None else Threat(norm=self.threat.norm, eps=eps)
        name = f"{objective.name}-{steps}-{threat.eps:g}"
        return PGD(threat=threat, objective=objective, steps=steps, keep="last", name=name, label=name)

    @cached_property
    def by_cross_entropy(self) -> Path:
        return self.path(self.pgd(cross_entropy), leave=False)

    @cached_property
    def by_margin(self) -> Path:
        return self.path(self.pgd(cw_margin))

    @cached_property
    def white_box(self) -> Tensor:
        """Images that one of the two short attacks broke anywhere on its way."""
        return self.by_cross_entropy.ever | self.by_margin.ever
