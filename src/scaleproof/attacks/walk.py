"""A walk: a batch of rows on their way through one attack, moved on step by step.

Where the attack's step depends on the tensors of its state alone (`capturable`), a step on a GPU is the replay of one
captured graph. Nobody waits for the device: how many rows are left is read one step late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from scaleproof.attacks.base import Attack, State
from scaleproof.losses import misclassified
from scaleproof.oracle import Oracle, Replay
from scaleproof.threat import rows_like

WORTH_IT = 3  # steps, from which on a capture pays


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What is known of the rows of a batch that may leave the loop."""

    open: Tensor  # (B,) rows that are neither broken nor there to fill up the batch
    held: Tensor  # (B,) rows whose last judgement lies before an iterate that looked misclassified
    caught: Tensor  # (B, ...) the latest such iterate
    left: Tensor  # (1,) how many are open and not held

    def after(self, state: State) -> Watch:
        """The same after one more iterate."""
        wrong = misclassified(state.logits, state.true_class) & self.open
        held = self.held | wrong
        caught = torch.where(rows_like(wrong, self.caught).bool(), state.visited, self.caught)
        return replace(self, held=held, caught=caught, left=(self.open & ~held).sum()[None])


def watch(state: State, count: int) -> Watch:
    """All of the first `count` rows open, nothing held."""
    place = torch.arange(len(state.index), device=state.index.device)
    held = torch.zeros_like(place, dtype=torch.bool)
    left = torch.full_like(place[:1], count)
    return Watch(open=place < count, held=held, caught=state.visited, left=left)


class Walk:
    """`state`, and `watch` where rows may leave, after the steps taken so far."""

    def __init__(self, attack: Attack, oracle: Oracle, state: State, seen: Watch | None = None) -> None:
        self.attack, self.oracle, self.state, self.watch = attack, oracle, state, seen
        self.replay: Replay | None = None
        capturable = getattr(attack, "capturable", False) and attack.steps >= WORTH_IT
        if capturable and state.logits.shape[1] == oracle.width:
            key = (attack, seen is None, tuple(others(state).items()))
            self.replay = oracle.replay(key, self.moved, flat(state, seen))
        if self.replay is not None:  # from here on they are the buffers that each replay moves on
            self.state, self.watch = rebuilt(state, seen, self.replay.buffers)

    @property
    def watched(self) -> Watch:
        assert self.watch is not None
        return self.watch

    def step(self, *, last: bool = False) -> None:
        arrive = getattr(self.attack, "arrive", None) if last else None
        if self.replay is not None and arrive is None:
            self.replay()
        else:
            self.state, self.watch = self.after(self.state, self.watch, arrive or self.attack.step)

    def after(
        self, state: State, seen: Watch | None, step: Callable[[Oracle, Any], State]
    ) -> tuple[State, Watch | None]:
        state = step(self.oracle, state)
        return state, None if seen is None else seen.after(state)

    def moved(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """A step from tensors to tensors, which is all that a graph can hold."""
        state, seen = rebuilt(self.state, self.watch, tensors)
        result, seen = self.after(state, seen, self.attack.step)
        if others(result) != others(state):
            raise RuntimeError(f"{self.attack.name} calls itself capturable and counts outside its tensors")
        return flat(result, seen)


class Later:
    """A number on the device: read at once on a CPU, one step late on a GPU, which need not wait for the reader."""

    def __init__(self) -> None:
        self.slots = [torch.zeros(1, dtype=torch.int64, device="cpu", pin_memory=True) for _ in range(2)]
        event: Any = torch.cuda.Event
        self.events = [event() for _ in range(2)]
        self.count = 0

    def read(self, value: Tensor) -> int | None:
        """The value given before this one; None the first time."""
        now, before = self.count % 2, (self.count + 1) % 2
        self.slots[now].copy_(value, non_blocking=True)
        self.events[now].record(torch.cuda.current_stream(value.device))
        self.count += 1
        if self.count == 1:
            return None
        self.events[before].synchronize()
        return int(self.slots[before])

    def forget(self) -> None:
        """What was given so far no longer holds."""
        self.count = 0


class AtOnce:
    """The same where reading costs nothing."""

    def read(self, value: Tensor) -> int | None:
        return int(value)

    def forget(self) -> None:
        """There is nothing to forget."""


def reader(device: torch.device) -> Later | AtOnce:
    return Later() if device.type == "cuda" else AtOnce()


def tensor_names(part: State | Watch) -> list[str]:
    return [item.name for item in fields(part) if isinstance(getattr(part, item.name), Tensor)]


def others(state: State) -> dict[str, object]:
    """What a state holds besides its tensors."""
    values = {item.name: getattr(state, item.name) for item in fields(state)}
    return {name: value for name, value in values.items() if not isinstance(value, Tensor)}


def flat(state: State, seen: Watch | None) -> tuple[Tensor, ...]:
    parts = (state,) if seen is None else (state, seen)
    return tuple(getattr(part, name) for part in parts for name in tensor_names(part))


def rebuilt(state: State, seen: Watch | None, tensors: tuple[Tensor, ...]) -> tuple[State, Watch | None]:
    """A state and a watch like these with other tensors, in the order of `flat`."""
    names = tensor_names(state)
    state = replace(state, **dict(zip(names, tensors, strict=False)))
    if seen is None:
        return state, None
    return state, replace(seen, **dict(zip(tensor_names(seen), tensors[len(names) :], strict=True)))
