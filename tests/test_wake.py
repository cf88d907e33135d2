"""A GPU is woken beside the work of a block, and is awake at its end."""

import threading

import pytest
import torch

from scaleproof.speed import wake as module
from scaleproof.speed import waking


def test_the_device_wakes_beside_the_block_and_is_awake_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loading, awake = threading.Event(), []

    def slow(device: torch.device) -> None:
        assert loading.wait(10)  # only the block's own work ends it: one after the other would hang here
        awake.append(device)

    monkeypatch.setattr(module, "wake", slow)
    with waking(torch.device("cuda")):
        loading.set()
    assert awake == [torch.device("cuda")]


def test_an_error_of_the_block_is_told_after_the_device_woke(monkeypatch: pytest.MonkeyPatch) -> None:
    awake: list[torch.device] = []
    monkeypatch.setattr(module, "wake", awake.append)
    with pytest.raises(ValueError, match="no such data"), waking(torch.device("cuda")):
        raise ValueError("no such data")
    assert len(awake) == 1


def test_a_device_that_cannot_be_woken_is_left_to_whoever_uses_it() -> None:
    module.wake(torch.device("cuda", 63))


def test_a_cpu_has_nothing_to_wake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "wake", lambda device: pytest.fail("woken"))
    with waking(torch.device("cpu")):
        pass
