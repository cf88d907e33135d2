"""The one evaluation loop: attacks on images, cut into units that can be stored, resumed and trusted.

First one clean pass. Then the correctly classified images are cut into even chunks of at most `batch_size`, and each
chunk meets each attack and restart: one unit of work each. A unit depends on nothing but its chunk, so a run that was
killed resumes with the same verdicts bit for bit.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scaleproof.attacks.base import Attack
from scaleproof.attacks.loop import Packing, perturb
from scaleproof.attacks.suites import unique
from scaleproof.contract import buffers_kept, check_images, check_labels, check_logits, check_mode
from scaleproof.evaluation import EMPTY, VERDICTS, AttackResult, Evaluation, Finding
from scaleproof.images import Images, Rows, TensorImages, spans
from scaleproof.losses import margin
from scaleproof.models.classifier import Classifier, as_classifier
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.speed import Speed
from scaleproof.store import MemoryStore, UnitStore

Mode = Literal["independent", "cascade"]
FIRST_LOOK = 8


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where an evaluation stands: units done, what runs next, images not yet broken."""

    done: int
    total: int
    label: str
    unbroken: int
    count: int


def evaluate(
    model: nn.Module,
    images: Images | tuple[Tensor, Tensor],
    attacks: Sequence[Attack],
    *,
    mode: Mode = "independent",
    seed: int = 0,
    batch_size: int | None = None,
    speed: Speed | None = None,
    store: UnitStore | None = None,
    progress: Callable[[Progress], None] | None = None,
    allow_train_mode: bool = False,
) -> Evaluation:
    """Robust accuracy of a model under attacks, with the verdict on every image.

    `independent`: each attack on every correctly classified image, with all its steps (the paper's columns).
    `cascade`: each attack on what those before it left, and broken rows leave the loop at once (the worst case, fast).
    """
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, got {mode!r}")
    source = TensorImages(*images) if isinstance(images, tuple) else images
    classifier = as_classifier(model)
    findings = check_mode(classifier, allow_train_mode)
    with buffers_kept(classifier):
        run = Run(classifier, source, unique(attacks), mode, seed, batch_size, speed, store or MemoryStore())
        return run.evaluation(findings, progress or (lambda _: None))


