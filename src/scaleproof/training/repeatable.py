"""What a captured graph would repeat in another way than the network's own code does, found in steps before it.

A graph has for ever what Python or numpy drew or counted while it was captured, and reads and writes the tensors of
then.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from scaleproof.models.classifier import Classifier

NUMBERS = (bool, int, float, complex, str, bytes, np.generic)
KEPT_BY_TORCH = {"_parameters", "_buffers", "_modules"}


@contextmanager
def watched(classifier: Classifier) -> Iterator[list[str]]:
    """Whether a graph of the step within would be that step again; the list then says why not.

    What is set for the first time in this step does not count: a second one tells.
    """
    reasons: list[str] = []
    python, arrays = random.getstate(), np.random.get_state(legacy=False)
    buffers = [(module._buffers, dict(module._buffers)) for module in classifier.modules()]
    look = Look(classifier)
    with look.readers() as moved:
        yield reasons
    keys = [state["state"]["key"] for state in (arrays, np.random.get_state(legacy=False))]
    if random.getstate() != python or not np.array_equal(*keys):
        reasons.append("the network draws random numbers from Python or numpy")
    if any(now.get(name) is not before[name] for now, before in buffers for name in before):
        reasons.append("the network puts other tensors in the place of its buffers")
    reasons += [
        f"the network keeps {name} from pass to pass, and not in a buffer that it changes in place"
        for name in [*moved, *look.changed()]
    ]


class Look:
    """The attributes of a network's modules as they are now, but for parameters, buffers and modules."""

    def __init__(self, classifier: Classifier) -> None:
        self.modules = [*classifier.net.modules()]
        self.state = {id(one) for one in (*classifier.parameters(), *classifier.buffers())}
        self.seen: list[
            Any
        ] = []  # held, so that nothing new gets the place in memory of something that is gone
        self.before = [self.marks(module) for module in self.modules]

    def changed(self) -> list[str]:
        """The names of those that were there, and are others now; tensors that are attributes are not among them."""
        pairs = zip(self.before, map(self.marks, self.modules), strict=True)
        return [
            name
            for before, now in pairs
            for name, mark in now.items()
            if name in before and mark != before[name]
        ]

    def marks(self, module: nn.Module) -> dict[str, object]:
        own = {name: value for name, value in vars(module).items() if name not in KEPT_BY_TORCH}
        return {
            name: self.mark(value)
            for name, value in own.items()
            if value is not None and not isinstance(value, Tensor)
        }

    def mark(self, value: Any) -> Any:
        """Equal to another one where nothing that a pass might read has changed; None where nothing could.

        A tensor that gradients go through ends with its step, and other objects are not looked into.
        """
        if isinstance(value, NUMBERS):
            return repr(value)  # a NaN is the same NaN
        if isinstance(value, Tensor):
            if value.requires_grad or id(value) in self.state:
                return None
            self.seen.append(value)
            return id(value), version(value)
        if isinstance(value, np.ndarray):
            return value.shape, value.tobytes()
        if isinstance(value, Mapping):
            pairs = [(repr(key), self.mark(one)) for key, one in value.items()]
            return [pair for pair in pairs if pair[1] is not None]
        if isinstance(value, list | tuple | deque):
            return [mark for mark in map(self.mark, value) if mark is not None]
        return None

    @contextmanager
    def readers(self) -> Iterator[list[str]]:
        """The names of attributes from which a step reads a tensor of before, and which it leaves changed."""
        moved: list[str] = []
        read: set[int] = set()
        left = [
            (vars(module), name, value, version(value))
            for module in self.modules
            for name, value in vars(module).items()
            if isinstance(value, Tensor) and id(value) not in self.state
        ]
        tellers = [telling(value, partial(read.add, id(value))) for _, _, value, _ in left]
        for (attributes, name, _, _), teller in zip(left, tellers, strict=True):
            attributes[name] = teller
        try:
            yield moved
        finally:
            for (attributes, name, value, before), teller in zip(left, tellers, strict=True):
                if attributes.get(name) is teller:
                    attributes[name] = value
                changed = attributes.get(name) is not value or version(value) != before
                if changed and id(value) in read:
                    moved.append(name)


def version(tensor: Tensor) -> int | None:
    """It grows whenever the tensor is changed in place."""
    return None if tensor.is_inference() else tensor._version


def telling(value: Tensor, tell: Callable[[], None]) -> Tensor:
    """What stands for a tensor, and tells when something is done with it."""

    class Telling(Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            tell()
            own, words = tree_map(lambda one: value if isinstance(one, cls) else one, (args, kwargs or {}))
            return function(*own, **words)

    return torch.empty(0).as_subclass(Telling)
