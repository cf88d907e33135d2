"""What an attack is: a frozen description with `init` and `step` on a State, and nothing about models or loops."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol, Self

import torch
from torch import Tensor

from scaleproof.callables import is_foreign, sources, words_of
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.threat import Threat

Format = Literal["bf16", "fp16", "tf32", "float32"]  # from coarse to fine


@dataclass(frozen=True, kw_only=True)
class State:
    """A batch of rows on their way: tensors with one row a sample, and numbers that all rows share."""

    index: Tensor  # (B,) position in the data set: the key of the sample's random numbers
    clean: Tensor  # (B, ...)
    y: Tensor  # (B,), or (B, 2) with a target
    current: Tensor  # (B, ...) where the next step looks
    visited: Tensor  # (B, ...) where the last step looked
    logits: Tensor  # (B, K) the oracle's logits at `visited`

    def rows(self, positions: Tensor) -> Self:
        """The same state for some of its rows, in the order given."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        chosen: dict[str, Any] = {k: v[positions] for k, v in values.items() if isinstance(v, Tensor)}
        return replace(self, **chosen)

    @property
    def true_class(self) -> Tensor:
        return self.y if self.y.dim() == 1 else self.y[:, 0]


class Attack(Protocol):
    """What the loop needs to know of an attack.

    With `capturable = True` besides, its step changes nothing but tensors, without a look at their values: then a GPU
    runs it as one graph. With a method `arrive` besides, the last step is taken by it: nobody needs a gradient there.
    With a number `pairs_over` it searches by differences over that step (`Oracle.both_sides`), which a format coarser
    than `coarsest` may give well enough.
    """

    @property
    def name(self) -> str:
        """Unique within a suite; a key of the random numbers and of the results."""

    @property
    def label(self) -> str:
        """How tables call it."""

    @property
    def threat(self) -> Threat: ...

    @property
    def steps(self) -> int: ...

    @property
    def restarts(self) -> int: ...

    @property
    def scale_invariant(self) -> bool: ...

    @property
    def needs_features(self) -> bool: ...

    @property
    def coarsest(self) -> Format:
        """The coarsest number format that its search bears; a verdict is always float32."""

    def for_classes(self, classes: int) -> tuple[Attack, tuple[str, ...]]:
        """This attack for a model with so many classes, and notes on what had to change."""

    def init(self, oracle: Oracle, clean: Tensor, y: Tensor, index: Tensor, rng: Rng) -> State: ...

    def step(self, oracle: Oracle, state: State) -> State: ...

    def finish(self, oracle: Oracle, state: State) -> Tensor:
        """The examples the attack stands by (B, ...)."""

    def describe(self) -> dict[str, object]:
        """All settings, as plain data."""


def at_least(least: int, **counts: int) -> None:
    """Refuse a count below the least."""
    for name, count in counts.items():
        if count < least:
            raise ValueError(f"{name} must be >= {least}, got {count}")


def likeliest_wrong(logits: Tensor, y: Tensor, rank: int) -> Tensor:
    """The class of the rank-th largest logit among all but the true one (B,)."""
    others = logits.scatter(1, y[:, None], -torch.inf)
    return others.argsort(dim=1, descending=True)[:, rank - 1]


def attack_settings(attack: Attack) -> dict[str, object]:
    """What an attack says of itself, and the sources of what is not of this package: its words may outlast a change.

    One from elsewhere may forget to say what it was given, so that is said for it.
    """
    own = attack if is_foreign(attack) else getattr(attack, "attack", attack)  # an audit's, too
    if not is_foreign(own):
        return {**attack.describe(), **sources(own)}
    given = {"steps": own.steps, "restarts": own.restarts, "made": words_of(own)}
    return {**given, **attack.describe(), **vars(own.threat), **sources(own)}
