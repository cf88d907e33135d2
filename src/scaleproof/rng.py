"""Random numbers keyed by (seed, attack, restart, sample index): Philox4x32-10 (Salmon et al. 2011) on tensors.

A counter-based generator has no state to carry: re-batching, resuming and sharding an evaluation never change the
numbers a sample sees, and the CPU and the GPU draw the same ones.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Ten rounds of Philox on int64 tensors that hold 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        product0, product1 = (
            c0 * MULTIPLIERS[0],
            c2 * MULTIPLIERS[1],
        )  # low 64 bits are exact under wrap-around
        c0, c1, c2, c3 = high(product1) ^ c1 ^ k0, product1 & LOW, high(product0) ^ c3 ^ k1, product0 & LOW
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return c0, c1, c2, c3


def high(product: Tensor) -> Tensor:
    return (product >> 32) & LOW


@dataclass(frozen=True)
class Rng:
    """The random numbers of one attack run: one independent stream per sample index and draw."""

    seed: int
    attack: str = ""
    restart: int = 0

    def __post_init__(self) -> None:
        if self.restart < 0:
            raise ValueError(f"restart must be >= 0, got {self.restart}")

    @property
    def key(self) -> tuple[int, int]:
        digest = hashlib.sha256(f"{self.seed}/{self.attack}/{self.restart}".encode()).digest()
        return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")

    def words(self, index: Tensor, count: int, draw: int | Tensor = 0) -> Tensor:
        """`count` 32-bit words for each sample of `index`, as int64 (B, count); `draw` may be one a sample (B,)."""
        blocks = torch.arange(math.ceil(count / 4), device=index.device)
        index = index.to(torch.int64)[:, None].expand(-1, len(blocks))
        block = blocks.expand_as(index)
        drawn = draw[:, None].expand_as(block) if isinstance(draw, Tensor) else torch.full_like(block, draw)
        counter = (block, drawn, index & LOW, high(index))
        return torch.stack(philox(counter, self.key), dim=-1).flatten(1)[:, :count]

    def uniform(self, index: Tensor, shape: tuple[int, ...], draw: int = 0) -> Tensor:
        """Float32 in [0, 1), on a grid of 2^-24, of shape (B, *shape)."""
        words = self.words(index, math.prod(shape), draw)
        return ((words >> 8).to(torch.float32) * 2.0**-24).reshape(len(index), *shape)

    def normal(self, index: Tensor, shape: tuple[int, ...], draw: int = 0) -> Tensor:
        """Standard normal numbers by Box and Muller, from two words each, of shape (B, *shape)."""
        words = self.words(index, 2 * math.prod(shape), draw).to(torch.float64)
        radius, angle = ((words + 0.5) * 2.0**-32).chunk(2, dim=1)
        values = (-2 * radius.log()).sqrt() * (2 * math.pi * angle).cos()
        return values.to(torch.float32).reshape(len(index), *shape)


def key_of(*key: object) -> int:
    """A seed of 62 bits from anything that can be written down."""
    digest = hashlib.sha256("/".join(str(part) for part in key).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 2


@contextmanager
def chance_kept(device: torch.device) -> Iterator[None]:
    """The global generators of torch, Python and numpy are afterwards as they were."""
    python, arrays = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)


@contextmanager
def seeded(device: torch.device, key: int) -> Iterator[None]:
    """The global generators, which code of other people draws from, begin at a key inside."""
    with chance_kept(device):
        torch.manual_seed(key)
        random.seed(key)
        np.random.seed(key % 2**32)
        yield
