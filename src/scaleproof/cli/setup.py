"""From command-line words to a model, images, attacks and a claimed run folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import typer

from scaleproof import __version__
from scaleproof.attacks import Attack, suite
from scaleproof.attacks.base import attack_settings
from scaleproof.checks import IMAGES, Check, examine
from scaleproof.cli.headless import possible
from scaleproof.cli.live import GO_ON, live_checks
from scaleproof.cli.options import number
from scaleproof.cli.origin import images_of, other_ball
from scaleproof.data import Dataset
from scaleproof.evaluator import checked_batch_size
from scaleproof.look import first_logits
from scaleproof.models import Classifier, LoadedModel, load_model
from scaleproof.models.backward import described
from scaleproof.models.specs import is_path
from scaleproof.parallel import ALONE, Group, local_device
from scaleproof.provenance import provenance
from scaleproof.speed import Speed
from scaleproof.speed.backends import Precision
from scaleproof.store import FolderStore, UnitStore, has_units, is_finished, open_run, settings_digest
from scaleproof.threat import UNSET, Norm, Threat

if TYPE_CHECKING:
    from scaleproof.cli.live import WatchChecks


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that a run needs, checked before anything is computed."""

    kind: str
    loaded: LoadedModel
    dataset: Dataset
    threat: Threat
    attacks: tuple[Attack, ...]
    seed: int
    batch_size: int | None
    speed: Speed
    device: torch.device
    settings: Mapping[str, object]
    folder: Path

    def claim(self, group: Group = ALONE) -> FolderStore:
        """The run folder, claimed by one process for all."""
        if not group.writes:
            group.wait()
        store = open_run(self.folder, self.settings)
        if group.writes:
            group.wait()
        return store

    def finished(self, *, quiet: bool = False) -> bool:
        """Say what is worth saying before the work, and whether there is any left."""
        if quiet:
            return is_finished(self.folder)
        for note in self.loaded.notes:
            typer.echo(f"note: {note}", err=True)
        if is_finished(self.folder):
            typer.echo(f"{self.folder} holds this run already.")
        elif has_units(self.folder):
            typer.echo(f"Going on with the run in {self.folder}: progress is that of what is left.", err=True)
        return is_finished(self.folder)

    def examined(
        self,
        *,
        draws: int = 1,
        invariant: bool,
        store: UnitStore | None = None,
        watch: WatchChecks | None = None,
        cut: str = GO_ON,
    ) -> tuple[Check, ...]:
        """Every check of the model, with a word on which is under way; a store keeps what was answered.

        `cut` is what to say to a person who interrupts it.
        """
        surrogate = load_model("undefended").classifier.to(self.device)
        with live_checks(watch, cut) as progress:
            return examine(
                self.loaded.classifier,
                self.dataset,
                self.threat,
                count=self.examined_images,
                seed=self.seed,
                draws=draws,
                surrogate=surrogate,
                invariant=invariant,
                store=None if store is None else store.part("checks"),
                progress=progress,
            )

    @property
    def examined_images(self) -> int:
        """How many images the checks look at, however many there are."""
        return min(IMAGES, self.batch_size or IMAGES, len(self.dataset))

    def run_json(self, seconds: float) -> dict[str, object]:
        return {
            "schema": "scaleproof.run/1",
            "kind": self.kind,
            "name": self.folder.name,
            "command": " ".join(["scaleproof", *sys.argv[1:]]),
            "seed": self.seed,
            **provenance(self.device),
            "settings": self.settings,
            "settings_sha256": settings_digest(self.settings),
            "seconds": seconds,
        }

    def subject(self, head: str | None) -> dict[str, object]:
        """What was measured: model, data, threat."""
        return {
            "model": {
                "spec": self.loaded.spec,
                "architecture": self.loaded.architecture,
                "parameters": sum(parameter.numel() for parameter in self.loaded.classifier.parameters()),
                "weights_sha256": self.loaded.sha256,
                "head": head,
            },
            "data": self.dataset.describe(),
            "threat": vars(self.threat),
        }


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options that every command which attacks a model has, as they were typed."""

    model: str
    arch: str | None
    head: str | None
    data: str | None
    data_folder: Path | None
    split: str
    limit: int | None
    attacks: str
    steps: int | None
    restarts: int | None
    norm: str
    eps: str | None
    step_size: str | None
    seed: int
    batch_size: int | None
    device: str
    precision: str
    compile: bool
    allow_train_mode: bool
    out: Path | None

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> Request:
        """Take what belongs here from a command's own arguments."""
        return cls(**{item.name: words[item.name] for item in fields(cls)})

    def threat(self) -> Threat:
        return Threat(norm=cast(Norm, self.norm), eps=UNSET if self.eps is None else number(self.eps, "eps"))

    def suite(self) -> tuple[Attack, ...]:
        stride = None if self.step_size is None else number(self.step_size, "step-size")
        return suite(self.attacks, self.threat(), steps=self.steps, restarts=self.restarts, step_size=stride)

    def speed(self) -> Speed:
        return Speed(precision=cast(Precision, self.precision), compile=self.compile)

    def loaded(self, classes: int, device: torch.device) -> LoadedModel:
        loaded = load_model(self.model, architecture=self.arch, classes=classes)
        if self.head is not None:
            loaded = replace(loaded, classifier=Classifier(loaded.classifier, head=self.head))
        loaded.classifier.to(device)
        return replace(loaded, notes=(*loaded.notes, *other_ball(Path(self.model), self.threat())))


