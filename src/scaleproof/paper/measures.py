"""Measures: what a finished run says about the quantities of prose.json, in the paper's units."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from scaleproof.paper.judge import Measured
from scaleproof.report.records import Run, Share
from scaleproof.statistics import Z95, wilson_half_width

Items = Iterator[tuple[tuple[str, ...], Measured]]  # the fields after the model, and the value


def robust_at_scale(run: Run) -> Items:
    assert run.sweep is not None
    for row in run.sweep.rows:
        yield (row.attack, f"{row.alpha:g}"), percentage(row.robust)


def swing(run: Run) -> Items:
    """Largest minus smallest; without an error where the very same examples were found at every scale."""
    assert run.sweep is not None
    for attack, identical in run.sweep.identical.items():
        seen = [percentage(row.robust) for row in run.sweep.rows if row.attack == attack]
        low, high = min(seen, key=lambda one: one.value), max(seen, key=lambda one: one.value)
        error = 0.0 if identical else math.hypot(low.error, high.error)
        yield (attack,), Measured(value=high.value - low.value, error=error)


def zero_gradients(run: Run) -> Items:
    assert run.sweep is not None
    for row in run.sweep.rows:
        yield (row.attack, f"{row.alpha:g}"), Measured(value=row.zero_gradients)


def surface_roughness(run: Run) -> Items:
    assert run.analysis is not None
    assert run.analysis.surfaces is not None
    yield (), mean_of(roughness(run.analysis.surfaces.losses["cross_entropy"]))


def weight_loss_rise(run: Run) -> Items:
    assert run.analysis is not None
    assert run.analysis.weights is not None
    yield (), mean_of(rises(run.analysis.weights.loss["adversarial"]))


def true_cosine(run: Run) -> Items:
    assert run.analysis is not None
    assert run.analysis.cosines is not None
    cosines = run.analysis.cosines
    error = histogram_error(cosines.edges, cosines.counts["adversarial_true"])
    yield (), Measured(value=cosines.means["adversarial_true"], error=error)


READERS: dict[str, Callable[[Run], Items]] = {
    "robust-at-scale": robust_at_scale,
    "swing": swing,
    "zero-gradients": zero_gradients,
    "surface-roughness": surface_roughness,
    "weight-loss-rise": weight_loss_rise,
    "true-cosine": true_cosine,
}


def percentage(share: Share) -> Measured:
    """An accuracy in percent, with half of Wilson's interval."""
    return Measured(value=100 * share.accuracy, error=100 * wilson_half_width(share.accuracy, share.count))


def roughness(losses: NDArray[np.float32]) -> NDArray[np.float64]:
    """Mean size of the second differences of each surface (n, P, P), along both directions (n,)."""
    exact = losses.astype(np.float64)
    along, across = (np.abs(np.diff(exact, n=2, axis=axis)).mean(axis=(1, 2)) for axis in (1, 2))
    return np.asarray((along + across) / 2)


def rises(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean loss of the moved weights minus that of the unmoved ones in the middle, for each direction (D, P)."""
    middle = losses.shape[1] // 2
    return np.asarray(np.delete(losses, middle, axis=1).mean(axis=1) - losses[:, middle])


def histogram_error(edges: tuple[float, ...], counts: tuple[int, ...]) -> float:
    """Half the normal interval of a mean whose values are known by their bins."""
    centres = np.repeat([(low + high) / 2 for low, high in pairwise(edges)], counts)
    return mean_of(centres).error


def mean_of(values: NDArray[np.float64]) -> Measured:
    """A mean, with half of its normal interval where there is more than one value."""
    count = len(values)
    error = Z95 * float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    return Measured(value=float(values.mean()), error=error)
