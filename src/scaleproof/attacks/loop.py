"""The one loop that drives every attack: rows go in, adversarial examples come out, broken rows may leave early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from scaleproof.attacks.base import Attack, State
from scaleproof.attacks.walk import Walk, Watch, reader, watch
from scaleproof.losses import misclassified
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.speed import on_device

Tick = Callable[[], None]  # called after every step


@dataclass(frozen=True)
class Packing:
    """The batch sizes that are run: parts of the full one.

    With `pad`, a batch is filled up to one of them with copies of its first row, so that captured graphs stay valid.
    """

    batch: int
    pad: bool = False
    parts: int = 1024

    def size_for(self, count: int) -> int:
        grain = -(-self.batch // self.parts)
        return -(-count // grain) * grain

    def shrinks(self, count: int, size: int) -> bool:
        """Whether so few rows are left of `size` that packing them anew pays: an eighth less."""
        return count == 0 or 8 * self.size_for(count) <= 7 * size

    def pack(self, positions: Tensor) -> Tensor:
        missing = self.size_for(len(positions)) - len(positions) if self.pad else 0
        return torch.cat([positions, positions[:1].expand(missing)])


def perturb(
    attack: Attack,
    oracle: Oracle,
    clean: Tensor,
    y: Tensor,
    index: Tensor,
    rng: Rng,
    *,
    drop: bool = False,
    packing: Packing | None = None,
    tick: Tick = lambda: None,
) -> Tensor:
    """One run of one attack on one batch: the examples it stands by, one a row.

    With `drop`, a row whose iterate is misclassified in float32 keeps that iterate and leaves the loop; the rest is
    packed into the next smaller size of `packing`. Without, every row takes all steps.
    """
    packing = packing or Packing(len(clean))
    if oracle.graphs is not None and oracle.width == 0:
        oracle.judge(clean[:1])  # a graph's shapes must be known beforehand
    with on_device(oracle.device):
        rows = packing.pack(torch.arange(len(clean), device=clean.device))
        state = attack.init(oracle, clean[rows], y[rows], index[rows], rng)
        if drop:
            return Dropping(attack, oracle, clean, y, packing).run(state, rows, tick)
        walk = Walk(attack, oracle, state)
        for number in range(1, attack.steps + 1):
            walk.step(last=number == attack.steps)
            tick()
        found = attack.finish(oracle, walk.state)[: len(clean)]
        return found.clone()  # not a part of buffers that the next run fills


class Dropping:
    """The loop that lets broken rows go; `rows` says which sample each row of the batch belongs to.

    An iterate that looks misclassified to the oracle is held. Held iterates are judged in float32 together, as soon as
    the batch could shrink without them: a judgement of a few rows costs as much as one of many.
    """

    def __init__(self, attack: Attack, oracle: Oracle, clean: Tensor, y: Tensor, packing: Packing) -> None:
        self.attack, self.oracle, self.y, self.packing = attack, oracle, y, packing
        self.final = clean.clone()

    def run(self, state: State, rows: Tensor, tick: Tick) -> Tensor:
        walk, left = self.walk(state, len(self.final)), reader(self.oracle.device)
        for number in range(1, self.attack.steps + 1):
            walk.step(last=number == self.attack.steps)
            tick()
            count = left.read(walk.watched.left)
            if count is not None and number < self.attack.steps and self.packing.shrinks(count, len(rows)):
                self.settle(walk.watched, rows)
                left.forget()
                keep = walk.watched.open.nonzero().squeeze(1)
                if len(keep) == 0:
                    return self.final
                if self.packing.shrinks(len(keep), len(rows)):
                    packed = self.packing.pack(keep)
                    rows = rows[packed]
                    walk = self.walk(walk.state.rows(packed), len(keep))
        self.settle(walk.watched, rows)
        found = self.attack.finish(self.oracle, walk.state)
        self.final[rows[walk.watched.open]] = found[walk.watched.open]
        return self.final

    def walk(self, state: State, count: int) -> Walk:
        return Walk(self.attack, self.oracle, state, watch(state, count))

    def settle(self, seen: Watch, rows: Tensor) -> None:
        """Judge what is held: broken in float32 too, and the sample leaves; otherwise it goes on."""
        held = (seen.held & seen.open).nonzero().squeeze(1)
        if len(held) > 0:
            broken = held[misclassified(self.oracle.judge(seen.caught[held]), self.y[rows[held]])]
            self.final[rows[broken]] = seen.caught[broken]
            seen.open[broken] = False
            seen.held.zero_()


def unique_first(values: Tensor) -> Tensor:
    """Positions of the first occurrence of each value, in order."""
    earlier = (values[:, None] == values[None, :]).tril(-1).any(1)
    return (~earlier).nonzero().squeeze(1)
