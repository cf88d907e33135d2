"""What is checked before a training begins."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleproof.defenses.base import Defense
from scaleproof.models.classifier import Classifier, evaluating
from scaleproof.threat import Threat
from scaleproof.training.config import TrainConfig


def probe_threat(defense: Defense) -> Threat:
    """The ball that the defense trains against, 8/255 where it trains against none."""
    return defense.ball or Threat()


def checked_validation(config: TrainConfig, count: int) -> int:
    """The held-out images; a small training set gives up a tenth at most."""
    return min(config.validation, count // 10)


def check_classes(classifier: Classifier, x: Tensor, classes: int) -> None:
    with evaluating(classifier), torch.no_grad():
        outputs = classifier(x).shape[1]
    if outputs != classes:
        raise ValueError(
            f"the network must have as many outputs as the data has classes, {outputs} for {classes}"
        )


def check_batch(batch: int, count: int) -> None:
    if batch > count:
        raise ValueError(
            f"a batch must not be larger than the training set, got {batch} for {count} images: "
            "give a smaller batch_size (--batch-size)"
        )
