"""Output: what a classifier says of a batch, and the features and weights behind it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, kw_only=True, repr=False)
class Output:
    """Logits of a batch, with the head's input and weight where an objective needs them."""

    logits: Tensor  # (B, K)
    features: Tensor | None = None  # (B, D)
    weight: Tensor | None = None  # (K, D)

    def __repr__(self) -> str:
        shapes = (f"{name} {tuple(part.shape)}" for name, part in vars(self).items() if part is not None)
        return f"Output({', '.join(shapes)})"

    @property
    def cosines(self) -> Tensor:
        """Cosine of the angle between each feature vector and each class weight, in float32 at least."""
        if self.features is None or self.weight is None:
            raise ValueError("cosines need features and head weights: ask `Classifier.outputs` for them")
        features, weight = at_least_float32(self.features), at_least_float32(self.weight)
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            return F.normalize(features, dim=1) @ F.normalize(weight, dim=1).T  # (B, K)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Half precision becomes float32; float32 and float64 stay as they are."""
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor
