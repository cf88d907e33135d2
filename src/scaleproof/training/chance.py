"""Chance inside networks: what their layers and functions draw themselves depends on the step alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from scaleproof.models.classifier import Classifier
from scaleproof.speed.fold import is_own
from scaleproof.speed.twins import chance_kept

CHANCE = (nn.modules.dropout._DropoutNd, nn.RReLU)  # layers that draw random numbers in train mode


def has_chance(classifier: Classifier) -> bool:
    """Whether passes may draw random numbers of their own; a network that is not ours may do so in any function."""
    return not is_own(classifier.net) or any(isinstance(module, CHANCE) for module in classifier.modules())


@contextmanager
def seeded(key: int, like: Tensor) -> Iterator[None]:
    """The global generators of torch, Python and numpy begin at a key, and are afterwards as they were."""
    with chance_kept(like):
        torch.manual_seed(key)
        random.seed(key)
        np.random.seed(key % 2**32)
        yield
