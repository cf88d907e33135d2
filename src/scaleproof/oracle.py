"""Oracle: the one seam between an attack and a model. It gives values and gradients, and counts what they cost."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scaleproof.losses import Objective
from scaleproof.models.classifier import Classifier
from scaleproof.models.output import Output, at_least_float32
from scaleproof.speed import GraphCache, Speed, choose, exact_float32


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


class Oracle:
    """Values and gradients of any objective on one classifier; `speed` says how they may be computed."""

    def __init__(self, classifier: Classifier, *, speed: Speed | None = None) -> None:
        self.classifier = classifier
        self.speed = speed or Speed()
        self.device = device_of(classifier)
        self.choice = choose(classifier, self.device, self.speed)
        self.graphs = GraphCache() if self.speed.graph and self.device.type == "cuda" else None
        self.cost = Cost()

    def outputs(self, x: Tensor, *, features: bool = False) -> Output:
        """The fast output at x, without gradients."""
        self.cost.forwards += len(x)
        with torch.no_grad():
            return self.choice.backend(x, features)

    def logits(self, x: Tensor) -> Tensor:
        return self.outputs(x).logits

    def value_and_grad(self, objective: Objective, x: Tensor, y: Tensor) -> Gradient:
        """The objective at x and its gradient, from one forward and one backward pass."""
        self.cost.forwards += len(x)
        self.cost.backwards += len(x)

        def compute(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            with torch.enable_grad():
                point = x.detach().requires_grad_()
                output = self.choice.backend(point, objective.needs_features)
                value = objective(output, y)
                (gradient,) = torch.autograd.grad(
                    value.sum(), point, allow_unused=True, materialize_grads=True
                )
            return value.detach(), gradient.detach(), at_least_float32(output.logits).detach()

        if self.graphs is None:
            return Gradient(*compute(x, y))
        return Gradient(*self.graphs(objective, compute, x, y))

    def judge(self, x: Tensor) -> Tensor:
        """The classifier's own logits in float32 with TF32 off: what verdicts are made of."""
        return self.judge_outputs(x, features=False).logits

    def judge_outputs(self, x: Tensor, *, features: bool) -> Output:
        self.cost.forwards += len(x)
        with torch.no_grad(), exact_float32():
            return self.classifier.outputs(x) if features else Output(logits=self.classifier(x))

    def describe(self) -> dict[str, object]:
        """What was chosen, for the record."""
        notes = list(self.choice.notes)
        if self.graphs is not None and self.graphs.failure is not None:
            notes.append(self.graphs.failure)
        graph = self.graphs is not None and self.graphs.failure is None
        return {
            "precision": self.choice.precision,
            "folded": self.choice.folded,
            "graph": graph,
            "compiled": self.choice.compiled,
            "notes": notes,
        }


def device_of(classifier: Classifier) -> torch.device:
    """Where the first parameter or buffer lives; the CPU for a model with neither."""
    for tensor in (*classifier.parameters(), *classifier.buffers()):
        return tensor.device
    return torch.device("cpu")
