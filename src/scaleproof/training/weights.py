"""Sets of weights: live, kept, and put back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from scaleproof.models.classifier import Classifier

State = dict[str, Tensor]


@dataclass
class Best:
    """The weights of the best epoch so far by some accuracy."""

    pgd: float = -1.0
    epoch: int = 0
    weights: State = field(default_factory=dict)

    def offer(self, pgd: float, epoch: int, weights: State) -> None:
        if pgd > self.pgd:
            self.pgd, self.epoch = pgd, epoch
            self.weights = {name: tensor.clone() for name, tensor in weights.items()}


def weights_of(classifier: Classifier) -> State:
    """The network's own tensors, live."""
    return {name: tensor.detach() for name, tensor in classifier.net.state_dict().items()}


def move_mean(mean: Classifier, live: Classifier, share: float) -> None:
    """Move a running mean of the weights by a share of its distance; a tensor with two names is moved once."""
    seen = set()
    with torch.no_grad():
        for old, new in zip(weights_of(mean).values(), weights_of(live).values(), strict=True):
            if old.data_ptr() in seen:
                continue
            seen.add(old.data_ptr())
            if old.is_floating_point():
                old.lerp_(new, share)
            else:
                old.copy_(new)


def load_weights(classifier: Classifier, weights: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in weights_of(classifier).items():
            tensor.copy_(weights[name])


def part(tensors: Mapping[str, Tensor], prefix: str, device: torch.device) -> State:
    """Tensors whose names begin with a prefix, without it."""
    return {
        name.removeprefix(prefix): tensor.to(device)
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def head_norm(classifier: Classifier) -> float:
    """The mean length of the head's class weights."""
    name = classifier.head_name
    assert name is not None
    weight: Tensor = classifier.net.get_submodule(name).weight  # type: ignore[assignment]
    return float(weight.detach().flatten(1).norm(dim=1).mean())
