"""Checks of gradients: whether they are there, are numbers, and say where the loss grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scaleproof.checks.contract import SAME, relative
from scaleproof.checks.shares import seldom
from scaleproof.checks.subject import Subject
from scaleproof.diagnosis import Check, at_most, not_asked
from scaleproof.losses import (
    Objective,
    cosine_cross_entropy,
    cross_entropy,
    cw_margin,
    dlr,
    margin,
    probability_margin,
    standardised_cross_entropy,
)
from scaleproof.rng import Rng

OBJECTIVES = (
    cross_entropy, cw_margin, dlr, cosine_cross_entropy(), probability_margin, standardised_cross_entropy(),
)  # fmt: skip
ZERO_LIMIT = 0.05
PIXEL_LIMIT = 0.5
SIZE_LIMIT = 1e6
DIRECTION_LIMIT = 0.3
TINY = 1e-30
SHORT = 1e-3  # of a pixel: a step on which a gradient should still hold
NUDGE = 2 / 255  # of a pixel: does the model see it at all?


@dataclass(frozen=True)
class Seen:
    """One objective's gradient at the images classified right."""

    objective: Objective
    gradient: Tensor
    attached: bool

    @property
    def peak(self) -> Tensor:
        return self.gradient.flatten(1).abs().amax(1)


def seen(subject: Subject) -> list[Seen]:
    """Every objective's gradient, in float32, at one draw: of one pass forth for all that need the same of it."""
    wanted = [objective for objective in OBJECTIVES if objective.scale_invariant or not subject.invariant]
    fitted = [objective.for_classes(subject.logits.shape[1]) for objective in wanted]
    known = [objective for objective, note in fitted if note is None]
    found: dict[str, Seen] = {}
    for features in (False, True):
        alike = [objective for objective in known if objective.needs_features is features]
        if alike and (not features or has_head(subject)):
            found |= look(subject, alike, features)
    return [found[objective.name] for objective in known if objective.name in found]


def has_head(subject: Subject) -> bool:
    try:
        subject.classifier.find_head(subject.x)
    except ValueError:
        return False
    return True


def look(subject: Subject, objectives: Sequence[Objective], features: bool) -> dict[str, Seen]:
    """The gradients of some objectives, each the way back from the same outputs."""
    with torch.enable_grad(), subject.chance("gradient"), subject.exact.arithmetic():
        point = subject.x.detach().requires_grad_()
        output = subject.exact.choice.backend(point, features)
        return {one.name: way_back(one, one(output, subject.y), point) for one in objectives}


def way_back(objective: Objective, value: Tensor, point: Tensor) -> Seen:
    """The gradient, and whether a path in the graph leads from the image to the value; zero where none does."""
    gradient = None
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value.sum(), point, allow_unused=True, retain_graph=True)
    whole = torch.zeros_like(point) if gradient is None else gradient
    return Seen(objective, whole.detach(), attached=gradient is not None)


def gradient_checks(subject: Subject) -> list[Check]:
    if subject.count == 0:
        return [
            not_asked("gradients", "Gradients", "No image is classified right.", "Look at the model first.")
        ]
    found = seen(subject)
    return [
        detached(found),
        finite(found),
        zero(found),
        pixels(subject, found),
        size(found),
        direction(subject, found),
    ]


def detached(found: list[Seen]) -> Check:
    loose = sum(not one.attached for one in found) / len(found)
    return at_most(
        "gradient-detached", "A gradient path to the image", loose, 0.0,
        "The share of objectives with no path from the image to their value in the graph.",
        "Look for detach(), numpy or a library call; give its stand-in as Classifier(net, backward=identity).",
    )  # fmt: skip


def finite(found: list[Seen]) -> Check:
    value, name = worst(found, lambda one: (~one.gradient.isfinite()).flatten(1).any(1).float().mean())
    return at_most(
        "gradient-finite", "Gradients are numbers", value, 0.0,
        f"The share of images whose gradient has a NaN or an infinity (worst: {name}).",
        "Look for square roots, logarithms and divisions at zero.",
    )  # fmt: skip


