"""Wake: a GPU's context, its libraries and the kernels' compiler take seconds to start; meanwhile others can work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from threading import Thread

import torch
from torch.nn import functional as F


@contextmanager
def waking(device: torch.device) -> Iterator[None]:
    """Wake a GPU beside the work of this block, which must not use it yet; it is awake at the end of the block."""
    if device.type != "cuda":
        yield
        return
    thread = Thread(target=wake, args=(device,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def wake(device: torch.device) -> None:
    """Use each library once. An error is left to whoever uses the device next, who meets and tells it."""
    with suppress(Exception):
        image = torch.zeros(1, 8, 8, 8, device=device, dtype=torch.bfloat16)
        weight = torch.zeros(8, 8, 3, 3, device=device, dtype=torch.bfloat16)
        F.linear(F.conv2d(image, weight).flatten(1), torch.zeros(8, 288, device=device, dtype=torch.bfloat16))
        if find_spec("triton") is not None:
            import_module("scaleproof.speed.norm_kernels")
        torch.cuda.synchronize(device)
