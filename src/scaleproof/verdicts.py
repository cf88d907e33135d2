"""The last word on examples: budget and pixel range, then the decision in float32."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from scaleproof.attacks.base import Attack
from scaleproof.evaluation import VERDICTS
from scaleproof.losses import decided, margin
from scaleproof.oracle import Oracle
from scaleproof.units import digests


def verdict(attack: Attack, oracle: Oracle, x: Tensor, found: Tensor, y: Tensor) -> dict[str, NDArray[Any]]:
    """What became of each example; one that breaks the attack's own rules is an error."""
    wrong = attack.threat.violation(found, x)
    if wrong is not None:
        raise ValueError(f"attack {attack.name!r} broke its own rules: {wrong}")
    logits, chance = oracle.judge_chance(found, y)
    prediction = decided(logits, y)
    tensors = {
        "broken": prediction != y,
        "attacked": torch.ones_like(y, dtype=torch.bool),
        "prediction": prediction,
        "margin": margin(logits, y),
        "size": attack.threat.size(found - x),
        "chance": chance,
    }
    arrays: dict[str, NDArray[Any]] = {
        name: tensor.cpu().numpy().astype(VERDICTS[name]) for name, tensor in tensors.items()
    }
    return {**arrays, "digest": digests(found)}
