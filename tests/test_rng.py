"""Philox against its authors' known answers, and what keys a sample's numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scaleproof.rng import Rng, philox

KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], answer: tuple[int, ...]) -> None:
    words = philox(tuple(torch.tensor([word]) for word in counter), key)  # type: ignore[arg-type]
    assert tuple(int(word) for word in words) == answer


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=9), st.integers(0, 5))
def test_numbers_depend_on_the_index_alone(index: list[int], draw: int) -> None:
    rng, rows = Rng(3, "pgd", 1), torch.tensor(index)
    together = rng.uniform(rows, (5, 2), draw)
    alone = torch.cat([rng.uniform(rows[i : i + 1], (5, 2), draw) for i in range(len(rows))])
    assert torch.equal(together, alone)


def test_every_part_of_the_key_matters() -> None:
    index = torch.arange(4)
    streams = [
        Rng(0, "a", 0),
        Rng(1, "a", 0),
        Rng(0, "b", 0),
        Rng(0, "a", 1),
        Rng(0, "a1", 0),
        Rng(0, "", 10),
    ]
    draws = [rng.words(index, 8) for rng in streams] + [streams[0].words(index, 8, draw=1)]
    for first in range(len(draws)):
        for second in range(first):
            assert not torch.equal(draws[first], draws[second])
    assert len({int(row[0]) for row in draws[0]}) == 4


def test_a_longer_draw_begins_with_the_shorter() -> None:
    rng, index = Rng(0), torch.arange(3)
    assert torch.equal(rng.words(index, 7), rng.words(index, 30)[:, :7])


def test_distributions() -> None:
    rng, index = Rng(7, "x"), torch.arange(200)
    uniform = rng.uniform(index, (100,)).numpy().ravel()
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3
    normal = rng.normal(index, (100,)).numpy().ravel()
    assert stats.kstest(normal, "norm").pvalue > 1e-3
    assert abs(float(np.corrcoef(normal[:-1], normal[1:])[0, 1])) < 0.03


def test_the_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    Rng(0).normal(torch.arange(3), (4,))
    assert torch.equal(before, torch.get_rng_state())


def test_bad_restart() -> None:
    with pytest.raises(ValueError, match="restart must be >= 0, got -1"):
        Rng(0, "a", -1)
