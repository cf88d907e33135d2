"""The SI mechanism: any defense made scale-invariant (the cosine inside, a margin term outside), and HE's loss."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from scaleproof.defenses.alp import LogitPairing
from scaleproof.defenses.at import AdversarialTraining
from scaleproof.defenses.base import Defense, Margin, check_margin
from scaleproof.defenses.free import Free
from scaleproof.defenses.standard import Standard
from scaleproof.defenses.trades import Trades
from scaleproof.models.hypersphere import HE_MARGIN, HE_SCALE

AnyDefense = TypeVar("AnyDefense", bound=Defense)


def scale_invariant(
    defense: AnyDefense,
    *,
    scale: float = 15.0,
    margin: float = 0.2,
    weight: float = 0.2,
    inner: bool = True,
    outer: bool = True,
) -> AnyDefense:
    """The same defense with SI: its attack follows the cosines (`inner`), CE^m joins its loss (`outer`).

    FreeAT has one backward pass for the weights and the perturbation, so the margin term is in both; its inner half
    alone is a backward pass of its own for the perturbation.
    """
    if isinstance(defense, Standard):
        raise ValueError("standard training meets no adversary: SI has nothing to change in it")
    if defense.label_margin:
        raise ValueError("a defense takes SI or hypersphere embedding, not both")
    if not (inner or outer):
        raise ValueError("scale_invariant must change something: inner, outer or both")
    check_margin(margin)
    changed = replace(defense, margin=Margin(scale=scale, margin=margin, weight=weight) if outer else None)
    if isinstance(defense, Free):
        own = inner and not (outer and weight)  # the margin term would carry the cosine into delta
        return replace(changed, separate_cosine=scale if own else None)  # type: ignore[call-arg]
    if not inner:
        return changed
    if defense.inner is None:
        raise ValueError(
            f"SI's inner half changes a defense's training attack, {type(defense).__name__} has none: give it "
            "inner=Inner(threat=...), or --si-half outer (scale_invariant(..., inner=False)) for the margin term alone"
        )
    attack = replace(defense.inner, objective=defense.inner.objective.with_cosines(scale))
    return replace(changed, inner=attack)


def hypersphere(defense: AnyDefense, *, margin: float = HE_MARGIN) -> AnyDefense:
    """The loss that goes with a hypersphere head (Pang et al. 2020): a margin on the cosine of the true class.

    The head's logits are HE_SCALE times the cosines, so the margin there is that many times as large.
    """
    if not isinstance(defense, AdversarialTraining | Trades | LogitPairing):
        raise ValueError(f"hypersphere embedding goes with at, trades and alp, got {defense.name}")
    cosines = defense.inner is not None and defense.inner.objective.needs_features
    if defense.margin is not None or cosines:
        raise ValueError("a defense takes SI or hypersphere embedding, not both")
    check_margin(margin)
    return replace(defense, label_margin=HE_SCALE * margin)
