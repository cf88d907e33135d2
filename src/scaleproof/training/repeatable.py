"""What a captured graph would repeat in another way than the network's own code does, found in steps before it.

A graph has for ever what Python or numpy drew or counted while it was captured, and reads and writes the tensors of
then. One thing is not seen: a tensor with a gradient that a step leaves in an attribute, and the next reads without it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor, nn

from scaleproof.models.classifier import Classifier

NUMBERS = (bool, int, float, complex, str, bytes, np.generic)
KEPT_BY_TORCH = {"_parameters", "_buffers", "_modules"}


class Watcher:
    """Looks at a network after the steps of each kind: what two of a kind leave in different states moves by itself."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier
        self.after: dict[object, list[dict[str, object]]] = {}
        self.held: dict[
            object, list[Tensor]
        ] = {}  # so that no other tensor gets the place of one that is gone

    @contextmanager
    def watched(self, kind: object) -> Iterator[list[str]]:
        """Whether a graph of the step within would be that step again; the list then says why not."""
        reasons: list[str] = []
        python, arrays = random.getstate(), np.random.get_state(legacy=False)
        buffers = [(module._buffers, dict(module._buffers)) for module in self.classifier.modules()]
        yield reasons
        keys = [state["state"]["key"] for state in (arrays, np.random.get_state(legacy=False))]
        if random.getstate() != python or not np.array_equal(*keys):
            reasons.append("the network draws random numbers from Python or numpy")
        if any(dict(now).get(name) is not before[name] for now, before in buffers for name in before):
            reasons.append("the network puts other tensors in the place of its buffers")
        reasons += [
            f"the network keeps {name} from pass to pass, and not in a buffer that it changes in place"
            for name in self.moved(kind)
        ]

    def moved(self, kind: object) -> list[str]:
        """The names of attributes that are others than after the last step of this kind, but for new ones."""
        held: list[Tensor] = []
        state = {id(one) for one in (*self.classifier.parameters(), *self.classifier.buffers())}
        now = [marks(module, state, held) for module in self.classifier.net.modules()]
        before = self.after.get(kind, [])
        self.after[kind], self.held[kind] = now, held
        return [
            name
            for old, new in zip(before, now, strict=False)
            for name, mark in new.items()
            if name in old and mark != old[name]
        ]


def marks(module: nn.Module, state: set[int], held: list[Tensor]) -> dict[str, object]:
    """Each attribute of a module by name, entries of mappings by theirs; equal ones where nothing has changed."""
    found: dict[str, object] = {}
    own = {name: value for name, value in vars(module).items() if name not in KEPT_BY_TORCH}
    for name, value in own.items():
        parts = value.items() if isinstance(value, Mapping) else ()
        found |= {f"{name}[{key!r}]": mark(part, state, held) for key, part in parts}
        found |= {} if isinstance(value, Mapping) else {name: mark(value, state, held)}
    return {name: one for name, one in found.items() if one is not None}


def mark(value: Any, state: set[int], held: list[Tensor], inside: tuple[int, ...] = ()) -> Any:
    """Equal to another one where nothing that a pass might read has changed; None where that is not known.

    A tensor that gradients go through ends with its step, and other objects are not looked into.
    """
    if isinstance(value, NUMBERS):
        return repr(value)  # a NaN is the same NaN
    if isinstance(value, Tensor):
        if value.requires_grad or id(value) in state:
            return None
        held.append(value)
        return id(value), None if value.is_inference() else value._version
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, Mapping | list | tuple | deque) and id(value) not in inside:
        parts = list(value.values()) if isinstance(value, Mapping) else value
        found = (mark(one, state, held, (*inside, id(value))) for one in parts)
        return [one for one in found if one is not None]
    return None
