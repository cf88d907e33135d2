"""Is this number real? Checks of a model and of what attacks find on it, each a diagnosis as data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scaleproof.checks.behaviour import BEHAVIOUR
from scaleproof.checks.contract import CONTRACT
from scaleproof.checks.gradients import gradient_checks
from scaleproof.checks.subject import Subject
from scaleproof.contract import buffers_kept
from scaleproof.diagnosis import Check, failed, is_reliable, not_asked
from scaleproof.images import AnyImages, Images, as_images
from scaleproof.models.classifier import AnyModel, Classifier, as_classifier
from scaleproof.threat import Threat

__all__ = ["Check", "examine", "failed", "is_reliable"]

IMAGES = 64
ERRORS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)  # what a model may raise


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
) -> tuple[Check, ...]:
    """Every check of a model, on `count` of the images, evenly spread; nothing is raised about the model itself.

    Where the attacks at hand are `invariant` to the scale of the logits, that scale cannot fool them and is not held
    against the model.
    """
    source, classifier = as_images(images), as_classifier(model)
    rows = np.unique(np.linspace(0, len(source) - 1, min(count, len(source))).round().astype(np.int64))
    x, y = source.select(rows)
    with buffers_kept(classifier), buffers_kept(surrogate or classifier):
        subject = Subject(classifier, x, y, threat or Threat(), seed=seed, draws=draws, surrogate=surrogate)
        subject.invariant, subject.classes = invariant, known_classes(source)
        checks = [asked(question, subject) for question in CONTRACT]
        checks += gradient_answers(subject)
        if subject.count == 0:
            unasked = "No image is classified right."
            return (*checks, not_asked("attacks", "Short attacks", unasked, "Look at the model."))
        checks += [asked(question, subject) for question in BEHAVIOUR]
    return tuple(checks)


def known_classes(images: Images) -> int | None:
    """How many classes the images have by their own words."""
    names = getattr(images, "classes", None)
    return len(names) if isinstance(names, tuple | list) else None


def asked(check: Callable[[Subject], Check], subject: Subject) -> Check:
    """A check; one that the model answers with an error could not be asked."""
    name = check.__name__.replace("_", "-")
    try:
        return check(subject)
    except ERRORS as error:
        return not_asked(
            name, name.capitalize(), in_words(error), "Look at the error; give a smaller --batch-size."
        )


def gradient_answers(subject: Subject) -> list[Check]:
    try:
        return gradient_checks(subject)
    except ERRORS as error:
        return [not_asked("gradients", "Gradients", in_words(error), "Look at the error.")]


def in_words(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"The model raised {type(error).__name__}{': ' + text[0] if text else ''}."
