"""Chance inside networks: what their layers and functions draw themselves depends on the step alone."""

from __future__ import annotations

from torch import nn

from scaleproof.models.classifier import Classifier
from scaleproof.speed.fold import is_own

CHANCE = (nn.modules.dropout._DropoutNd, nn.RReLU)  # layers that draw random numbers in train mode


def has_chance(classifier: Classifier) -> bool:
    """Whether passes may draw random numbers of their own; a network that is not ours may do so in any function."""
    return not is_own(classifier.net) or any(isinstance(module, CHANCE) for module in classifier.modules())
