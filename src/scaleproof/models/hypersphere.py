"""Hypersphere embedding (Pang et al. 2020): a head that sees directions only."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

HE_SCALE = 15.0
HE_MARGIN = 0.2


class HypersphereHead(nn.Linear):
    """Logits are `scale` times the cosines of features and class weights; no bias."""

    def __init__(self, in_features: int, out_features: int, *, scale: float = HE_SCALE) -> None:
        super().__init__(in_features, out_features, bias=False)
        self.scale = scale

    def forward(self, features: Tensor) -> Tensor:
        return self.scale * F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))
