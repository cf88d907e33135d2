"""Checks by short attacks: whether what they find behaves as it does on a model whose gradients can be trusted."""

from __future__ import annotations

import math
from itertools import pairwise

import torch

from scaleproof.attacks.square import Square
from scaleproof.checks.contract import gain
from scaleproof.checks.shares import seldom
from scaleproof.checks.subject import Subject
from scaleproof.diagnosis import Check, at_most, not_asked
from scaleproof.losses import cross_entropy, cw_margin, misclassified
from scaleproof.rng import Rng

SCALE_LIMIT = 0.1
SILENT_LIMIT = 0.05
INCOMPLETE_LIMIT = 0.25
UNSTABLE_LIMIT = 0.15
UNBOUNDED_LIMIT = 0.05
RISE_LIMIT = 0.05
MORE_LIMIT = 0.1
OUTSIDE_LIMIT = 0.05
USUAL_GAP = 5.0  # between the two largest logits: cross entropy sees it clearly
NEAR = 1 / 4  # of eps
WIDEST_NOISE = 2 / 255  # a pixel
FACTORS = (0.5, 1.0, 2.0, 4.0)
QUERIES = 200


def scale(subject: Subject) -> Check:
    """Cross entropy against itself on logits of a usual size."""
    label = "The scale of the logits does not matter"
    advice = (
        "Use attacks that do not depend on the scale (si-pgd, pgd-cw, pgd-std, apgd-t); see scaleproof sweep."
    )
    if subject.invariant:
        why = "No need: the number rests on an attack that no scale can fool."
        return not_asked("scale", "Scale of the logits", why)
    top = subject.logits.topk(2, dim=1).values
    gap = float((top[:, 0] - top[:, 1]).median())
    left = ~subject.by_cross_entropy.ever
    found = torch.zeros_like(left)
    if gap > 0 and math.isfinite(gap):
        other = subject.classifier.rescaled(USUAL_GAP / gap)
        found = subject.broken_by(subject.pgd(cross_entropy), left, other)
    return seldom(
        "scale", label, found, SCALE_LIMIT,
        "The share of images that PGD on the cross entropy misses and finds once the logits have a usual size, "
        "although no decision differs:",
        advice,
    )  # fmt: skip


def silent(subject: Subject) -> Check:
    label = "What was broken on the way is returned"
    advice = "Keep the best iterate, as APGD does and PGD(keep='best'), or let broken images leave the loop (cascade)."
    if subject.oracle.draws > 1:
        why = "A randomised model: what one draw gets wrong, the next may get right."
        return not_asked("silent-success", "What was broken on the way", why)
    path = subject.by_cross_entropy
    return seldom(
        "silent-success", label, path.ever & ~path.broken, SILENT_LIMIT,
        "The share of images that were misclassified at some step of PGD but not at its last:", advice,
    )  # fmt: skip


def incomplete(subject: Subject) -> Check:
    best = subject.by_margin.margins.cummax(0).values
    last = 3 * len(best) // 4
    whole, late = best[-1] - best[0], best[-1] - best[last]
    open_rows = ~subject.by_margin.ever & (whole > 0)
    value = float((late[open_rows] / whole[open_rows]).median()) if bool(open_rows.any()) else 0.0
    return at_most(
        "incomplete", "The search comes to rest", value, INCOMPLETE_LIMIT,
        "The share of the loss that a short PGD gains in its last quarter, on images it does not break (median).",
        "Give the attacks more steps or another step size.",
    )  # fmt: skip


def unstable(subject: Subject) -> Check:
    noise = Rng(subject.seed, "checks noise").uniform(subject.right, tuple(subject.x.shape[1:]))
    stride = min(NEAR * subject.threat.eps, subject.near(WIDEST_NOISE))
    near = (subject.x + stride * subject.threat.steepest(noise.to(subject.x) - 0.5)).clamp(0, 1)
    with subject.chance("noise"):
        flipped = misclassified(subject.oracle.judge_chance(near, subject.y)[0], subject.y)
    return seldom(
        "unstable", "Decisions hold around the image", flipped, UNSTABLE_LIMIT,
        "The share of images whose decision changes under random noise of a quarter of the radius:",
        "The model may be randomised or hardly trained; a gradient at one point says little about the next.",
    )  # fmt: skip


