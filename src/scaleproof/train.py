"""Train: from a plan to a run folder with three sets of weights, each attacked on the test images.

A run folder holds `run.json`, `training.json` (settings, curve, results), `metrics.jsonl`, `verdicts-*.npz`,
`model.safetensors` (selected on held-out images), `last.safetensors` and `leaking.safetensors` (best on test images).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scaleproof.contract import Finding
from scaleproof.defenses import defense_settings
from scaleproof.differences import differences, setting, told
from scaleproof.evaluation import Evaluation
from scaleproof.evaluator import evaluate
from scaleproof.files import read_json, write_atomically
from scaleproof.locks import alone_in
from scaleproof.models import Classifier, answers, load_model, save_model, weights_digest
from scaleproof.models.specs import is_code, is_path
from scaleproof.parallel import ALONE, Group
from scaleproof.progress import Progress as Step
from scaleproof.provenance import provenance
from scaleproof.speed import on_device
from scaleproof.store import (
    UNITS,
    close_run,
    is_finished,
    open_run,
    settings_digest,
    write_arrays,
    write_json,
)
from scaleproof.training import Progress, Trainer
from scaleproof.training.checks import check_batch, check_synchronised
from scaleproof.training.plan import Plan, fresh, trained_on
from scaleproof.training.weights import load_weights

FILES = {"selected": "model.safetensors", "last": "last.safetensors", "leaking": "leaking.safetensors"}
Watch = Callable[["Plan", Progress], None]
Attacked = Callable[["Plan", str, Step], None]  # which weights of a plan, and how far the attacks on them are


class Session:
    """One plan on its way to a finished folder."""

    def __init__(self, plan: Plan, group: Group = ALONE) -> None:
        self.plan, self.group = plan, group
        self.evaluations: dict[str, Evaluation] = {}  # by the digest of the weights
        self.classifier, self.architecture = fresh(
            plan.architecture, len(plan.dataset.classes), plan.config.seed
        )
        group.share(self.classifier, plan.device)
        check_batch(plan.config.batch_size, len(plan.dataset), group)
        own = {"processes": group.size, "first_weights": weights_digest(self.classifier)}
        self.settings: dict[str, object] = json.loads(json.dumps(plan.settings() | own))
        self.lock = ExitStack()
        self.beside = 0  # how many others share its GPU
        if group.writes:
            self.claim()
        group.wait()
        self.done = is_finished(plan.folder)

    def claim(self) -> None:
        """The folder, which is new or holds the same training; for this process alone where there is work left."""
        folder = self.plan.folder
        if is_finished(folder):
            refuse_other_attacks(folder, self.settings)
            open_run(folder, self.settings)
            if is_code(self.plan.architecture) and (folder / FILES["selected"]).exists():
                load_model(str(folder))  # refuses weights of a network that answered otherwise
            return
        with ExitStack() as lock:
            lock.enter_context(alone_in(folder))
            open_run(folder, self.settings)
            self.lock = lock.pop_all()

    def start(self) -> None:
        plan = self.plan
        classifier = self.classifier.to(plan.device)
        if plan.sync_batch_norm:
            check_synchronised(plan.config, len(plan.dataset), plan.device, self.group)
            classifier.net = nn.SyncBatchNorm.convert_sync_batchnorm(classifier.net)  # type: ignore[no-untyped-call]
        self.trainer = Trainer(
            classifier,
            plan.dataset,
            plan.defense,
            plan.config,
            test=plan.test,
            speed=plan.speed,
            folder=plan.folder / UNITS,
            checkpoint_seconds=plan.checkpoint_seconds,
            group=self.group,
        )

    def run(self, watch: Watch, attacked: Attacked) -> Iterator[None]:
        """Train step by step, then evaluate and write; a yield after every step."""
        epochs = 0
        for progress in self.trainer.run():
            watch(self.plan, progress)
            if len(self.trainer.history) != epochs and self.group.writes:
                epochs = len(self.trainer.history)
                self.write_metrics()
            yield
        if self.group.writes:
            self.finish(attacked)
        self.group.wait()

    def write_metrics(self) -> None:
        records = [{"schema": "scaleproof.metrics/1", **record} for record in self.trainer.history]
        lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)
        write_atomically(self.plan.folder / "metrics.jsonl", lines.encode())

    def finish(self, attacked: Attacked) -> None:
        """The three sets of weights, attacked and written; `run.json` comes last and makes the folder finished."""
        plan, trainer = self.plan, self.trainer
        self.write_metrics()
        measured = copy.deepcopy(trainer.measured).eval()
        results = {
            kind: self.result(measured, kind, *found, attacked) for kind, found in trainer.results().items()
        }
        document = {
            "schema": "scaleproof.training/1",
            "label": plan.name,
            "recipe": {"name": plan.recipe, "provenance": plan.provenance},
            "defense": defense_settings(plan.defense),
            "config": plan.config.describe(),
            "model": {
                "architecture": self.architecture,
                "parameters": sum(parameter.numel() for parameter in measured.parameters()),
            },
            "data": plan.dataset.describe(),
            "test": plan.test.describe(),
            "threat": vars(plan.attacks[0].threat),
            "held_out": len(trainer.probes["validation"].x) if "validation" in trainer.probes else 0,
            "speed": self.speed(),
            "history": trainer.history,
            "results": results,
            "stopped": trainer.stopped,
        }
        write_json(plan.folder / "training.json", document)
        close_run(plan.folder, self.run_json())

    def speed(self) -> dict[str, Any]:
        """How it was computed, for the record."""
        found: dict[str, Any] = self.trainer.stepper.notes()
        told = [f"side by side with {self.beside} more: their work on the GPU is in the seconds, too"]
        began = [f"began with the weights in {self.plan.architecture}"]
        more = (told if self.beside else []) + (began if is_path(self.plan.architecture) else [])
        return found | {"notes": found["notes"] + more}

    def result(
        self, measured: Classifier, kind: str, epoch: int, weights: Mapping[str, Any], attacked: Attacked
    ) -> dict[str, object]:
        plan = self.plan
        load_weights(measured, weights)
        facts = {
            "epoch": str(epoch),
            "trained": trained_on(plan),
            "defense": json.dumps(defense_settings(plan.defense)),
            "batch_norm": json.dumps(vars(plan.defense.batch_norm)),
        }
        facts |= answers(measured, plan.test.images.shape[1:])
        sha256 = save_model(plan.folder / FILES[kind], measured, self.architecture, facts)
        if sha256 not in self.evaluations:  # the selected weights may be the last ones, too
            settings: dict[str, Any] = {"seed": plan.config.seed, "speed": plan.speed}
            settings["progress"] = lambda step: attacked(plan, kind, step)
            found = evaluate(measured, plan.test, plan.attacks, **settings)
            self.evaluations[sha256] = replace(found, findings=(*found.findings, *self.overlap))
        found = self.evaluations[sha256]
        write_arrays(plan.folder / f"verdicts-{kind}.npz", found.arrays())
        return {"epoch": epoch, "file": FILES[kind], "weights_sha256": sha256, "evaluation": found.as_json()}

    @cached_property
    def overlap(self) -> tuple[Finding, ...]:
        """A finding where test images were trained on."""
        test = self.plan.test
        shared = test.shared_with(self.plan.dataset)
        meaning = (
            f"{shared} of the {len(test)} test images are among the training images, pixel by pixel: accuracy on them "
            "says little of others"
        )
        return (Finding(name="seen", severity="warning", meaning=meaning),) if shared else ()

    def run_json(self) -> dict[str, object]:
        return {
            "schema": "scaleproof.run/1",
            "kind": "training",
            "name": self.plan.folder.name,
            "command": self.plan.command,
            "seed": self.plan.config.seed,
            **provenance(self.plan.device),
            "settings": self.settings,
            "settings_sha256": settings_digest(self.settings),
            "seconds": self.trainer.elapsed,
        }


def train(
    plans: Sequence[Plan],
    *,
    watch: Watch = lambda plan, progress: None,
    attacked: Attacked = lambda plan, kind, step: None,
    group: Group = ALONE,
) -> None:
    """Carry out plans side by side: on a GPU each has its own stream, and a step of each is taken in turn."""
    folders = [plan.folder for plan in plans]
    if len(set(folders)) != len(folders):
        raise ValueError(f"plans must go to different folders, got {', '.join(map(str, folders))}")
    with ExitStack() as locks:
        sessions = []
        for plan in plans:
            sessions.append(Session(plan, group))
            locks.callback(sessions[-1].lock.close)
        carry_out([session for session in sessions if not session.done], watch, attacked)


def carry_out(sessions: Sequence[Session], watch: Watch, attacked: Attacked) -> None:
    """A step of each in turn, until all are finished or have failed."""
    stream: Any = torch.cuda.Stream
    devices = [session.plan.device for session in sessions]
    apart = len(sessions) > 1
    streams = [stream(device) if apart and device.type == "cuda" else None for device in devices]
    running: list[tuple[Iterator[None], Any]] = []
    failures: list[str] = []
    for session, stream in zip(sessions, streams, strict=True):
        session.beside = len(sessions) - 1 if stream is not None else 0
        with streaming(session, stream):
            session.start()
        running.append((session.run(watch, attacked), (session, stream)))
    while running:
        for work in list(running):
            try:
                with streaming(*work[1]):
                    if next(work[0], DONE) is DONE:
                        running.remove(work)
            except ValueError as error:  # one diverged: the others go on
                running.remove(work)
                failures.append(f"{work[1][0].plan.folder}: {error}" if len(sessions) > 1 else str(error))
    if failures:
        raise DivergenceError("\n".join(failures))


DONE = object()


class DivergenceError(ValueError):
    """Trainings that came to no result, each with its folder; others that ran beside them are finished."""


def refuse_other_attacks(folder: Path, settings: Mapping[str, object]) -> None:
    """A finished training whose attacks alone were others needs no training anew."""
    found = differences("", read_json(folder / "run.json").get("settings", {}), settings)
    if found and {setting(item) for item in found} == {"attacks"}:
        raise ValueError(
            f"{folder} holds this training, finished, with other attacks at its end ({told(found)}): attack its "
            f"weights by `scaleproof evaluate {folder} --attacks ...`; another --out trains them anew"
        )


def streaming(session: Session, stream: Any) -> ExitStack:
    """The device and the stream of a session."""
    stack = ExitStack()
    stack.enter_context(on_device(session.plan.device))
    if stream is not None:
        stack.enter_context(torch.cuda.stream(stream))
    return stack


__all__ = ["DivergenceError", "Plan", "fresh", "train"]
