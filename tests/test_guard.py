"""The guard against catastrophic overfitting: what counts as a collapse, and what an epoch is compared with."""

from __future__ import annotations

from typing import Any

import pytest

from scaleproof.collapse import Accuracies, collapsed
from scaleproof.training import TrainConfig
from scaleproof.training.guard import fall
from scaleproof.training.weights import Best

Pair = tuple[float, float]  # clean, and under PGD


@pytest.mark.parametrize(
    ("best", "now", "found"),
    [
        ((80, 50), (80, 29), True), ((80, 50), (80, 31), False),  # by more than 20 points
        ((32, 11.2), (22.6, 0.0), True),  # never that high, and gone
        ((10, 10), (15, 2.4), False), ((19.6, 19.6), (70, 4), False), ((5, 5), (9, 0), False),  # it begins to learn
        ((30, 16), (60, 4.1), False),  # more than a quarter of the best is left
        ((80, 16), (25, 2.4), True), ((80, 16), (20, 2.4), False),  # more than a tenth of the clean accuracy is
    ],
)  # fmt: skip
def test_what_counts_as_catastrophic_overfitting(best: Pair, now: Pair, found: bool) -> None:
    assert collapsed(Accuracies(*best), Accuracies(*now), drop=20, count=1000) == found


@pytest.mark.parametrize(("count", "found"), [(50, False), (200, False), (500, True), (10_000, True)])
def test_a_fall_to_nothing_has_to_be_beyond_chance(count: int, found: bool) -> None:
    assert collapsed(Accuracies(60, 10), Accuracies(60, 0), drop=20, count=count) == found
    assert collapsed(Accuracies(60, 40), Accuracies(60, 10), drop=20, count=count), (
        "as many points as were named"
    )


def test_while_eps_grows_only_a_deep_fall_counts() -> None:
    assert not collapsed(Accuracies(32, 11.2), Accuracies(22.6, 0.0), drop=20, count=1000, eps_share=0.4)
    assert collapsed(Accuracies(60, 41), Accuracies(70, 20), drop=20, count=1000, eps_share=0.4)


def said(epochs: list[Pair], **settings: Any) -> str | None:
    """What the guard says of the last of these epochs."""
    best = Best()
    records = [
        {"epoch": number, "validation": {"clean": clean, "pgd": pgd}}
        for number, (clean, pgd) in enumerate(epochs, 1)
    ]
    for number, (_, pgd) in enumerate(epochs, 1):
        best.offer(pgd, number, {})
    return fall(records[:-1], records[-1], best, TrainConfig(**{"guard": "stop", **settings}), 1000)


def test_an_epoch_is_compared_with_the_best_before_it() -> None:
    found = "PGD accuracy fell from 14.0 (epoch 2) to 0.5"
    assert said([(60, 12), (60, 14), (60, 13), (60, 0.5)]) == found
    assert said([(60, 12), (60, 14), (60, 13), (60, 0.5)], guard="off") is None
    assert said([(60, 12), (15, 14), (60, 13), (60, 0.5)]) is None, (
        "one class for everything, when it was best"
    )
    assert said([(15, 12), (60, 14), (15, 13), (15, 0.5)]) == found


def test_a_collapse_waits_for_the_end_of_the_warm_up() -> None:
    epochs: list[Pair] = [(60, 14), (60, 14), (60, 13), (60, 0.5)]
    assert said(epochs, eps_warm_up=5) is None
    assert said(epochs, eps_warm_up=4) is not None, "the fourth epoch has all of eps"