def prepare(kind: str, request: Request, extra: Mapping[str, object], *, usual: bool = False) -> Job:
    """Check every word, load what they name, and say where the run goes; `usual` attacks are those not asked for."""
    attacks, speed, device = request.suite(), request.speed(), local_device(checked_device(request.device))
    checked_batch_size(request.batch_size, device)
    dataset = limited(images_of(request), request.limit)
    loaded = request.loaded(len(dataset.classes), device)
    if usual and request.head is None:
        attacks, loaded = possible(attacks, loaded, dataset)
    settings = {**settings_of(kind, request, attacks, loaded, dataset, device), **extra}
    words = [kind, Path(request.model).name.replace(":", "-"), dataset.name, settings_digest(settings)[:8]]
    return Job(
        kind=kind,
        loaded=loaded,
        dataset=dataset,
        threat=request.threat(),
        attacks=attacks,
        seed=request.seed,
        batch_size=request.batch_size,
        speed=speed,
        device=device,
        settings=settings,
        folder=request.out or Path("runs") / "-".join(words),
    )


def settings_of(
    kind: str,
    request: Request,
    attacks: tuple[Attack, ...],
    loaded: LoadedModel,
    dataset: Dataset,
    device: torch.device,
) -> dict[str, object]:
    """All that a run's verdicts depend on: two runs with equal settings are the same run."""
    classifier = loaded.classifier
    return {
        "kind": kind,
        "scaleproof": __version__,
        "model": Path(loaded.spec).name
        if is_path(loaded.spec)
        else loaded.spec,  # the weights' digest is below
        "architecture": loaded.architecture,
        "normalisation": str([classifier.mean, classifier.std]),
        "logit_scale": classifier.logit_scale,
        "weights": loaded.sha256,
        "first_logits": first_logits(classifier, dataset),
        "data": f"{dataset.name}/{dataset.split}",
        "images": len(dataset),
        "pixels": dataset.digest(),
        "attacks": [attack_settings(attack) for attack in attacks],
        "seed": request.seed,
        "batch_size": request.batch_size,
        "precision": request.precision,
        "compile": request.compile,
        "head": request.head,
        **({"backward": described(classifier.stand_ins)} if classifier.stand_ins else {}),
        "allow_train_mode": request.allow_train_mode,
        "device": device.type,
    }


def limited(dataset: Dataset, limit: int | None, option: str = "--limit") -> Dataset:
    if limit is not None and not 1 <= limit <= len(dataset):
        raise ValueError(
            f"{option} must be from 1 to {len(dataset)}, the size of {dataset.name}, got {limit}"
        )
    return dataset if limit is None else dataset.first(limit)


def checked_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise ValueError(f"device {name!r} was asked for, but torch sees {count} CUDA devices here")
    return device