class Run:
    """One evaluation under way."""

    def __init__(
        self,
        classifier: Classifier,
        images: Images,
        attacks: Sequence[Attack],
        mode: Mode,
        seed: int,
        batch_size: int | None,
        speed: Speed | None,
        store: UnitStore,
    ) -> None:
        if len(images) == 0:
            raise ValueError("an evaluation needs at least one image, got none")
        self.images, self.attacks, self.mode, self.seed, self.store = images, attacks, mode, seed, store
        self.oracle = Oracle(classifier, speed=speed)
        self.batch_size = checked_batch_size(batch_size, self.oracle.device)

    def evaluation(self, findings: tuple[Finding, ...], progress: Callable[[Progress], None]) -> Evaluation:
        began = time.perf_counter()
        clean = self.clean_pass()
        labels, prediction = clean["label"], clean["prediction"]
        fitted = [attack.for_classes(int(clean["classes"])) for attack in self.attacks]
        chunks = even_chunks(np.flatnonzero(labels == prediction), self.batch_size)
        self.packing = Packing(len(chunks[0]) if chunks else 1, pad=self.oracle.graphs is not None)
        units = self.attack_chunks(chunks, [attack for attack, _ in fitted], len(labels), progress)
        results = [
            assemble(attack, notes, units[attack.name], len(labels))
            for attack, (_, notes) in zip(self.attacks, fitted, strict=True)
        ]
        disagrees = clean.get("cosine_disagrees")
        return Evaluation(
            mode=self.mode,
            labels=labels,
            clean_prediction=prediction,
            cosine_disagrees=disagrees,
            attacks=tuple(results),
            seconds=time.perf_counter() - began,
            speed=self.oracle.describe(),
            head=self.oracle.classifier.head_name,
            findings=findings,
        )

    def clean_pass(self) -> Mapping[str, NDArray[Any]]:
        """Predictions on clean images in float32, after checking images, labels and logits."""
        stored = self.store.load("clean")
        if stored is not None:
            return stored
        parts = [self.clean_part(rows) for rows in spans(len(self.images), self.batch_size)]
        joined: dict[str, NDArray[Any]] = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "classes"
        }
        joined["classes"] = parts[0]["classes"]
        self.store.save("clean", joined)
        return joined

    def clean_part(self, rows: Rows) -> dict[str, NDArray[Any]]:
        x, y = self.batch(rows)
        check_images(x, y, int(rows[0]))
        if rows[0] == 0:
            check_logits(self.oracle.judge(x[:FIRST_LOOK]))  # before the head is looked for
        features = any(attack.needs_features for attack in self.attacks)
        output = self.oracle.judge_outputs(x, features=features)
        check_logits(output.logits)
        check_labels(y, output.logits.shape[1], int(rows[0]))
        decision = output.logits.argmax(1)
        part = {"label": y, "prediction": decision}
        if features:
            part["cosine_disagrees"] = output.cosines.argmax(1) != decision
        arrays: dict[str, NDArray[Any]] = {name: tensor.cpu().numpy() for name, tensor in part.items()}
        arrays["classes"] = np.array(output.logits.shape[1])
        return arrays

    def batch(self, rows: Rows) -> tuple[Tensor, Tensor]:
        x, y = self.images.select(rows)
        return x.to(self.oracle.device), y.to(self.oracle.device)

    def attack_chunks(
        self,
        chunks: Sequence[Rows],
        attacks: Sequence[Attack],
        count: int,
        progress: Callable[[Progress], None],
    ) -> dict[str, list[Unit]]:
        """Every unit of work, from the store where it is there already."""
        units: dict[str, list[Unit]] = {attack.name: [] for attack in attacks}
        total = len(chunks) * sum(attack.restarts for attack in attacks)
        unbroken, done = sum(len(chunk) for chunk in chunks), 0
        for number, chunk in enumerate(chunks):
            alive = np.ones(len(chunk), dtype=np.bool_)
            for attack in attacks:
                for restart in range(attack.restarts):
                    label = attack.label if attack.restarts == 1 else f"{attack.label}, restart {restart + 1}"
                    progress(Progress(done=done, total=total, label=label, unbroken=unbroken, count=count))
                    rows = chunk[alive] if self.mode == "cascade" else chunk
                    arrays = self.unit(f"{number:05d}.{attack.name}.{restart}", attack, restart, rows)
                    units[attack.name].append(Unit(restart=restart, arrays=arrays))
                    before, done = int(alive.sum()), done + 1
                    alive[np.isin(chunk, arrays["row"][arrays["broken"]])] = False
                    unbroken -= before - int(alive.sum())
        progress(Progress(done=done, total=total, label="done", unbroken=unbroken, count=count))
        return units

    def unit(self, key: str, attack: Attack, restart: int, rows: Rows) -> Mapping[str, NDArray[Any]]:
        stored = self.store.load(key)
        if stored is None:
            stored = self.work(attack, restart, rows)
            self.store.save(key, stored)
        return stored

    def work(self, attack: Attack, restart: int, rows: Rows) -> dict[str, NDArray[Any]]:
        """Attack these rows and judge what comes back."""
        cost, began = self.oracle.cost, time.perf_counter()
        forwards, backwards = cost.forwards, cost.backwards
        if len(rows) == 0:
            arrays: dict[str, NDArray[Any]] = {name: np.zeros(0, dtype) for name, dtype in VERDICTS.items()}
        else:
            x, y = self.batch(rows)
            index = torch.from_numpy(rows).to(x.device)
            rng = Rng(self.seed, attack.name, restart)
            drop = self.mode == "cascade"
            found = perturb(attack, self.oracle, x, y, index, rng, drop=drop, packing=self.packing)
            arrays = self.verdict(attack, x, found, y)  # copies to the host, so the clock below is honest
        return {
            **arrays,
            "row": rows,
            "cost": np.array([cost.forwards - forwards, cost.backwards - backwards]),
            "seconds": np.array(time.perf_counter() - began),
        }

    def verdict(self, attack: Attack, x: Tensor, found: Tensor, y: Tensor) -> dict[str, NDArray[Any]]:
        """The last word on examples: budget and pixel range, then the float32 decision."""
        wrong = attack.threat.violation(found, x)
        if wrong is not None:
            raise ValueError(f"attack {attack.name!r} broke its own rules: {wrong}")
        logits = self.oracle.judge(found)
        prediction = logits.argmax(1)
        tensors = {
            "broken": prediction != y,
            "attacked": torch.ones_like(y, dtype=torch.bool),
            "prediction": prediction,
            "margin": margin(logits, y),
            "size": attack.threat.size(found - x),
        }
        arrays: dict[str, NDArray[Any]] = {
            name: tensor.cpu().numpy().astype(VERDICTS[name]) for name, tensor in tensors.items()
        }
        arrays["digest"] = digests(found)
        return arrays


@dataclass(frozen=True, kw_only=True)
class Unit:
    restart: int
    arrays: Mapping[str, NDArray[Any]]


def assemble(attack: Attack, notes: tuple[str, ...], units: Sequence[Unit], count: int) -> AttackResult:
    """One attack's units as arrays of shape (restarts, N)."""
    verdicts: dict[str, NDArray[Any]] = {
        name: np.full((attack.restarts, count), EMPTY[name], dtype) for name, dtype in VERDICTS.items()
    }
    for unit in units:
        for name, values in verdicts.items():
            values[unit.restart, unit.arrays["row"]] = unit.arrays[name]
    cost = np.sum([unit.arrays["cost"] for unit in units], axis=0) if units else np.zeros(2)
    return AttackResult(
        name=attack.name,
        label=attack.label,
        settings=attack.describe(),
        scale_invariant=attack.scale_invariant,
        needs_features=attack.needs_features,
        verdicts=verdicts,
        forwards=int(cost[0]),
        backwards=int(cost[1]),
        seconds=float(sum(float(unit.arrays["seconds"]) for unit in units)),
        notes=notes,
    )


def even_chunks(rows: Rows, most: int) -> list[Rows]:
    """As few chunks of at most `most` rows as will do, as even as can be: the first is the largest."""
    return list(np.array_split(rows, -(-len(rows) // most))) if len(rows) else []


def digests(x: Tensor) -> NDArray[np.uint64]:
    """A 64-bit hash of each example's bytes."""
    rows = x.detach().contiguous().cpu().numpy()
    return np.array(
        [int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "little") for row in rows],
        np.uint64,
    )


def checked_batch_size(batch_size: int | None, device: torch.device) -> int:
    if batch_size is None:
        return 1024 if device.type == "cuda" else 128
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1, got {batch_size}")
    return batch_size
