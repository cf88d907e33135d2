"""From command-line words to a model, images, attacks and a claimed run folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
import typer

from scaleproof import __version__
from scaleproof.attacks import Attack, suite
from scaleproof.cli.options import number
from scaleproof.data import Dataset, load
from scaleproof.evaluator import checked_batch_size
from scaleproof.look import first_logits
from scaleproof.models import Classifier, LoadedModel, load_model
from scaleproof.provenance import provenance
from scaleproof.speed import Speed
from scaleproof.speed.backends import Precision
from scaleproof.store import FolderStore, is_finished, open_run, settings_digest
from scaleproof.threat import UNSET, Norm, Threat


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

    def claim(self) -> FolderStore:
        return open_run(self.folder, self.settings)

    def finished(self) -> bool:
        """Say what is worth saying before the work, and whether there is any left."""
        for note in self.loaded.notes:
            typer.echo(f"note: {note}", err=True)
        if is_finished(self.folder):
            typer.echo(f"{self.folder} holds this run already.")
        return is_finished(self.folder)

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
            "data": {
                "name": self.dataset.name,
                "split": self.dataset.split,
                "count": len(self.dataset),
                "classes": list(self.dataset.classes),
                "sha256": self.dataset.digest(),
                "source": self.dataset.source,
            },
            "threat": vars(self.threat),
        }


def prepare(
    kind: str,
    *,
    model: str,
    arch: str | None,
    head: str | None,
    data: str,
    data_folder: Path | None,
    split: str,
    limit: int | None,
    attacks: str,
    steps: int,
    restarts: int,
    norm: str,
    eps: str | None,
    step_size: str | None,
    seed: int,
    batch_size: int | None,
    device: str,
    precision: str,
    compile: bool,
    out: Path | None,
    extra: Mapping[str, object],
) -> Job:
    """Check every word and load what they name."""
    threat = Threat(norm=cast(Norm, norm), eps=UNSET if eps is None else number(eps, "eps"))
    stride = None if step_size is None else number(step_size, "step-size")
    chosen = suite(attacks, threat, steps=steps, restarts=restarts, step_size=stride)
    speed = Speed(precision=cast(Precision, precision), compile=compile)
    where = checked_device(device)
    checked_batch_size(batch_size, where)
    dataset = limited(load(data, split=split, folder=data_folder), limit)
    loaded = load_model(model, architecture=arch, classes=len(dataset.classes))
    if head is not None:
        loaded = replace(loaded, classifier=Classifier(loaded.classifier, head=head))
    loaded.classifier.to(where)
    settings: dict[str, object] = {
        "kind": kind,
        "scaleproof": __version__,
        "model": loaded.spec,
        "architecture": loaded.architecture,
        "normalisation": str([getattr(loaded.classifier, name) for name in ("mean", "std")]),
        "logit_scale": loaded.classifier.logit_scale,
        "weights": loaded.sha256,
        "data": f"{dataset.name}/{dataset.split}",
        "images": len(dataset),
        "pixels": dataset.digest(),
        "attacks": [attack.describe() for attack in chosen],
        "seed": seed,
        "batch_size": batch_size,
        "precision": precision,
        "head": head,
        "first_logits": first_logits(loaded.classifier, dataset),
        "compile": compile,
        "device": where.type,
        **extra,
    }
    name = f"{kind}-{Path(model).name.replace(':', '-')}-{dataset.name}-{settings_digest(settings)[:8]}"
    return Job(
        kind=kind,
        loaded=loaded,
        dataset=dataset,
        threat=threat,
        attacks=chosen,
        seed=seed,
        batch_size=batch_size,
        speed=speed,
        device=where,
        settings=settings,
        folder=out or Path("runs") / name,
    )


def limited(dataset: Dataset, limit: int | None) -> Dataset:
    if limit is not None and not 1 <= limit <= len(dataset):
        raise ValueError(f"--limit must be from 1 to {len(dataset)}, the size of {dataset.name}, got {limit}")
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
