"""Scouts: one step towards each of the likeliest wrong classes shows which of them are worth a search.

The clean logits, by which targets are usually ranked, say how near a class is, not how fast one gets there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scaleproof.attacks.base import likeliest_wrong
from scaleproof.losses import cw_margin, targeted
from scaleproof.oracle import Oracle
from scaleproof.threat import Threat

TOWARDS = targeted(cw_margin)


def scouted(oracle: Oracle, threat: Threat, clean: Tensor, y: Tensor, scouts: int, rank: int) -> Tensor:
    """Of the `scouts` likeliest wrong classes the one whose scout came rank-th, from 1 (B,)."""
    logits = oracle.logits(clean)
    classes = torch.stack([likeliest_wrong(logits, y, place) for place in range(1, scouts + 1)], dim=1)
    reached = torch.stack([reach(oracle, threat, clean, y, target) for target in classes.unbind(1)], dim=1)
    order = reached.argsort(dim=1, descending=True, stable=True)
    return classes.gather(1, order)[:, rank - 1]


def reach(oracle: Oracle, threat: Threat, clean: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """The margin of the best wrong class after a step of size eps towards the target (B,)."""
    at = oracle.value_and_grad(TOWARDS, clean, torch.stack([y, target], dim=1))
    ahead = threat.project(clean + threat.eps * threat.steepest(at.gradient), clean)
    return oracle.value(cw_margin, ahead, y)[0]
