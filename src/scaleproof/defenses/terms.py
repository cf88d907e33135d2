"""Terms of training losses: pure functions of logits (B, K) or cosines (B, K), each the mean over the batch.

Callers give float32 at least (`losses.logits`, `Output.cosines`): MART's constants vanish in half precision.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from scaleproof.losses import best_other, column

MART_ONE = 1.0001  # keeps the logarithm finite where a wrong class has all the probability
MART_TINY = 1e-12
MART_WEIGHT_ONE = 1.0000001


def cross_entropy(logits: Tensor, y: Tensor, *, margin: float = 0.0) -> Tensor:
    """Cross entropy; a margin is first taken off the true class alone."""
    if margin:
        logits = logits - margin * F.one_hot(y, logits.shape[1]).to(logits.dtype)
    return F.cross_entropy(logits, y)


def margin_cross_entropy(cosines: Tensor, y: Tensor, *, scale: float, margin: float) -> Tensor:
    """CE^m of the paper: cross entropy of scale (cos_j - margin [j = y])."""
    return cross_entropy(scale * cosines, y, margin=scale * margin)


def divergence_rows(reference: Tensor, logits: Tensor) -> Tensor:
    """KL(softmax(reference) to softmax(logits)) of each row, with a gradient through both."""
    target = reference.log_softmax(1)
    return (target.exp() * (target - logits.log_softmax(1))).sum(1)


def divergence(reference: Tensor, logits: Tensor) -> Tensor:
    """KL(p to q), the mean over the batch (TRADES)."""
    return divergence_rows(reference, logits).mean()


def boosted_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Cross entropy minus the log of one minus the largest wrong probability (MART's BCE)."""
    wrong = best_other(logits.softmax(1), y)
    return F.cross_entropy(logits, y) - (MART_ONE - wrong + MART_TINY).log().mean()


def weighted_divergence(reference: Tensor, logits: Tensor, y: Tensor) -> Tensor:
    """KL(p to q) of each row times one minus its true probability, not detached (MART)."""
    weight = MART_WEIGHT_ONE - column(reference.softmax(1), y)
    return (divergence_rows(reference, logits) * weight).mean()


def squared_distance_rows(first: Tensor, second: Tensor) -> Tensor:
    """Squared distance of the two probability vectors of each row (GAT)."""
    return (first.softmax(1) - second.softmax(1)).square().sum(1)


def mean_square_pairing(first: Tensor, second: Tensor) -> Tensor:
    """The mean square of the difference of logits over rows and classes (ALP)."""
    return (first - second).square().mean()


def norm_pairing(first: Tensor, second: Tensor) -> Tensor:
    """The length of the difference of logits, as ALP is printed; its gradient at zero is zero, not NaN."""
    square = (first - second).square().sum(1)
    inside = torch.where(square > 0, square, torch.ones_like(square))
    return torch.where(square > 0, inside.sqrt(), torch.zeros_like(square)).mean()


def alignment(first: Tensor, second: Tensor) -> Tensor:
    """One minus the cosine of two input gradients, the mean over rows where both are not zero (GradAlign)."""
    first, second = unit_peak(first.flatten(1)), unit_peak(second.flatten(1))
    there = ((first != 0).any(1) & (second != 0).any(1)).to(first.dtype)
    cosine = (first * second).sum(1) / (length(first) * length(second))
    return ((1 - cosine) * there).sum() / there.sum().clamp_min(1)


def unit_peak(rows: Tensor) -> Tensor:
    """Rows scaled to a largest entry of one, so that squares of tiny gradients do not vanish."""
    peak = rows.detach().abs().amax(1, keepdim=True)
    return rows / torch.where(peak > 0, peak, torch.ones_like(peak))


def length(rows: Tensor) -> Tensor:
    """Lengths of rows (B,), one for a row of zeros, where a square root would have no gradient."""
    square = rows.square().sum(1)
    return torch.where(square > 0, square, torch.ones_like(square)).sqrt()
