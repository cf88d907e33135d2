"""Intervals and tests of right and wrong, against closed forms, brute force and what a simulation says."""

import itertools
import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from scaleproof.planning import detection_power, images_for_drop, images_for_half_width
from scaleproof.statistics import (
    Z95,
    Paired,
    mcnemar,
    paired,
    paired_interval,
    part_interval,
    two_sided_z,
    wilson,
    wilson_half_width,
)


def test_quantiles() -> None:
    assert two_sided_z(0.95) == pytest.approx(Z95, abs=1e-12)
    assert two_sided_z(0.99) == pytest.approx(2.5758293035489, abs=1e-12)
    with pytest.raises(ValueError, match="confidence must be between 0 and 1, got 95"):
        two_sided_z(95)


def test_mcnemar_in_closed_form() -> None:
    assert mcnemar(0, 0) == 1
    assert mcnemar(7, 7) == 1
    assert mcnemar(6, 0) == 2 / 2**6
    assert mcnemar(1, 9) == mcnemar(9, 1) == 2 * (1 + 10) / 2**10
    assert mcnemar(6, 16) == pytest.approx(0.052478, abs=1e-6)
    with pytest.raises(ValueError, match="got -1 and 2"):
        mcnemar(-1, 2)


@pytest.mark.parametrize("tosses", [1, 2, 5, 10])
def test_mcnemar_counts_the_rows_of_coins(tosses: int) -> None:
    """Of all equally likely rows of coins, as many as are at least as uneven as the one seen."""
    rows = list(itertools.product((0, 1), repeat=tosses))
    for lost in range(tosses + 1):
        uneven = abs(2 * lost - tosses)
        as_uneven = sum(abs(2 * sum(row) - tosses) >= uneven for row in rows)
        assert mcnemar(lost, tosses - lost) == as_uneven / len(rows)


def test_mcnemar_of_many_pairs() -> None:
    assert mcnemar(5000, 5000) == 1
    assert 0 < mcnemar(4000, 4400) < 1e-4
    assert mcnemar(0, 5000) == 0, "too small for a float, and no error"
    scipy_stats = pytest.importorskip("scipy.stats")
    assert mcnemar(940, 1020) == pytest.approx(scipy_stats.binomtest(940, 1960).pvalue, rel=1e-9)


@pytest.mark.parametrize(
    ("lost", "won", "count"), [(12, 2, 50), (0, 3, 40), (30, 30, 1000), (5, 0, 5), (0, 0, 9)]
)
def test_paired_intervals_hold_their_difference(lost: int, won: int, count: int) -> None:
    low, high = paired_interval(lost, won, count)
    assert -1 <= low <= (lost - won) / count <= high <= 1
    assert low < high
    mirrored = paired_interval(won, lost, count)
    assert mirrored == (pytest.approx(-high, abs=1e-9), pytest.approx(-low, abs=1e-9))
    wider = paired_interval(lost, won, count, two_sided_z(0.999))
    assert wider[0] <= low
    assert high <= wider[1]


def test_a_paired_interval_in_closed_form() -> None:
    """Without discordant pairs the score interval for d solves n d^2 = z^2 d (1 - d): its end is z^2 / (n + z^2)."""
    end = Z95**2 / (50 + Z95**2)
    assert paired_interval(0, 0, 50) == (pytest.approx(-end, abs=1e-9), pytest.approx(end, abs=1e-9))
    assert paired_interval(0, 0, 0) == (-1, 1)


def test_the_paired_interval_is_mcnemars_score_test_at_zero() -> None:
    for lost, won in itertools.product(range(0, 25, 3), repeat=2):
        if lost + won:
            rejected = abs(lost - won) / math.sqrt(lost + won) > Z95
            low, high = paired_interval(lost, won, 200)
            assert rejected == (low > 0 or high < 0), (lost, won)


@pytest.mark.parametrize(("lose", "win"), [(0.05, 0.05), (0.12, 0.02), (0.01, 0.06)])
def test_paired_intervals_cover_the_truth(lose: float, win: float) -> None:
    """Every table of 60 pairs with its probability: nominal coverage is 95%."""
    count, covered = 60, 0.0
    for lost in range(26):
        for won in range(26):
            chance = comb(count, lost) * comb(count - lost, won)
            chance *= lose**lost * win**won * (1 - lose - win) ** (count - lost - won)
            low, high = paired_interval(lost, won, count)
            covered += chance * (low <= lose - win <= high)
    assert 0.935 < covered < 0.985


