"""What a captured graph would repeat in another way than the network's own code does, found while it is captured."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from scaleproof.models.classifier import Classifier

Result = TypeVar("Result")


def repeatable(classifier: Classifier, work: Callable[[], Result]) -> Result:
    """Do what is to be captured, or take back what no tensor tells of it and refuse.

    A graph has for ever what Python or numpy drew while it was captured, and reads and writes the tensors of then.
    """
    python, arrays = random.getstate(), np.random.get_state(legacy=False)
    buffers = [(module._buffers, dict(module._buffers)) for module in classifier.modules()]
    result = work()
    keys = [state["state"]["key"] for state in (arrays, np.random.get_state(legacy=False))]
    reason = None
    if random.getstate() != python or not np.array_equal(*keys):
        reason = "the network draws random numbers from Python or numpy"
    if any(now.get(name) is not before[name] for now, before in buffers for name in before):
        reason = "the network puts other tensors in the place of its buffers"
    if reason is None:
        return result
    random.setstate(python)
    np.random.set_state(arrays)
    for now, before in buffers:
        now.update(before)
    raise RuntimeError(reason)
