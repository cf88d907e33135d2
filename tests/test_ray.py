"""Chains on a real Ray cluster of two workers on this machine, one of which is killed while it trains."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from scaleproof.paper.cluster import run_on_ray
from scaleproof.paper.runner import LOCK, Runner
from scaleproof.paper.scales import SMALL
from scaleproof.paper.steps import Chain, Place
from scaleproof.paper.targets import wanted

ray: Any = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray's own


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


def chains(root: Path, epochs: int = 1) -> list[Chain]:
    """Two trainings at the small scale, with a checkpoint after every step."""
    found = wanted(["table-single-step"], "cifar10/preact-resnet18/rfgsm*").chains(
        SMALL, Place(root=root), [0]
    )
    longer = ("--epochs", str(epochs), "--checkpoint-seconds", "0", "--batch-size", "32")
    return [
        replace(one, steps=tuple(replace(step, words=(*step.words, *longer)) for step in one.steps))
        for one in found
    ]


def begun(chain: Chain) -> bool:
    return any((chain.steps[0].folder / "units").glob("*"))


def kill_once_begun(chain: Chain, killed: list[int]) -> None:
    """kill -9 for the worker that holds the chain's lock, as soon as there is a checkpoint."""
    until = time.monotonic() + 600
    while time.monotonic() < until and chain.steps[0].state != "done":
        if begun(chain) and (chain.folder / LOCK).read_text().strip().isdigit():
            pid = int((chain.folder / LOCK).read_text())
            assert pid != os.getpid()
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            return
        time.sleep(0.02)


def test_a_killed_worker_is_replaced_and_nothing_is_lost(cluster: None, tmp_path: Path) -> None:
    spread, alone = chains(tmp_path / "ray", epochs=9), chains(tmp_path / "alone", epochs=9)
    killed: list[int] = []
    thread = threading.Thread(target=kill_once_begun, args=(spread[0], killed))
    thread.start()
    ended: list[str] = []
    failures = run_on_ray(
        spread, address=None, tell=print, after=lambda one: ended.append(one.experiment.model)
    )
    thread.join()
    assert failures == []
    assert len(killed) == 1
    assert sorted(ended) == sorted(one.experiment.model for one in spread)
    assert int((spread[0].folder / LOCK).read_text()) != killed[0]
    assert Runner(fresh=False, tell=print).run(alone) == []
    for there, here in zip(spread, alone, strict=True):
        found, expected = (load_file(one.steps[0].folder / "model.safetensors") for one in (there, here))
        assert all(
            torch.equal(found[name], expected[name]) for name in found | expected
        )  # as if nobody was killed


def test_what_fails_there_is_told_here(cluster: None, tmp_path: Path) -> None:
    (first, second) = chains(tmp_path)
    wrong = replace(first.steps[0], words=("train", "rfgsm", "--model", "resnet-19"))
    failures = run_on_ray([replace(first, steps=(wrong,)), second], address=None, tell=print)
    assert [(failure.code, failure.step) for failure in failures] == [(2, wrong)]
    assert "resnet-19" in failures[0].words
    assert second.steps[0].state == "done"
