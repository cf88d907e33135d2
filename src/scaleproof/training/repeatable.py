"""What a captured graph would repeat in another way than the network's own code does, found while it is captured."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, nn

from scaleproof.models.classifier import Classifier

Result = TypeVar("Result")
PLAIN = (bool, int, float, str, type(None))
ABSENT = object()


def repeatable(classifier: Classifier, work: Callable[[], Result]) -> Result:
    """Do what is to be captured, or take back what no tensor tells of it and refuse.

    A graph has for ever what Python or numpy drew or counted while it was captured, and reads and writes the tensors
    of then.
    """
    python, arrays = random.getstate(), np.random.get_state(legacy=False)
    buffers = [(module._buffers, dict(module._buffers)) for module in classifier.modules()]
    held = [(module, dict(vars(module))) for module in classifier.net.modules()]
    result = work()
    keys = [state["state"]["key"] for state in (arrays, np.random.get_state(legacy=False))]
    reason = None
    if random.getstate() != python or not np.array_equal(*keys):
        reason = "the network draws random numbers from Python or numpy"
    if any(now.get(name) is not before[name] for now, before in buffers for name in before):
        reason = "the network puts other tensors in the place of its buffers"
    moved = [name for module, before in held for name in vars(module) if differs(module, before, name)]
    if moved:
        reason = (
            f"the network keeps {moved[0]} from pass to pass, and not in a buffer that it changes in place"
        )
    if reason is None:
        return result
    random.setstate(python)
    np.random.set_state(arrays)
    for now, before in (*buffers, *((vars(module), before) for module, before in held)):
        now.clear()
        now.update(before)
    raise RuntimeError(reason)


def differs(module: nn.Module, before: Mapping[str, Any], name: str) -> bool:
    """Whether an attribute has another number than before, or another tensor, which the next pass might read.

    A tensor that gradients go through ends with its step: the next could take none through it.
    """
    one, other = before.get(name, getattr(type(module), name, ABSENT)), vars(module)[name]
    if isinstance(other, Tensor):
        return other is not one and not other.requires_grad
    return isinstance(one, PLAIN) and isinstance(other, PLAIN) and one != other
