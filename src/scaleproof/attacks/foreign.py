"""Foreign: any callable (model, x, y) -> x_adv as an attack, judged like our own.

The callable sees the classifier itself in float32, behind a module that counts passes. What it returns is checked here
for its form and by the evaluator for its budget. Torch, numpy and Python random numbers are seeded by (seed, attack,
restart, images of the unit), so a resumed run repeats a unit bit for bit. That cannot be promised of a callable that
draws from elsewhere (its own generator, the clock), or keeps something from call to call.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from scaleproof.attacks.base import Format, State
from scaleproof.attacks.counted import Counted, model_kept
from scaleproof.attacks.loop import unique_first
from scaleproof.callables import name_of
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng, key_of, seeded
from scaleproof.speed import exact_float32, on_device
from scaleproof.threat import DEFAULT_THREAT, ROUNDING, Threat, rows_like

Function = Callable[[Any, Tensor, Tensor], Any]
NAME = re.compile(r"[A-Za-z0-9._-]+")  # it becomes part of file names
UNTOLD = "it knows no budget: an example outside counts as a failure"
RELATIVE = 2.0**-20  # what float32 arithmetic on a norm may add to it, as a share


@dataclass(frozen=True, kw_only=True)
class ForeignState(State):
    rng: Rng


@dataclass(frozen=True)
class Foreign:
    """`function(model, x, y)` returns the examples, one a row; `settings` are recorded with the results.

    With `minimal`, the function looks for the smallest perturbation and knows no budget: where its example lies
    outside the threat, it has failed. Otherwise such an example is an error.
    """

    function: Function
    name: str = field(kw_only=True)
    threat: Threat = field(default=DEFAULT_THREAT, kw_only=True)
    label: str = field(default="", kw_only=True)
    restarts: int = field(default=1, kw_only=True)
    minimal: bool = field(default=False, kw_only=True)
    settings: Mapping[str, object] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.function):
            kind = type(self.function).__name__
            raise ValueError(f"a foreign attack must be a callable (model, x, y) -> x_adv, got {kind}")
        if not NAME.fullmatch(self.name):
            raise ValueError(f"an attack's name must be of letters, digits, . _ and -, got {self.name!r}")
        if self.restarts < 1:
            raise ValueError(f"restarts must be >= 1, got {self.restarts}")
        try:
            json.dumps(dict(self.settings))
        except (TypeError, ValueError) as error:
            raise ValueError(f"settings must be plain data that JSON can hold: {error}") from error
        object.__setattr__(self, "label", self.label or self.name)

    @property
    def steps(self) -> int:
        return 1

    @property
    def scale_invariant(self) -> bool:
        return False

    @property
    def needs_features(self) -> bool:
        return False

    @property
    def coarsest(self) -> Format:
        return "bf16"

    def for_classes(self, classes: int) -> tuple[Foreign, tuple[str, ...]]:
        return self, (UNTOLD,) if self.minimal else ()

    def init(self, oracle: Oracle, clean: Tensor, y: Tensor, index: Tensor, rng: Rng) -> ForeignState:
        """All rows at their clean images; no iterate is offered that could leave the loop before the end."""
        decided = F.one_hot(y).float()
        return ForeignState(
            index=index, clean=clean, y=y, current=clean, visited=clean, logits=decided, rng=rng
        )

    def step(self, oracle: Oracle, state: State) -> ForeignState:
        """The whole attack, on each image once: rows that only fill up the batch share its answer."""
        state = cast(ForeignState, state)
        first = unique_first(state.index)
        found = self.examples(oracle, state.rows(first))
        place = (state.index[:, None] == state.index[first][None, :]).int().argmax(1)
        return replace(state, current=found[place])

    def finish(self, oracle: Oracle, state: State) -> Tensor:
        return state.current

    def examples(self, oracle: Oracle, state: ForeignState) -> Tensor:
        clean, y = state.clean.clone(), state.y.clone()
        key = (state.rng.seed, state.rng.attack, state.rng.restart, *state.index.tolist())
        model = Counted(oracle, y)
        with ExitStack() as stack:
            for context in (on_device(clean.device), exact_float32(), torch.enable_grad()):
                stack.enter_context(context)
            stack.enter_context(model_kept(oracle.classifier, self.name))
            stack.enter_context(seeded(clean.device, key_of(*key)))
            answer = self.called(model, clean, y)
        found = tidied(checked(answer, state.clean, self.name), state.clean, self.threat)
        return failures_undone(found, state.clean, self.threat) if self.minimal else found

    def called(self, model: Counted, clean: Tensor, y: Tensor) -> Any:
        """What the function returns; what it raises is told with its place."""
        try:
            return self.function(model, clean, y)
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}, line {place.lineno}"
            told = f"attack {self.name!r} raised {type(error).__name__} ({where}): {error}"
            raise ValueError(told) from error

    def describe(self) -> dict[str, object]:
        return {
            "attack": "foreign",
            "norm": self.threat.norm,
            "eps": self.threat.eps,
            "restarts": self.restarts,
            "minimal": self.minimal,
            "function": name_of(self.function),
            "settings": dict(self.settings),
        }


def checked(answer: Any, clean: Tensor, name: str) -> Tensor:
    """The examples in the images' own dtype and place, if they are one floating tensor of the images' shape."""
    rule = f"attack {name!r} must return its examples as one floating tensor of shape {tuple(clean.shape)}"
    if not isinstance(answer, Tensor):
        hint = ": return the examples alone" if isinstance(answer, tuple | list) else ""
        raise ValueError(f"{rule}, got {type(answer).__name__}{hint}")
    if answer.shape != clean.shape:
        raise ValueError(f"{rule}, got shape {tuple(answer.shape)}")
    if not answer.is_floating_point():
        raise ValueError(f"{rule}, got {answer.dtype}: pixels are in [0, 1], divide bytes by 255")
    return answer.detach().to(clean).clone()


def tidied(found: Tensor, clean: Tensor, threat: Threat) -> Tensor:
    """Overshoots that float32 rounding explains are taken back; what fits, and what is far out, stays as it is."""
    low, high = (found < 0) & (found >= -ROUNDING), (found > 1) & (found <= 1 + ROUNDING)
    found = torch.where(low, 0.0, torch.where(high, 1.0, found))
    size = threat.size(found - clean)
    over = (size > threat.eps + ROUNDING) & (size <= threat.eps * (1 + RELATIVE) + ROUNDING)
    return torch.where(rows_like(over, found).bool(), threat.project(found, clean), found)


def failures_undone(found: Tensor, clean: Tensor, threat: Threat) -> Tensor:
    """The clean image where an example lies outside the threat or is no image."""
    rows = [example if threat.violation(example[None], image[None]) is None else image
            for example, image in zip(found, clean, strict=True)]  # fmt: skip
    return torch.stack(rows)
