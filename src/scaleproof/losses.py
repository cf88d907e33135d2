"""Objectives: what an attack maximises. One value a sample; larger is always worse for the model.

An objective is a score (what the classes are compared by) and a form (how the true class is compared with the rest):

    objective                      score                           form             scale-invariant
    cross_entropy                  logits                          cross entropy    no
    cw_margin                      logits                          margin           its sign and direction
    dlr                            logits                          ratio            yes
    cosine_cross_entropy(scale)    scale x cosines                 cross entropy    yes (SI-PGD)
    probability_margin             softmax of the logits           margin           no
    standardised_cross_entropy     scale x standardised logits     cross entropy    yes, and needs no head
    standardised_margin(scale)     softmax of the line above       margin           yes, and needs no head

`targeted(objective)` pulls towards a class: its labels are (B, 2), the true class and the target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from scaleproof.models.output import Output, at_least_float32

TINY = 1e-12


Form = Callable[[Tensor, Tensor], Tensor]  # scores (B, K) and labels to one value a sample (B,)


@dataclass(frozen=True)
class Objective:
    """A score and a form; called with a model's output and labels it gives one value a sample (B,).

    With fewer than `classes` classes it is undefined or flat, and a margin of logits stands in for it.
    """

    name: str
    score: Callable[[Output], Tensor]
    form: Form
    classes: int = 2
    needs_features: bool = False
    scale_invariant: bool = False

    def __call__(self, output: Output, y: Tensor) -> Tensor:
        return self.form(self.score(output), y)

    def for_classes(self, classes: int) -> tuple[Objective, str | None]:
        """This objective, or the margin in its place where there are too few classes, and a note that says so."""
        if classes >= self.classes:
            return self, None
        aimed = self.form in TARGETED.values()
        stand_in = targeted(cw_margin) if aimed else cw_margin
        note = (
            f"{self.name} needs {self.classes} classes, the model has {classes}: {stand_in.name} in its place"
        )
        return stand_in, note


# Scores: what the classes are compared by.


def logits(output: Output) -> Tensor:
    return at_least_float32(output.logits)


def probabilities(output: Output) -> Tensor:
    return logits(output).softmax(1)


@dataclass(frozen=True)
class ScaledCosines:
    scale: float

    def __call__(self, output: Output) -> Tensor:
        return self.scale * output.cosines


@dataclass(frozen=True)
class StandardisedLogits:
    """Logits minus their mean, over their own deviation: blind to scale and shift, same decision."""

    scale: float

    def __call__(self, output: Output) -> Tensor:
        values = logits(output)
        centred = values - values.mean(1, keepdim=True)
        variance = centred.square().mean(1, keepdim=True)
        return self.scale * centred / variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()


@dataclass(frozen=True)
class StandardisedProbabilities:
    """What a softmax makes of standardised logits."""

    scale: float

    def __call__(self, output: Output) -> Tensor:
        return StandardisedLogits(self.scale)(output).softmax(1)


def decided(logits: Tensor, y: Tensor) -> Tensor:
    """The class of the largest logit (B,); logits that are not numbers decide for none, so for a wrong class."""
    wrong = (y == 0).to(y.dtype)
    return torch.where(logits.isnan().any(1), wrong, logits.argmax(1))


def misclassified(logits: Tensor, y: Tensor) -> Tensor:
    """Which rows are not decided for their class (B,): what a search keeps and what a verdict calls broken."""
    return decided(logits, y) != y


# Forms: the true class against the rest.


def column(scores: Tensor, y: Tensor) -> Tensor:
    return scores.gather(1, y[:, None]).squeeze(1)


def best_other(scores: Tensor, y: Tensor) -> Tensor:
    """The largest score of any class but y."""
    return scores.scatter(1, y[:, None], -torch.inf).amax(1)


def negative_log_likelihood(scores: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(scores, y, reduction="none")


def margin(scores: Tensor, y: Tensor) -> Tensor:
    """Best other class minus true class: positive exactly when misclassified (Carlini and Wagner 2017)."""
    return best_other(scores, y) - column(scores, y)


def gap(scores: Tensor, y: Tensor) -> Tensor:
    """The target's score minus the true one's."""
    return column(scores, y[:, 1]) - column(scores, y[:, 0])


def ratio(scores: Tensor, y: Tensor) -> Tensor:
    """Difference of logits ratio: the margin over the gap of first and third score (Croce and Hein 2020)."""
    ordered = scores.sort(dim=1, descending=True).values
    return margin(scores, y) / (ordered[:, 0] - ordered[:, 2] + TINY)


def towards(scores: Tensor, y: Tensor) -> Tensor:
    return -F.cross_entropy(scores, y[:, 1], reduction="none")


def targeted_margin(scores: Tensor, y: Tensor) -> Tensor:
    """Target minus the best other class: positive exactly when the target is reached."""
    return -margin(scores, y[:, 1])


def targeted_ratio(scores: Tensor, y: Tensor) -> Tensor:
    """Targeted DLR: target minus true class, over first score minus the mean of third and fourth."""
    ordered = scores.sort(dim=1, descending=True).values
    return gap(scores, y) / (ordered[:, 0] - (ordered[:, 2] + ordered[:, 3]) / 2 + TINY)


TARGETED: dict[Form, Form] = {
    negative_log_likelihood: towards,
    margin: targeted_margin,
    ratio: targeted_ratio,
}

cross_entropy = Objective("cross_entropy", logits, negative_log_likelihood)
cw_margin = Objective("cw_margin", logits, margin, scale_invariant=True)
logit_gap = Objective("logit_gap", logits, gap)  # of a target
dlr = Objective("dlr", logits, ratio, classes=3, scale_invariant=True)
probability_margin = Objective("probability_margin", probabilities, margin)
probability_dlr = Objective("probability_dlr", probabilities, ratio, classes=3)


def cosine_cross_entropy(scale: float = 15.0) -> Objective:
    """Cross entropy of `scale` times the cosines between features and class weights: the SI objective."""
    return Objective(
        f"cosine_cross_entropy({scale:g})",
        ScaledCosines(positive(scale)),
        negative_log_likelihood,
        needs_features=True,
        scale_invariant=True,
    )


def standardised_cross_entropy(scale: float = 4.0) -> Objective:
    """Cross entropy of standardised logits: scale-invariant, and in agreement with the decision.

    Two standardised logits are always +1 and -1: it takes three classes to have a gradient.
    """
    return Objective(
        f"standardised_cross_entropy({scale:g})",
        StandardisedLogits(positive(scale)),
        negative_log_likelihood,
        classes=3,
        scale_invariant=True,
    )


def standardised_margin(scale: float = 4.0) -> Objective:
    """The margin of probabilities, of standardised logits: the scale of the model's logits is taken out of it."""
    return Objective(
        f"standardised_margin({scale:g})",
        StandardisedProbabilities(positive(scale)),
        margin,
        classes=3,
        scale_invariant=True,
    )


def targeted(objective: Objective) -> Objective:
    """The same score, pulled towards the class in the second column of the labels (B, 2)."""
    if objective.form not in TARGETED:
        raise ValueError(f"{objective.name} has no targeted form: it takes labels of shape (B, 2) already")
    return replace(
        objective,
        name=f"targeted({objective.name})",
        form=TARGETED[objective.form],
        classes=4 if objective.form is ratio else objective.classes,
    )


def positive(scale: float) -> float:
    if not 0 < scale < float("inf"):
        raise ValueError(f"scale must be finite and > 0, got {scale}")
    return scale
