"""Is this number real? Checks of a model and of what attacks find on it, each a diagnosis as data."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from scaleproof.checks.behaviour import BEHAVIOUR
from scaleproof.checks.contract import CONTRACT
from scaleproof.checks.gradients import gradient_checks
from scaleproof.checks.subject import Subject
from scaleproof.contract import buffers_kept
from scaleproof.diagnosis import Check, failed, is_reliable, not_asked
from scaleproof.images import Images, as_images
from scaleproof.models.classifier import Classifier, as_classifier
from scaleproof.threat import Threat

__all__ = ["Check", "examine", "failed", "is_reliable"]

IMAGES = 64


def examine(
    model: nn.Module,
    images: Images | tuple[Tensor, Tensor],
    threat: Threat | None = None,
    *,
    count: int = IMAGES,
    seed: int = 0,
    draws: int = 1,
    surrogate: Classifier | None = None,
) -> tuple[Check, ...]:
    """Every check of a model, on `count` of the images, evenly spread; nothing is raised about the model itself."""
    source, classifier = as_images(images), as_classifier(model)
    rows = np.unique(np.linspace(0, len(source) - 1, min(count, len(source))).round().astype(np.int64))
    x, y = source.select(rows)
    with buffers_kept(classifier):
        subject = Subject(classifier, x, y, threat or Threat(), seed=seed, draws=draws, surrogate=surrogate)
        checks = [check(subject) for check in CONTRACT]
        checks += gradient_checks(subject)
        if subject.count == 0:
            asked = not_asked(
                "attacks", "Short attacks", "No image is classified right.", "Look at the model."
            )
            return (*checks, asked)
        checks += [check(subject) for check in BEHAVIOUR]
    return tuple(checks)