def unbounded(subject: Subject) -> Check:
    widest = subject.threat.reach(subject.x[0].numel())
    left = ~subject.white_box
    for objective in (cw_margin, cross_entropy):
        left = left & ~subject.broken_by(subject.pgd(objective, 50, widest), left)
    return seldom(
        "unbounded", "An unbounded attack reaches 0%", left, UNBOUNDED_LIMIT,
        "The share of images that withstand an attack which may change everything:",
        "The gradient does not lead to the decision boundary: look for masking, use BPDA, EOT or black-box attacks.",
    )  # fmt: skip


def monotone(subject: Subject) -> Check:
    left = [~subject.path(subject.pgd(cw_margin, 10, radius)).ever for radius in radii(subject)]
    shares = [subject.share(flags) for flags in left]
    rises = [gain(earlier, later) for earlier, later in pairwise(left)]
    told = ", ".join(f"{100 * share:.0f}%" for share in shares)
    return at_most(
        "monotone", "Accuracy falls with the radius", max(0.0, *rises), RISE_LIMIT,
        f"The largest rise of accuracy as the radius grows (at {', '.join(f'{f:g}' for f in FACTORS)} times: {told}).",
        "A larger radius can only help an attacker: the attack fails, not the model's weakness.",
    )  # fmt: skip


def radii(subject: Subject) -> list[float]:
    most = 1.0 if subject.threat.is_box else math.inf
    return [min(most, factor * subject.threat.eps) for factor in FACTORS]


def more_effort(subject: Subject) -> Check:
    found = subject.broken_by(subject.pgd(cw_margin, 100), ~subject.white_box)
    return seldom(
        "more-effort", "More steps and restarts stop helping", found, MORE_LIMIT,
        "The share of images that withstand 20 steps of two attacks and fall to 100 steps of a third start:",
        "Give the attacks more steps and restarts until the number stands still.",
    )  # fmt: skip


def black_box(subject: Subject) -> Check:
    found = subject.broken_by(Square(threat=subject.threat, steps=QUERIES), ~subject.white_box)
    return seldom(
        "black-box", "No black-box attack does better", found, OUTSIDE_LIMIT,
        f"The share of images that withstand the gradient and fall to {QUERIES} queries of Square:",
        "The gradient is masked: use BPDA, EOT, or a black-box attack for the number itself.",
    )  # fmt: skip


def transfer(subject: Subject) -> Check:
    other = subject.surrogate
    label, advice = (
        "No transferred example does better",
        "The gradient is masked: attack a smooth stand-in (BPDA) and carry its examples over.",
    )
    if other is None or not fits(subject):
        why = "No surrogate for such images and classes was given."
        advice = "In Python, examine(..., surrogate=...) takes another model."
        return not_asked("transfer", "Transferred examples", why, advice)
    found = subject.broken_by(subject.pgd(cw_margin), ~subject.white_box, other, leave=False)
    return seldom(
        "transfer", label, found, OUTSIDE_LIMIT,
        "The share of images that withstand the gradient and fall to examples made on another model:",
        advice,
    )  # fmt: skip


def fits(subject: Subject) -> bool:
    """Whether the surrogate takes these images and knows as many classes."""
    assert subject.surrogate is not None
    try:
        with torch.no_grad():
            return bool(subject.surrogate(subject.all_x[:1]).shape == subject.logits[:1].shape)
    except (RuntimeError, ValueError, AssertionError, TypeError, IndexError):
        return False


BEHAVIOUR = (
    scale, silent, incomplete, unstable, unbounded, monotone, more_effort, black_box, transfer,
)  # fmt: skip
