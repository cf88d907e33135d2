"""What a training says when its numbers are none any more, and what its seconds are."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import nn

from scaleproof.defenses.base import Batch, Defense, Learner, Memory, Outcome
from scaleproof.models import Classifier
from scaleproof.museum.healthy import WithoutNorm
from scaleproof.parallel import ALONE, Group
from scaleproof.training import Trainer
from scaleproof.training.diverged import First, check_numbers, masks, numbers, told
from training_helpers import QUICK, chosen, finished, network, small, trainer


@dataclass(frozen=True, kw_only=True)
class Broken(Defense):
    """A term that is NaN from some epoch on."""

    name, label = "broken", "Broken"
    since: int = 0
    on: bool = False

    def at(self, epoch: int, step: int) -> Broken:
        return replace(self, on=epoch >= self.since)

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        output = learner.outputs(batch.x, "clean")
        extra = 0 * output.logits.sum()
        if self.on:
            extra = extra + torch.nan
        found = {"clean": self.classified(output, batch.y), "extra": extra}
        return self.finished(found, output, batch.y)


def message(defense: Defense, folder: Path | None = None, rate: float = 0.02) -> str:
    config = replace(QUICK, epochs=3, rate=rate)
    training = Trainer(network(), small(), defense, config, folder=folder, checkpoint_seconds=0)
    with pytest.raises(ValueError, match="NaN or infinite") as caught:
        finished(training)
    return str(caught.value)


def test_the_term_that_is_no_number_is_named(tmp_path: Path) -> None:
    said = message(Broken(since=1), tmp_path)
    assert said.startswith(
        "the loss is NaN or infinite in epoch 2, by step 3 (first in it 'extra', of outputs that"
    )
    assert f"; the checkpoint of epoch 1 is kept in {tmp_path}: look at how 'extra' is computed" in said


def test_the_rate_is_blamed_where_the_networks_outputs_are_no_numbers() -> None:
    said = message(Broken(since=9), rate=1e30)
    assert (
        "in epoch 1, by step 3 (the network's outputs were before it): lower the learning rate; where" in said
    )


def test_what_came_first_stays_first() -> None:
    first, outputs = First(16, torch.device("cpu")), torch.zeros(2, 3)
    good, bad = torch.tensor(1.0), torch.tensor(torch.inf)
    first.look(outputs, [good, good])
    assert first.read(("a", "b"), ALONE) == (False, [])
    assert told("now", False, [], bf16=True) == (
        "weights or statistics are NaN or infinite now (the loss was a number)",
        "lower the learning rate, or train in float32",
    )
    first.look(outputs, [good, bad])
    first.look(outputs + torch.nan, [bad, bad])
    assert first.read(("a", "b"), ALONE) == (False, ["b"])


class Both:
    """Rank 0 of two processes, the other of which found something, too."""

    rank, size = 0, 2

    def __init__(self, other: First) -> None:
        self.other = other

    def add_up(self, tensors: list[torch.Tensor]) -> None:
        tensors[0][1] = self.other.flags


@pytest.mark.parametrize(("sound", "found"), [(0, (True, ["b"])), (1, (False, ["b"])), (-1, (True, []))])
def test_what_came_first_on_any_process(sound: int, found: tuple[bool, list[str]]) -> None:
    """A term that is NaN on one process gives all of them weights, and outputs, that are."""
    good, bad, outputs = torch.tensor(1.0), torch.tensor(torch.nan), torch.zeros(2, 3)
    mine, other = First(16, torch.device("cpu")), First(16, torch.device("cpu"))
    for one in (mine,) * max(-sound, 0) + (other,) * max(sound, 0):
        one.look(outputs, [good, good])
    mine.look(outputs, [good, bad])
    other.look(outputs + torch.nan, [good, good])
    assert mine.read(("a", "b"), cast("Group", Both(other))) == found


def test_weights_that_are_no_numbers_are_told_before_the_training() -> None:
    net = network()
    with torch.no_grad():
        net.net.get_parameter("head.weight")[0, 0] = torch.nan
    with pytest.raises(
        ValueError, match=r"before a training begins, net.head.weight has NaN .* \(1 of \d+ tensors"
    ):
        Trainer(net, small(), Broken(), QUICK)


def test_outputs_that_are_no_numbers_are_told_before_the_training() -> None:
    class Nothing(WithoutNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * math.nan

    with pytest.raises(ValueError, match="the model returned NaN or infinite logits on clean images"):
        Trainer(Classifier(Nothing()), small(), chosen("at"), QUICK, test=None)


def test_seconds_are_those_of_ones_own_steps() -> None:
    """A training that waits for others between its steps took no longer for it, and its record says so."""
    training = trainer("standard", replace(QUICK, epochs=1, validation=0, test_probe=0))
    began = time.monotonic()
    for _ in training.run():
        time.sleep(0.5)
    waited = (training.steps - 1) * 0.5
    assert training.history[0]["seconds"] < time.monotonic() - began - waited
    assert training.elapsed < time.monotonic() - began - waited
    assert training.history[0]["images_per_second"] == pytest.approx(64 / training.history[0]["seconds"])


def test_a_mask_of_infinities_is_no_damage() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Flatten(), nn.Linear(3 * 32 * 32, 3)
            self.register_buffer("mask", torch.tensor([0.0, -math.inf]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.head(self.body(x)) + torch.softmax(self.mask, 0).sum()
            return logits

    classifier = Classifier(Masked())
    found = numbers(classifier, masks(classifier))
    assert sum(tensor.numel() for tensor in found) == 3 * 3 * 32 * 32 + 3
    check_numbers(classifier)
    classifier.net.get_buffer("mask")[0] = math.nan
    with pytest.raises(ValueError, match=r"net\.mask has NaN"):
        check_numbers(classifier)


class Averaging(nn.Module):
    """Its head gets its shape from the first images; its statistic is another tensor after every pass."""

    def __init__(self, step: float) -> None:
        super().__init__()
        self.step, self.body, self.head = step, nn.Flatten(), nn.LazyLinear(10)
        self.register_buffer("mean", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = self.mean + self.step
        logits: torch.Tensor = self.head(self.body(x))
        return logits


def test_statistics_are_looked_at_as_they_are_and_weights_once_they_have_a_shape() -> None:
    def training(step: float) -> Trainer:
        return Trainer(Classifier(Averaging(step)), small(), chosen("standard"), QUICK)

    finished(training(1.0))
    with pytest.raises(ValueError, match=r"weights or statistics are NaN .* \(the loss was a number\)"):
        finished(training(math.inf))
