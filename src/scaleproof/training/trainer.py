"""The one training loop: epochs of steps, a probe after each, checkpoints that a kill cannot spoil.

All that chance decides in an epoch depends on the seed and the epoch alone, so a run that is resumed at the end of an
epoch goes on as if it had never been cut.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scaleproof.data import Dataset
from scaleproof.defenses.base import Defense
from scaleproof.models.answers import answers, check_answers
from scaleproof.models.classifier import Classifier, as_classifier, device_of
from scaleproof.parallel import ALONE, Group
from scaleproof.rng import key_of
from scaleproof.speed import Speed
from scaleproof.threat import Threat
from scaleproof.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from scaleproof.training.checks import (
    FIELDS,
    check_batch,
    check_identity,
    check_last_batch,
    check_network,
    check_sets,
    checked_validation,
    identity,
    probe_threat,
)
from scaleproof.training.clock import Clock
from scaleproof.training.config import TrainConfig
from scaleproof.training.diverged import failure, slower
from scaleproof.training.guard import check_guard, current_defense, fall
from scaleproof.training.images import Resident, centred_places, generator, random_places, split
from scaleproof.training.learner import layout
from scaleproof.training.probe import Probe, Standing
from scaleproof.training.step import Draws, Stepper, trains_in_bf16
from scaleproof.training.weights import Best, State, head_norm, load_weights, move_mean, part, weights_of

CHECK_EVERY = 50  # steps between looks at the loss
CHEAP = 20.0  # a checkpoint that takes a twentieth of the time since the last one is written at once


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a training stands."""

    epoch: int  # from 1
    epochs: int
    step: int
    steps: int
    last: Mapping[str, Any] | None  # what the last finished epoch measured


