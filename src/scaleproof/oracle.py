"""Oracle: the one seam between an attack and a model. It gives values and gradients, and counts what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from scaleproof.losses import Objective, misclassified
from scaleproof.models.classifier import Classifier, device_of
from scaleproof.models.output import Output, at_least_float32
from scaleproof.rng import key_of, random_state_kept
from scaleproof.speed import Chain, GraphCache, Speed, ascend, choose, exact_float32, on_device, tf32_float32
from scaleproof.threat import Threat


@dataclass(frozen=True)
class Gradient:
    """An objective at a batch: its values (B,), the gradient in x (B, ...), and the logits on the way (B, K)."""

    value: Tensor
    gradient: Tensor
    logits: Tensor


@dataclass
class Cost:
    """Passes through the model, counted in images."""

    forwards: int = 0
    backwards: int = 0


@dataclass(frozen=True)
class Replay:
    """A captured step of an attack; each call moves its buffers on and counts the passes in it."""

    chain: Chain
    books: Cost
    spent: Cost

    @property
    def buffers(self) -> tuple[Tensor, ...]:
        return self.chain.buffers

    def __call__(self) -> None:
        self.chain()
        self.books.forwards += self.spent.forwards
        self.books.backwards += self.spent.backwards


class Health:
    """How often a gradient was of no use, counted on the device in images."""

    def __init__(self, device: torch.device) -> None:
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)

    def look(self, gradient: Tensor, logits: Tensor, y: Tensor) -> None:
        """Count rows that are not finite, and rows that are zero although the image is still classified right."""
        peak = torch.linalg.vector_norm(gradient.flatten(1), ord=torch.inf, dim=1)
        right = ~misclassified(logits, y if y.dim() == 1 else y[:, 0])
        self.counts += torch.stack([(~peak.isfinite()).sum(), ((peak == 0) & right).sum()])

    def read(self) -> tuple[int, int]:
        """Rows not finite, rows stuck, since the last reading."""
        broken, stuck = self.counts.tolist()
        self.counts.zero_()
        return broken, stuck


class Oracle:
    """Values and gradients of any objective on one classifier; `speed` says how they may be computed.

    A few `images` let it look into a network that is not ours, for a faster way to the same gradients.
    """

    def __init__(
        self,
        classifier: Classifier,
        *,
        speed: Speed | None = None,
        draws: int = 1,
        images: Tensor | None = None,
    ) -> None:
        if draws < 1:
            raise ValueError(f"draws must be >= 1, got {draws}")
        self.classifier, self.draws = classifier, draws
        self.speed = speed or Speed()
        self.device = device_of(classifier)
        self.images = images if draws == 1 else None
        with on_device(self.device):
            self.choice = choose(classifier, self.device, self.speed, self.images)
        graph = self.speed.graph and self.device.type == "cuda" and draws == 1
        self.graphs = GraphCache(self.device, patience=1) if graph else None
        self.cost, self.health = Cost(), Health(self.device)
        self.spent: dict[object, Cost] = {}  # by one replay of each captured step
        self.width = 0  # of the logits; known from the first judgement on

    @property
    def format(self) -> str:
        """The number format of the fast output: bf16, fp16, tf32 or float32; a CPU has no tf32."""
        found = self.choice.precision.split()[0]
        return "float32" if found == "tf32" and self.device.type == "cpu" else found

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """The device, the backend's own number formats whatever the caller's, true float32 where it is float32."""
        kinds = {"float32": exact_float32, "tf32": tf32_float32}
        off = partial(torch.autocast, self.device.type, enabled=False)
        with on_device(self.device), kinds.get(self.choice.precision, off)():
            yield

    def outputs(self, x: Tensor, *, features: bool = False) -> Output:
        """The fast output at x, without gradients."""
        self.cost.forwards += len(x)
        with torch.no_grad(), self.arithmetic():
            return self.choice.backend(x, features)

    def logits(self, x: Tensor) -> Tensor:
        """The fast logits at x, without gradients; of several draws the mean."""
        self.cost.forwards += self.draws * len(x)

        def compute(x: Tensor) -> tuple[Tensor]:
            return (at_least_float32(self.choice.backend(x, False).logits),)

        with torch.no_grad(), self.arithmetic():
            run = compute if self.graphs is None else partial(self.graphs, "logits", compute)
            return mean_logits([run(x)[0] for _ in range(self.draws)])

    def both_sides(self, x: Tensor, directions: Tensor, difference: float) -> tuple[Tensor, Tensor]:
        """Logits at x + h v and at x - h v (B S, K), for images (B, ...) and S directions v of each (B, S, ...)."""
        if self.choice.pairs is None or self.draws > 1:
            moves = difference * directions
            points = torch.stack([x[:, None] + moves, x[:, None] - moves]).flatten(0, 2)
            ahead, behind = self.logits(points).chunk(2)
            return ahead, behind
        self.cost.forwards += 2 * directions.shape[:2].numel()
        with torch.no_grad(), self.arithmetic(), exact_float32():  # the head subtracts nearly equal numbers
            return self.choice.pairs(x, directions, difference)

    def value(self, objective: Objective, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The objective at x and the logits there, without a gradient; over several draws their means."""
        self.cost.forwards += self.draws * len(x)
        with torch.no_grad(), self.arithmetic():
            drawn = [self.choice.backend(x, objective.needs_features) for _ in range(self.draws)]
            values = torch.stack([objective(output, y) for output in drawn]).mean(0)
        return values, mean_logits([at_least_float32(output.logits) for output in drawn])

    def value_and_grad(self, objective: Objective, x: Tensor, y: Tensor) -> Gradient:
        """The objective at x and its gradient: of one forward and backward pass, or the mean over the draws."""
        if self.draws > 1:
            return mean_gradient([self.one_gradient(objective, x, y) for _ in range(self.draws)])
        return self.one_gradient(objective, x, y)

    def one_gradient(self, objective: Objective, x: Tensor, y: Tensor) -> Gradient:
        self.cost.forwards += len(x)
        self.cost.backwards += len(x)

        def compute(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            with torch.enable_grad():
                point = x.detach().requires_grad_()
                output = self.choice.backend(point, objective.needs_features)
                value = objective(output, y)
                gradient = input_gradient(value, point)
            return value.detach(), gradient, at_least_float32(output.logits).detach()

        with self.arithmetic():
            run = compute if self.graphs is None else partial(self.graphs, objective, compute)
            result = Gradient(*run(x, y))
            self.health.look(result.gradient, result.logits, y)
        return result

    def replay(
        self, key: object, step: Callable[..., tuple[Tensor, ...]], tensors: tuple[Tensor, ...]
    ) -> Replay | None:
        """A step from tensors to tensors of the same shapes as one graph, with these loaded; None where there is none.

        The step may ask this oracle for values and gradients.
        """
        if self.graphs is None:
            return None
        place = (key, len(tensors[0]))

        def counted(*given: Tensor) -> tuple[Tensor, ...]:
            before, self.cost = self.cost, Cost()
            try:
                return step(*given)
            finally:
                self.spent[place], self.cost = self.cost, before

        with on_device(self.device):
            chain = self.graphs.chain(key, counted, tensors, [self.health.counts])
        return None if chain is None else Replay(chain, self.cost, self.spent[place])

    def ascend(
        self, threat: Threat, current: Tensor, gradient: Tensor, clean: Tensor, stride: float
    ) -> Tensor:
        """One step of an attack along a gradient, inside the ball."""
        with on_device(self.device):
            return ascend(threat, current, gradient, clean, stride)

    def judge(self, x: Tensor) -> Tensor:
        """The classifier's own logits in float32 with TF32 off: what verdicts are made of."""
        return self.judge_outputs(x, features=False).logits

    def judge_chance(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the mean probabilities over the draws, and the share of as many fresh draws that are right (B,).

        Fresh ones, because an example is chosen by the first: the luck that chose it is no part of its chance.
        """
        drawn = [self.judge(x) for _ in range(self.draws)]
        fresh = drawn if self.draws == 1 else [self.judge(x) for _ in range(self.draws)]
        right = torch.stack([(~misclassified(logits, y)).float() for logits in fresh]).mean(0)
        return mean_logits(drawn), right

    @contextmanager
    def chance(self, *key: object) -> Iterator[None]:
        """A randomised model draws the same numbers for the same key, whatever was drawn before."""
        if self.draws == 1:
            yield
            return
        with random_state_kept(self.device):
            torch.manual_seed(key_of(*key))
            yield

    def judge_outputs(self, x: Tensor, *, features: bool) -> Output:
        self.cost.forwards += len(x)
        with torch.no_grad(), on_device(self.device), exact_float32():
            output = self.classifier.outputs(x) if features else Output(logits=self.classifier(x))
        self.width = output.logits.shape[1]
        return output

    @property
    def notes(self) -> list[str]:
        return [*self.choice.notes, *([] if self.graphs is None else self.graphs.notes)]

    def describe(self) -> dict[str, object]:
        """What was chosen, for the record."""
        return {
            "precision": self.choice.precision,
            "folded": self.choice.folded,
            "graph": self.graphs is not None and self.graphs.failure is None,
            "compiled": self.choice.compiled,
            "notes": self.notes,
        }


def input_gradient(value: Tensor, x: Tensor) -> Tensor:
    """The gradient of the sum of `value` in x; zero for a model through which no gradient flows."""
    if not value.requires_grad:
        return torch.zeros_like(x)
    (gradient,) = torch.autograd.grad(value.sum(), x, allow_unused=True, materialize_grads=True)
    return gradient.detach()


def mean_logits(drawn: list[Tensor]) -> Tensor:
    """Logarithms of the mean probabilities; one draw is left as it is."""
    if len(drawn) == 1:
        return drawn[0]
    return torch.stack([logits.log_softmax(1) for logits in drawn]).logsumexp(0) - math.log(len(drawn))


def mean_gradient(drawn: list[Gradient]) -> Gradient:
    """The expectation over draws of a randomised model (Athalye et al. 2018)."""
    value = torch.stack([at.value for at in drawn]).mean(0)
    gradient = torch.stack([at.gradient for at in drawn]).mean(0)
    return Gradient(value, gradient, mean_logits([at.logits for at in drawn]))
