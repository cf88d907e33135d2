"""Probes: how a network in training stands, on a few images that never change."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from scaleproof.defenses.inner import Inner, Labelled
from scaleproof.losses import column
from scaleproof.models.classifier import Classifier, device_of, evaluating
from scaleproof.speed import GraphCache, Speed, choose, exact_float32, on_device
from scaleproof.threat import Threat
from scaleproof.training.images import generator
from scaleproof.training.learner import AttackView

ROWS = 1000  # of one pass


@dataclass(frozen=True)
class Standing:
    """Accuracies in percent, and means over the images."""

    clean: float
    pgd: float
    feature_norm: float
    true_cosine: float
    zero_gradients: float  # percent of images where cross entropy has no gradient


class Probe:
    """PGD with a fixed start on fixed images; every decision is made in float32."""

    def __init__(
        self, classifier: Classifier, x: Tensor, y: Tensor, threat: Threat, steps: int, speed: Speed
    ) -> None:
        self.classifier, self.x, self.y, self.speed = classifier, x, y, speed
        self.inner = Inner(threat=threat, steps=steps, step_size=threat.eps / 4)
        self.device = device_of(classifier)
        random = generator(torch.device("cpu"), "probe")
        draw = torch.rand if self.inner.draws == ("uniform",) else torch.randn
        self.noise = draw(x.shape, generator=random).to(x.device)
        self.graphs = GraphCache(self.device) if speed.graph and self.device.type == "cuda" else None

    def standing(self) -> Standing:
        with evaluating(self.classifier):
            parts = [self.part(slice(start, start + ROWS)) for start in range(0, len(self.x), ROWS)]
        sums = torch.stack(parts).sum(0) / len(self.x)
        clean, pgd, norm, cosine, zero = sums.tolist()
        return Standing(100 * clean, 100 * pgd, norm, cosine, 100 * zero)

    def part(self, rows: slice) -> Tensor:
        """Sums over these rows of what a Standing holds."""
        x, y, noise = self.x[rows], self.y[rows], self.noise[rows]
        run = self.attacked if self.graphs is None else partial(self.graphs, "probe", self.attacked)
        exact = exact_float32() if self.speed.precision == "float32" else nullcontext()
        with on_device(self.device):
            with exact:
                found, peak = run(x, y, noise)
            with torch.no_grad(), exact_float32():
                output = self.classifier.outputs(x)
                assert output.features is not None
                robust = self.classifier(found).argmax(1) == y
                values = [
                    output.logits.argmax(1) == y,
                    robust & (output.logits.argmax(1) == y),
                    output.features.norm(dim=1),
                    column(output.cosines, y),
                    peak == 0,
                ]
        return torch.stack([value.double().sum() for value in values])

    def attacked(self, x: Tensor, y: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Examples, and the largest entry of each image's gradient of cross entropy."""
        view = AttackView(choose(self.classifier, self.device, self.speed).backend)
        objective = Labelled()
        gradient = view.gradient(lambda output: objective(output, y, None), x, features=False)
        return self.inner.perturb(view, x, y, (noise,)), gradient.flatten(1).abs().amax(1)