class Trainer:
    """One training under way; `run` drives it and may be stepped beside others."""

    def __init__(
        self,
        classifier: nn.Module,
        dataset: Dataset,
        defense: Defense,
        config: TrainConfig,
        *,
        test: Dataset | None = None,
        speed: Speed | None = None,
        folder: Path | str | None = None,
        checkpoint_seconds: float = 60.0,
        group: Group = ALONE,
    ) -> None:
        check_sets(dataset, test)
        check_guard(config, len(dataset))
        classifier = as_classifier(classifier)
        self.classifier, self.defense, self.config, self.group = classifier, defense, config, group
        self.folder, self.checkpoint_seconds = Path(folder) if folder else None, checkpoint_seconds
        self.device, speed = device_of(classifier), speed or Speed()
        rows, held_out = split(dataset.labels, checked_validation(config, len(dataset)))
        check_batch(config.batch_size, len(rows), group)
        self.images = Resident.of(dataset, rows, self.device)
        self.shape = (self.images.padded.shape[1], *self.images.size)
        self.identity = {} if self.folder is None else identity(dataset, defense, config)
        if self.device.type == "cuda":
            classifier.to(memory_format=layout(speed, trains_in_bf16(speed, self.device)))  # type: ignore[call-overload]
        classifier.train()
        x = self.images.plain(slice(0, 8))
        check_network(classifier, defense, x, len(dataset.classes))
        check_last_batch(classifier, x, config.batch_size, len(rows), group)
        self.stepper = Stepper(classifier, defense, self.images, config, speed, group)
        self.averaged = None if config.average is None else copy.deepcopy(classifier)
        threat = probe_threat(defense)
        self.probes: dict[str, Probe] = {}
        if len(held_out):
            self.probes["validation"] = self.probe(dataset.select(held_out), threat, speed)
        if test is not None and config.test_probe:
            first = test.first(min(config.test_probe, len(test)))
            self.probes["test"] = self.probe(first.batch(0, len(first)), threat, speed)
        self.best = {name: Best() for name in self.probes}
        self.history: list[dict[str, Any]] = []
        self.steps_done = self.rollbacks = 0
        self.elapsed = 0.0  # seconds of epochs and probes, over all sittings
        self.stopped: str | None = None

    def probe(self, images: tuple[Tensor, Tensor], threat: Threat, speed: Speed) -> Probe:
        x, y = (tensor.to(self.device) for tensor in images)
        return Probe(self.measured, x, y, threat, self.config.probe_steps, speed)

    @property
    def measured(self) -> Classifier:
        """The network whose accuracy counts: the average of the weights where one is kept."""
        return self.classifier if self.averaged is None else self.averaged

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return -(-len(self.images) // self.config.batch_size)

    def run(self) -> Iterator[Progress]:
        """Train from wherever the folder's last checkpoint stands to the end."""
        self.resume()
        written, cost = time.monotonic(), 0.0
        for number in range(len(self.history), self.config.epochs):
            if self.stopped is not None:
                break
            clock = Clock()
            for step in self.epoch(number):
                if step < self.steps:
                    with clock.others_turn(self.device):
                        yield self.progress(number, step)
            self.close_epoch(number, clock.seconds())
            self.elapsed += clock.seconds()
            due = time.monotonic() - written >= min(self.checkpoint_seconds, CHEAP * cost)
            if due or self.over(number):
                started = time.monotonic()
                self.save()
                written = time.monotonic()
                cost = written - started
            yield self.progress(number, self.steps)

    def over(self, number: int) -> bool:
        return number + 1 == self.config.epochs or self.stopped is not None

    def progress(self, number: int, step: int) -> Progress:
        last = self.history[-1] if self.history else None
        return Progress(epoch=number + 1, epochs=self.config.epochs, step=step, steps=self.steps, last=last)

    def epoch(self, number: int) -> Iterator[int]:
        """Every batch of an epoch once, or as often as the defense replays it."""
        seed, device = self.config.seed, self.device
        order = torch.randperm(
            len(self.images), generator=generator(torch.device("cpu"), "order", seed, number)
        )
        chance = generator(device, "chance", seed, number)
        defense = current_defense(self.defense, self.config, number, self.rollbacks)
        for step, rows in enumerate(torch.split(order.to(device), self.config.batch_size)):
            places = (
                random_places(len(rows), chance) if self.config.augment else centred_places(len(rows), device)
            )
            now = defense.at(number, step)
            rate = self.config.rate_at(number + step / self.steps)
            for replay in range(now.replays):
                key = key_of("layers", seed, number, step, replay)
                draws = Draws(rows, places, self.noise(now, len(rows), chance), key)
                self.stepper.step(now, draws, rate)
                self.keep_average()
            if step % CHECK_EVERY == CHECK_EVERY - 1:
                self.check_loss(number, step)
            yield step + 1
        self.check_loss(number, self.steps - 1, weights=True)

    def noise(self, defense: Defense, count: int, chance: torch.Generator) -> tuple[Tensor, ...]:
        shape = (count, *self.shape)
        draw = {"uniform": torch.rand, "normal": torch.randn}
        return tuple(draw[kind](shape, generator=chance, device=self.device) for kind in defense.draws)

    def keep_average(self) -> None:
        """Move the running mean of the weights; young means forget faster."""
        self.steps_done += 1
        if self.averaged is None or self.config.average is None:
            return
        decay = min(self.config.average, (1 + self.steps_done) / (10 + self.steps_done))
        move_mean(self.averaged, self.classifier, 1 - decay)

    def check_loss(self, number: int, step: int, *, weights: bool = False) -> None:
        if not self.stepper.is_finite(weights=weights):
            fault = self.stepper.fault(f"in epoch {number + 1}, by step {step + 1}")
            raise failure(*fault, self.folder)

    def close_epoch(self, number: int, seconds: float) -> None:
        """Measure, select, guard."""
        self.group.average_buffers(self.classifier.net)
        if self.averaged is not None:
            self.group.average_buffers(self.averaged.net)
        record: dict[str, Any] = {"epoch": number + 1, "rate": self.config.rate_at(number + 0.5)}
        record |= self.stepper.totals.means(self.group) | {"weight_norm": head_norm(self.measured)}
        if (
            number % self.config.probe_every == self.config.probe_every - 1
            or number + 1 == self.config.epochs
        ):
            for name, probe in self.probes.items():
                with self.stepper.own_chance(key_of("probe", self.config.seed, number)):
                    own = probe.standing()
                standing = Standing(*self.group.agreed(list(asdict(own).values())))
                record[name] = asdict(standing)
                if not all(map(math.isfinite, record[name].values())):
                    what = f"the network's outputs are NaN or infinite after epoch {number + 1}"
                    raise failure(what, slower(self.stepper.bf16), self.folder)
                self.best[name].offer(standing.pgd, number + 1, weights_of(self.measured))
            self.watch(record)
        rows = len(self.images) * self.defense.replays
        self.history.append(record | {"seconds": seconds, "images_per_second": rows / seconds})

    def watch(self, record: dict[str, Any]) -> None:
        """The guard: stop, or go back to the best weights, where accuracy under PGD fell suddenly."""
        if "validation" not in self.best:
            return
        best = self.best["validation"]
        found = fall(self.history, record, best, self.config, len(self.probes["validation"].x))
        if found is None:
            return
        record["guard"] = f"{found}: {self.config.guard}"
        if self.config.guard == "stop":
            self.stopped = f"stopped in epoch {record['epoch']}: {found}"
            return
        self.rollbacks += 1
        load_weights(self.measured, best.weights)
        load_weights(self.classifier, best.weights)
        for tensor in (*self.stepper.optimizer.momenta, *self.stepper.memory.values()):
            tensor.zero_()

    def tensors(self) -> State:
        """Everything that the rest of the run depends on."""
        found = {f"model/{name}": tensor for name, tensor in weights_of(self.classifier).items()}
        found |= {
            f"momentum/{number:04d}": tensor for number, tensor in enumerate(self.stepper.optimizer.momenta)
        }
        found |= {f"memory/{name}": tensor for name, tensor in self.stepper.memory.items()}
        if self.averaged is not None:
            found |= {f"average/{name}": tensor for name, tensor in weights_of(self.averaged).items()}
        for kind, best in self.best.items():
            found |= {f"best-{kind}/{name}": tensor for name, tensor in best.weights.items()}
        return found

    def save(self) -> None:
        if self.folder is None or not self.group.writes:
            return
        facts = {
            "history": self.history,
            "best": {kind: {"pgd": best.pgd, "epoch": best.epoch} for kind, best in self.best.items()},
            "steps_done": self.steps_done,
            "rollbacks": self.rollbacks,
            "elapsed": self.elapsed,
            "stopped": self.stopped,
            "training": self.identity,
            **answers(self.classifier, self.shape),
        }
        write_checkpoint(self.folder, Checkpoint(len(self.history), self.tensors(), facts))

    def resume(self) -> None:
        found = None if self.folder is None else read_checkpoint(self.folder)
        if found is None:
            return
        check_identity(found.facts.get("training"), self.identity, self.folder)
        for kind, stored in found.facts["best"].items():
            self.best[kind] = Best(**stored, weights=part(found.tensors, f"best-{kind}/", self.device))
        mine = self.tensors()
        with torch.no_grad():
            for name, tensor in found.tensors.items():
                if not name.startswith("best-"):
                    mine[name].copy_(tensor)
        self.history = list(found.facts["history"])
        self.stepper.totals.names = [
            name for name in dict.fromkeys(chain(*self.history)) if name not in FIELDS
        ]
        self.steps_done, self.rollbacks = found.facts["steps_done"], found.facts["rollbacks"]
        self.stopped, self.elapsed = found.facts["stopped"], found.facts["elapsed"]
        check_answers(self.classifier, found.facts, f"the checkpoint in {self.folder}")

    def results(self) -> dict[str, tuple[int, State]]:
        """The three sets of weights that are reported, with their epochs (from 1)."""
        last = (len(self.history), {name: t.clone() for name, t in weights_of(self.measured).items()})
        best = {kind: (best.epoch, best.weights) for kind, best in self.best.items() if best.epoch}
        return {"selected": best.get("validation", last), "last": last} | (
            {"leaking": best["test"]} if "test" in best else {}
        )
