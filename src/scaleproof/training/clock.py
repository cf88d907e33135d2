"""What a training took, where others have their turns between its steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Seconds since it was made, less what passed while it stood still."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self.began

    @contextmanager
    def others_turn(self, device: torch.device) -> Iterator[None]:
        """It stands still while others work; not on a GPU, which goes on with what it was given before."""
        left = time.monotonic()
        yield
        if device.type == "cpu":
            self.began += time.monotonic() - left
