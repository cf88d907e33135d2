"""Chance inside networks, means of weights, several processes, damaged checkpoints: a training stays what it is."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from networks import Dropping, Skipping
from scaleproof import load
from scaleproof.defenses import (
    AdversarialTraining,
)
from scaleproof.models import as_classifier
from scaleproof.museum.healthy import WithoutNorm
from scaleproof.parallel import Group, joined, local_device
from scaleproof.training import Trainer
from scaleproof.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from scaleproof.training.images import centred_places
from scaleproof.training.step import Draws
from test_train_command import ENVIRONMENT, TESTS
from training_helpers import QUICK as CONFIG
from training_helpers import finished, network, same, small, trainer


@pytest.mark.parametrize("drawing", [Dropping, Skipping])
def test_a_network_that_draws_in_a_function_is_resumed_too(
    drawing: type[WithoutNorm], tmp_path: Path
) -> None:
    def made(folder: Path | None) -> Trainer:
        torch.manual_seed(3)
        own, data = as_classifier(drawing()), load("sample-train").first(64)
        return Trainer(own, data, AdversarialTraining(), CONFIG, folder=folder, checkpoint_seconds=0)

    whole = finished(made(None))
    cut = made(tmp_path)
    for progress in cut.run():
        if progress.epoch == 2:
            break
    torch.manual_seed(99)
    torch.rand(7)
    random.seed(99)
    np.random.seed(99)
    assert same(finished(made(tmp_path)), whole)
    assert random.random() == random.Random(99).random()
    assert np.random.rand() == np.random.RandomState(99).rand()


def test_a_mean_of_tied_weights_is_moved_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (nn.Conv2d(3, 3, 1, bias=False) for _ in range(2))
            self.second.weight = self.first.weight
            self.head = nn.Linear(3, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.second(self.first(x)).mean((2, 3)))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    running = Trainer(
        as_classifier(Tied()), small(), AdversarialTraining(), replace(CONFIG, average=0.5), folder=None
    )
    assert running.averaged is not None
    before = running.averaged.net.state_dict()["first.weight"].clone()
    with torch.no_grad():
        running.classifier.net.get_parameter("first.weight").add_(1)
    running.keep_average()
    decay = min(0.5, 2 / 11)
    moved = running.averaged.net.state_dict()["first.weight"]
    torch.testing.assert_close(moved, before + (1 - decay))


def test_the_norm_of_the_head_is_that_of_the_averaged_weights() -> None:
    running = trainer(config=replace(CONFIG, average=0.9))
    finished(running)
    own = running.averaged
    assert own is not None
    assert running.history[-1]["weight_norm"] == pytest.approx(
        float(own.net.state_dict()["head.weight"].norm(dim=1).mean())
    )


def test_one_process_that_has_no_number_stops_them_all() -> None:
    class Beside(Group):
        def add_up(self, tensors: object) -> None:
            for tensor in tensors:  # type: ignore[attr-defined]
                tensor.add_(math.nan)  # what another rank has

    stepper = trainer().stepper
    assert stepper.is_finite()
    stepper.group = Beside(0, 2)
    assert not stepper.is_finite()


def test_a_process_without_rows_counts_the_step_as_one_without_a_fault() -> None:
    """What was no number first is told by these counts, of all processes."""

    class Beside(Group):
        def add_up(self, tensors: object) -> None:
            """Nothing comes from the other one."""

    running = trainer()
    stepper, rows = running.stepper, torch.arange(1)
    draws = Draws(rows, centred_places(1, rows.device), running.noise(running.defense, 1, torch.Generator()))
    for rank, size in ((0, 1), (0, 2), (1, 2)):
        stepper.group = Beside(rank, size)
        stepper.step(running.defense, draws, 0.01)
    assert stepper.totals.first.flags.tolist() == [3] + [0] * (len(stepper.totals.first.flags) - 1)


def test_a_batch_has_a_row_for_each_process() -> None:
    with pytest.raises(ValueError, match="a row for each of 3 processes, got 2"):
        Trainer(network(), small(), AdversarialTraining(), replace(CONFIG, batch_size=2), group=Group(0, 3))


def worked(what: str, folder: Path, processes: int, port: str) -> list[Any]:
    """What each of several processes found."""
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--master-port", port, "group_work.py", what, str(folder)]
    done = subprocess.run(command, cwd=TESTS, env=ENVIRONMENT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]


def test_each_process_has_a_gpu_of_its_own_before_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Barriers, and what is no tensor, go over the current device."""
    done: list[object] = []
    for name, value in (("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "set_device", done.append)
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **_: done.append(backend))
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: done.append("over"))
    with joined(local_device(torch.device("cuda"))) as group:
        assert group == Group(1, 2)
    assert done == [torch.device("cuda", 1), "nccl", "over"]


def test_processes_begin_with_the_same_weights(tmp_path: Path) -> None:
    first, second = worked("share", tmp_path / "two", 2, "29621")
    assert first == second


def test_a_process_without_rows_records_and_learns_what_the_others_do(tmp_path: Path) -> None:
    """It has no part in the batch that alone has some term, of some weight."""
    *records, weights = worked("train", tmp_path / "one", 1, "29622")[0]
    assert [{"late", "early"} & set(record) for record in records] == [{"late"}, {"late", "early"}]
    for *told, learned in worked("train", tmp_path / "two", 2, "29623"):
        for one, other in zip(told, records, strict=True):
            numbers = {name: value for name, value in other.items() if isinstance(value, float)}
            assert {name: one[name] for name in numbers} == pytest.approx(numbers, rel=1e-4)
        assert {"own", *learned} == set(weights)
        for name, values in weights.items():
            assert learned[name] == pytest.approx(values, abs=1e-5), name
    assert min(weights["own"]) > 0.01, "it learned"


def test_when_no_checkpoint_is_whole_the_run_says_that_it_starts_over(tmp_path: Path) -> None:
    for epoch in (1, 2):
        path = write_checkpoint(tmp_path, Checkpoint(epoch, {"model/x": torch.zeros(2)}, {}))
    for path in tmp_path.glob("checkpoint-*"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="damaged") as told:
        assert read_checkpoint(tmp_path) is None
    assert "the checkpoint before it is used" in str(told[0].message)
    assert "none is left, the run starts over" in str(told[1].message)


def test_probes_of_networks_that_draw_are_seeded() -> None:
    """A probe decides which weights are selected: what it draws depends on the run alone."""

    class Always(Dropping):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + 0.3 * torch.rand_like(x))

    def curve(disturbed: int) -> list[object]:
        torch.manual_seed(3)
        own = as_classifier(Always())
        torch.manual_seed(disturbed)
        running = Trainer(own, load("sample-train").first(64), AdversarialTraining(), CONFIG)
        finished(running)
        return [epoch["validation"] for epoch in running.history]

    assert curve(1) == curve(2)
