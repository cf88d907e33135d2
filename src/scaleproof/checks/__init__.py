"""Is this number real? Checks of a model and of what attacks find on it, each a diagnosis as data."""

from __future__ import annotations

import numpy as np

from scaleproof.checks.behaviour import BEHAVIOUR
from scaleproof.checks.contract import CONTRACT
from scaleproof.checks.examination import Examination, Examining, Watch
from scaleproof.checks.gradients import gradient_checks
from scaleproof.checks.subject import Subject
from scaleproof.contract import buffers_kept
from scaleproof.diagnosis import Check, failed, is_reliable, not_asked
from scaleproof.images import AnyImages, Images, Rows, as_images
from scaleproof.models.classifier import AnyModel, Classifier, as_classifier
from scaleproof.store import UnitStore
from scaleproof.threat import Threat

__all__ = ["Check", "Examining", "examine", "failed", "is_reliable", "longest"]

IMAGES = 64
MOST_GRADIENTS = 400  # of each image, where it withstands everything


def examine(
    model: AnyModel,
    images: AnyImages,
    threat: Threat | None = None,
    *,
    count: int = IMAGES,
    seed: int = 0,
    draws: int = 1,
    surrogate: Classifier | None = None,
    invariant: bool = False,
    store: UnitStore | None = None,
    progress: Watch | None = None,
) -> tuple[Check, ...]:
    """Every check of a model, on `count` of the images, evenly spread; nothing is raised about the model itself.

    Where the attacks at hand are `invariant` to the scale of the logits, that scale cannot fool them and is not held
    against the model. A `store` keeps each answer, so that an examination that was cut goes on where it was.
    """
    source, classifier = as_images(images), as_classifier(model)
    x, y = source.select(spread(source, count))
    with buffers_kept(classifier), buffers_kept(surrogate or classifier):
        subject = Subject(
            classifier, x, y, threat or Threat(),
            seed=seed, draws=draws, surrogate=surrogate, classes=known_classes(source), invariant=invariant,
        )  # fmt: skip
        asking = Examination(subject, len(CONTRACT) + 1 + len(BEHAVIOUR), store, progress)
        checks = [check for question in CONTRACT for check in asking.ask(question)]
        checks += asking.ask(gradient_checks)
        if subject.count == 0:
            unasked = "No image is classified right."
            return (*checks, not_asked("attacks", "Short attacks", unasked, "Look at the model."))
        checks += [check for question in BEHAVIOUR for check in asking.ask(question)]
    return tuple(checks)


def spread(images: Images, count: int) -> Rows:
    """So many of the images, evenly spread."""
    last = len(images) - 1
    return np.unique(np.linspace(0, last, min(count, last + 1)).round().astype(np.int64))


def longest(
    model: AnyModel, images: AnyImages, threat: Threat | None = None, *, count: int = IMAGES
) -> float:
    """About how many seconds an examination takes where every image withstands everything; by one gradient."""
    source, classifier = as_images(images), as_classifier(model)
    x, y = source.select(spread(source, count))
    with buffers_kept(classifier):
        subject = Subject(classifier, x, y, threat or Threat())
        return MOST_GRADIENTS * subject.seconds_of_a_gradient()


def known_classes(images: Images) -> int | None:
    """How many classes the images have by their own words."""
    names = getattr(images, "classes", None)
    return len(names) if isinstance(names, tuple | list) else None