def test_pairs_are_counted() -> None:
    before = np.array([True, True, True, False, False])
    after = np.array([True, False, False, True, False])
    found = paired(before, after)
    assert found == Paired(count=5, lost=2, won=1)
    assert found.drop == pytest.approx(0.2)
    assert found.as_json()["mcnemar_p"] == mcnemar(2, 1)
    with pytest.raises(ValueError, match=r"one flag an image on both sides, got \(5,\) and \(4,\)"):
        paired(before, after[:4])


def tail(found: int, sample: int, present: int, whole: int) -> Fraction:
    """P(at most `found`) in whole numbers."""
    ways = sum(comb(present, k) * comb(whole - present, sample - k) for k in range(found + 1))
    return Fraction(ways, comb(whole, sample))


@pytest.mark.parametrize(("found", "sample", "whole"), [(3, 10, 40), (0, 8, 30), (8, 8, 30), (5, 20, 21)])
def test_a_part_of_a_finite_set_by_brute_force(found: int, sample: int, whole: int) -> None:
    limit = Fraction(1, 40)
    plausible = [
        present
        for present in range(found, whole - (sample - found) + 1)
        if tail(found, sample, present, whole) > limit
        and tail(sample - found, sample, whole - present, whole) > limit
    ]
    assert part_interval(found, sample, whole) == (min(plausible), max(plausible))


def test_a_part_that_is_the_whole() -> None:
    assert part_interval(7, 20, 20) == (7, 7)
    assert part_interval(0, 0, 20) == (0, 20)
    with pytest.raises(ValueError, match="got 8, 7 and 20"):
        part_interval(8, 7, 20)


@pytest.mark.parametrize("present", [4, 20, 33])
def test_parts_cover_the_truth(present: int) -> None:
    whole, sample, missed = 40, 12, Fraction(0)
    for found in range(max(0, sample - (whole - present)), min(sample, present) + 1):
        low, high = part_interval(found, sample, whole)
        if not low <= present <= high:
            missed += Fraction(
                comb(present, found) * comb(whole - present, sample - found), comb(whole, sample)
            )
    assert missed <= Fraction(1, 20)


@pytest.mark.parametrize(("share", "half_width"), [(0.5, 0.1), (0.5, 0.05), (0.2, 0.03), (0.0, 0.02)])
def test_images_for_an_interval_by_brute_force(share: float, half_width: float) -> None:
    count = next(n for n in range(1, 10_000) if wilson_half_width(share, n) <= half_width)
    assert images_for_half_width(share, half_width) == count


def test_the_half_width_is_wilsons() -> None:
    low, high = wilson(450, 1000)
    assert wilson_half_width(0.45, 1000) == pytest.approx((high - low) / 2, abs=1e-12)
    assert images_for_half_width(0.5, 0.01, 0.99) > images_for_half_width(0.5, 0.01)
    with pytest.raises(ValueError, match=r"half_width must be a share between 0 and 1, got 1"):
        images_for_half_width(0.5, 1)


def power_by_enumeration(count: int, drop: float, discordance: float) -> float:
    """Every table of pairs, its probability, and whether the exact test calls it a drop."""
    lose, win = (discordance + drop) / 2, (discordance - drop) / 2
    found = 0.0
    for lost in range(count + 1):
        for won in range(count - lost + 1):
            if lost > won and mcnemar(lost, won) <= 0.05:
                chance = comb(count, lost) * comb(count - lost, won)
                found += chance * lose**lost * win**won * (1 - lose - win) ** (count - lost - won)
    return found


@pytest.mark.parametrize(("count", "drop", "discordance"), [(30, 0.2, 0.4), (50, 0.1, 0.2), (40, 0.3, 0.3)])
def test_power_by_enumeration(count: int, drop: float, discordance: float) -> None:
    expected = power_by_enumeration(count, drop, discordance)
    assert detection_power(count, drop, discordance) == pytest.approx(expected, abs=1e-9)


def test_images_for_a_drop() -> None:
    count = images_for_drop(0.1, 0.2)
    assert detection_power(count, 0.1, 0.2) >= 0.8
    assert max(detection_power(fewer, 0.1, 0.2) for fewer in range(10, int(0.9 * count))) < 0.8
    assert images_for_drop(0.01, 0.05) > images_for_drop(0.02, 0.05) > images_for_drop(0.02, 0.03)
    with pytest.raises(ValueError, match=r"drop must be at most the discordance, got 0.1 and 0.05"):
        images_for_drop(0.1, 0.05)


def test_a_simulated_comparison_finds_the_drop_as_often_as_planned() -> None:
    count = images_for_drop(0.03, 0.06)
    random = np.random.default_rng(0)
    tables = random.multinomial(count, [0.045, 0.015, 0.94], size=2000)
    found = np.mean([lost > won and mcnemar(int(lost), int(won)) <= 0.05 for lost, won, _ in tables])
    assert 0.77 < found < 0.84