def zero(found: list[Seen]) -> Check:
    flags = {one.objective.name: one.peak == 0 for one in found}
    name = max(flags, key=lambda key: int(flags[key].sum()))
    return seldom(
        "gradient-zero", "Gradients do not vanish", flags[name], ZERO_LIMIT,
        f"The share of images whose gradient is zero although they are classified right (worst: {name}):",
        "Look for rounding and saturation; use BPDA, Classifier(net, backward=identity), or objectives without scale.",
    )  # fmt: skip


def pixels(subject: Subject, found: list[Seen]) -> Check:
    alive = torch.stack([(one.gradient != 0).any(0) for one in found]).any(0)
    if not bool(alive.any()) or count_all_the_same(subject, ~alive):
        alive = torch.ones_like(alive)
    value, name = worst(found, lambda one: (one.gradient == 0)[:, alive].float().mean())
    return at_most(
        "gradient-pixels", "Every pixel counts", value, PIXEL_LIMIT,
        f"The share of gradients that are exactly zero on pixels that count for some image (worst: {name}).",
        "Look at what the model does to its input before the first layer.",
    )  # fmt: skip


def count_all_the_same(subject: Subject, still: Tensor) -> bool:
    """Whether the answers change with pixels that no gradient tells of: a model may ignore pixels, not hide them."""
    if not bool(still.any()):
        return False
    noise = Rng(subject.seed, "checks pixels").uniform(subject.right, tuple(subject.x.shape[1:]))
    nudged = (subject.x + NUDGE * still * (2 * noise.to(subject.x) - 1)).clamp(0, 1)
    with subject.chance("gradient"):
        before = subject.oracle.judge(subject.x)
    with subject.chance("gradient"):
        after = subject.oracle.judge(nudged)
    return relative(before, after) > SAME


def size(found: list[Seen]) -> Check:
    value, name = worst(found, lambda one: one.peak.nan_to_num(0.0).max())
    return at_most(
        "gradient-size", "Gradients do not explode", value, SIZE_LIMIT,
        f"The largest entry of any gradient, per pixel (worst: {name}).",
        "Look for steep preprocessing or saturated activations.",
    )  # fmt: skip


def worst(found: list[Seen], measure: Callable[[Seen], Tensor]) -> tuple[float, str]:
    values = {one.objective.name: float(measure(one)) for one in found}
    name = max(values, key=lambda key: values[key])
    return values[name], name


def direction(subject: Subject, found: list[Seen]) -> Check:
    """Whether a short step along the gradient gains what the gradient promises."""
    label = "Gradients say where the loss grows"
    if subject.classifier.stand_ins:
        why = "The gradient is that of a stand-in, which promises nothing about the part itself."
        advice = "Compare several stand-ins, and black-box attacks."
        return not_asked("gradient-direction", "Direction of the gradients", why, advice)
    (one,) = (one for one in found if one.objective.name == cw_margin.name)
    gradient = one.gradient.nan_to_num(0.0, 0.0, 0.0)
    moved = (subject.x + short(subject) * subject.threat.steepest(gradient)).clamp(0, 1)
    promised = (gradient * (moved - subject.x)).flatten(1).sum(1)
    with subject.chance("gradient"):
        before = margin(subject.oracle.judge(subject.x), subject.y)
    with subject.chance("gradient"):
        after = margin(subject.oracle.judge(moved), subject.y)
    missed = (1 - (after - before) / promised.clamp_min(TINY)).abs()[promised > 0]
    value = float(missed.median()) if len(missed) > 0 else 1.0
    return at_most(
        "gradient-direction", label, value, DIRECTION_LIMIT,
        "By what share a short step along the gradient misses the gain that the gradient promises (median).",
        "The loss is rugged: look for steep or discontinuous parts; use BPDA, Classifier(net, backward=...).",
    )  # fmt: skip


def short(subject: Subject) -> Tensor:
    """A length for each image, drawn between half and all of a short step: no model can be in step with it."""
    drawn = Rng(subject.seed, "checks step").uniform(subject.right, (1,) * (subject.x.dim() - 1))
    return subject.near(SHORT) * (1 + drawn.to(subject.x)) / 2
