"""The one loop that drives every attack: rows go in, adversarial examples come out, broken rows may leave early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scaleproof.attacks.base import Attack, State
from scaleproof.contract import buffers_kept, check_images, check_labels
from scaleproof.models.classifier import as_classifier
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.speed import Speed

Tick = Callable[[], None]  # called after every step


@dataclass(frozen=True)
class Packing:
    """The few batch sizes that are ever run: eighths of the full one.

    With `pad`, a batch is filled up to one of them with copies of its first row, so that captured graphs stay valid.
    """

    batch: int
    pad: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({max(1, (self.batch * eighth + 7) // 8) for eighth in range(1, 9)}))

    def size_for(self, count: int) -> int:
        return next((size for size in self.sizes if size >= count), count)

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
    rows = packing.pack(torch.arange(len(clean), device=clean.device))
    state = attack.init(oracle, clean[rows], y[rows], index[rows], rng)
    if not drop:
        for _ in range(attack.steps):
            state = attack.step(oracle, state)
            tick()
        return attack.finish(oracle, state)[: len(clean)]
    return Dropping(attack, oracle, clean, packing).run(state, rows, y, tick)


class Dropping:
    """The loop that lets broken rows go; `rows` says which sample each row of the state belongs to.

    An iterate that looks misclassified to the oracle is held. Held iterates are judged in float32 together, as soon as
    the batch could shrink without them: a judgement of a few rows costs as much as one of many.
    """

    def __init__(self, attack: Attack, oracle: Oracle, clean: Tensor, packing: Packing) -> None:
        self.attack, self.oracle, self.packing = attack, oracle, packing
        self.final = clean.clone()
        self.alive = torch.ones(len(clean), dtype=torch.bool, device=clean.device)
        self.held = torch.zeros_like(self.alive)

    def run(self, state: State, rows: Tensor, y: Tensor, tick: Tick) -> Tensor:
        for _ in range(self.attack.steps):
            state = self.attack.step(self.oracle, state)
            tick()
            self.hold(state, rows)
            left = int((self.alive & ~self.held).sum())
            if left == 0 or self.packing.size_for(left) < self.packing.size_for(len(rows)):
                self.settle(y)
                if not bool(self.alive.any()):
                    return self.final
                state, rows = self.compact(state, rows)
        self.settle(y)
        open_rows = self.alive[rows]
        self.final[rows[open_rows]] = self.attack.finish(self.oracle, state)[open_rows]
        return self.final

    def hold(self, state: State, rows: Tensor) -> None:
        """Keep the iterates that have just been visited and look misclassified, the latest of each sample."""
        suspects = (self.alive[rows] & (state.logits.argmax(1) != state.true_class)).nonzero().squeeze(1)
        self.final[rows[suspects]] = state.visited[suspects]
        self.held[rows[suspects]] = True

    def settle(self, y: Tensor) -> None:
        """Judge what is held: broken in float32 too, and the sample leaves; otherwise it goes on."""
        samples = self.held.nonzero().squeeze(1)
        if len(samples) > 0:
            verdict = self.oracle.judge(self.final[samples]).argmax(1) != y[samples]
            self.alive[samples[verdict]] = False
            self.held.zero_()

    def compact(self, state: State, rows: Tensor) -> tuple[State, Tensor]:
        """Pack the open rows into a smaller size where they fit one; a sample is kept once."""
        open_rows = self.alive[rows].nonzero().squeeze(1)
        open_rows = open_rows[unique_first(rows[open_rows])]
        if self.packing.size_for(len(open_rows)) >= self.packing.size_for(len(rows)):
            return state, rows
        keep = self.packing.pack(open_rows)
        return state.rows(keep), rows[keep]


def unique_first(values: Tensor) -> Tensor:
    """Positions of the first occurrence of each value, in order."""
    earlier = (values[:, None] == values[None, :]).tril(-1).any(1)
    return (~earlier).nonzero().squeeze(1)


def attack_batch(
    attack: Attack, model: nn.Module, x: Tensor, y: Tensor, *, seed: int = 0, speed: Speed | None = None
) -> Tensor:
    """Adversarial examples for one batch: `attack(model, x, y)` in other libraries.

    Samples are numbered 0, 1, ... in the order given. Of several restarts a sample keeps the first that breaks it.
    """
    classifier, x, y = as_classifier(model), x.detach(), y.long()
    check_images(x, y)
    with buffers_kept(classifier):
        oracle = Oracle(classifier, speed=speed)
        classes = oracle.judge(x[:1]).shape[1]
        check_labels(y, classes)
        fitted, _ = attack.for_classes(classes)
        index = torch.arange(len(x), device=x.device)
        result, open_rows = x.clone(), index
        for restart in range(attack.restarts):
            rng = Rng(seed, attack.name, restart)
            found = perturb(fitted, oracle, x[open_rows], y[open_rows], index[open_rows], rng)
            result[open_rows] = found
            open_rows = open_rows[oracle.judge(found).argmax(1) == y[open_rows]]
            if len(open_rows) == 0:
                break
    return result
