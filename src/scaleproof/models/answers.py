"""Answers: what a network says of one fixed image, to notice later that it is no longer the same network.

Weights say nothing about the code around them: another activation or normalisation leaves every tensor as it was.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from scaleproof.models.classifier import Classifier, device_of, evaluating
from scaleproof.rng import random_state_kept

TOLERANCE = 0.02  # of the largest logit: what number formats and devices may change
DIGITS = 4
KEY = "answers"  # in the header of weights and in checkpoints


def fixed_image(shape: Sequence[int]) -> Tensor:
    """Waves over all pixels, the same everywhere (1, C, H, W)."""
    places = torch.arange(math.prod(shape), dtype=torch.float64)
    return ((1 + torch.sin(0.7 * places + 0.001 * places**1.5)) / 2).float().view(1, *shape)


def answers(classifier: Classifier, shape: Sequence[int]) -> dict[str, str]:
    """The logits of the fixed image, with its shape, for a record; nothing where they are others when asked again."""
    first, again = asked(classifier, shape, 2)
    if first != again or not all(map(math.isfinite, first)):
        return {}
    rounded = [float(f"{value:.{DIGITS}g}") for value in first]
    return {KEY: json.dumps({"shape": list(shape), "logits": rounded})}


def asked(classifier: Classifier, shape: Sequence[int], times: int) -> list[list[float]]:
    """Its logits in eval mode, several times; one that draws random numbers draws others each time.

    The image comes twice in a batch: statistics of a batch, where a network has them, need two rows.
    """
    kinds = (weight.dtype for weight in classifier.parameters() if weight.is_floating_point())
    x = fixed_image(shape).to(device_of(classifier), next(kinds, torch.float32)).repeat(2, 1, 1, 1)
    with evaluating(classifier), torch.no_grad(), random_state_kept(x.device):
        return [classifier(x)[0].double().tolist() for _ in range(times)]


def check_answers(classifier: Classifier, record: Mapping[str, Any], where: str) -> None:
    """Refuse a network that says something else of the fixed image than a record does."""
    if KEY not in record:
        return
    stored = json.loads(record[KEY])
    then, (now,) = stored["logits"], asked(classifier, stored["shape"], 1)
    reach = TOLERANCE * max(1.0, *map(abs, then))
    apart = [abs(a - b) for a, b in zip(then, now, strict=False)]
    wrong = [gap for gap in apart if not gap <= reach]  # NaN, too
    if wrong or len(then) != len(now):
        what = f"one is now off by {wrong[0]:.3g}" if wrong else f"{len(now)} are left"
        raise ValueError(
            f"{where} belongs to a network that answered otherwise: of {len(then)} logits of a fixed image {what}. "
            "Its code has changed since: put it back, or train anew"
        )
