"""The one evaluation loop: attacks on images, cut into units that can be stored, resumed and trusted.

First one clean pass. Then the correctly classified images are cut into even chunks of at most `batch_size`, and each
chunk meets each attack and restart: one unit of work each. A unit depends on nothing but its rows, so a run that was
killed resumes with the same verdicts bit for bit. Attacks on some images alone come in later stages.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scaleproof.attacks.base import Attack
from scaleproof.attacks.loop import Tick, perturb
from scaleproof.attacks.oracles import Oracles
from scaleproof.attacks.sampled import Left, check_stages, stages, taken, whole
from scaleproof.attacks.suites import OTHERWISE, AnyAttacks, Suite, as_attacks
from scaleproof.audit import audited
from scaleproof.contract import (
    Finding,
    buffers_kept,
    check_finite,
    check_images,
    check_labels,
    check_mode,
    full_precision,
)
from scaleproof.evaluation import VERDICTS, Evaluation
from scaleproof.examples import gathered, kept
from scaleproof.images import AnyImages, Images, Rows, as_images, even_chunks, spans
from scaleproof.look import Mark, data_mark, fingerprint, first_look, first_rows, randomness
from scaleproof.models.classifier import AnyModel, Classifier, as_classifier, device_of
from scaleproof.oracle import Oracle
from scaleproof.parallel import ALONE, Group
from scaleproof.progress import Meter, Report, chunk_label
from scaleproof.rng import Rng
from scaleproof.speed import Speed
from scaleproof.store import Arrays, MemoryStore, UnitStore
from scaleproof.units import Unit, assemble, doubts
from scaleproof.verdicts import verdict

Mode = Literal["independent", "cascade"]


def evaluate(
    model: AnyModel,
    images: AnyImages,
    attacks: AnyAttacks = "paper",
    *,
    mode: Mode | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    speed: Speed | None = None,
    store: UnitStore | None = None,
    progress: Report | None = None,
    allow_train_mode: bool = False,
    group: Group = ALONE,
    draws: int | None = None,
    keep_examples: bool = False,
) -> Evaluation:
    """Robust accuracy of a model under attacks, with the verdict on every image.

    `independent`: each attack on every correctly classified image, with all its steps (the paper's columns).
    `cascade`: each attack on what those before it left, and broken rows leave the loop at once (the worst case, fast).
    A randomised model is asked `draws` times for each gradient and verdict (expectation over transformation).
    A suite brings its own mode, draws and precision where none are given: "standard" is a cascade, "rand" has 20 draws.
    Audits run in full where they find something.
    Several processes share the chunks through a `store` that all of them see; each returns the whole evaluation.
    With `keep_examples` it holds one adversarial example of each broken image, the first one found, bit for bit.
    """
    attacks = as_attacks(attacks)
    usual = attacks.preset if isinstance(attacks, Suite) else OTHERWISE
    mode, draws = checked_mode(mode or usual.mode, attacks), usual.draws if draws is None else draws
    speed = Speed(precision=usual.precision) if speed is None else speed
    if group.size > 1 and store is None:
        raise ValueError("an evaluation by several processes needs a store that all of them see, got none")
    with torch.inference_mode(False):
        source, classifier = as_images(images), as_classifier(model)
        findings = check_mode(classifier.net, allow_train_mode)
        with buffers_kept(classifier):
            size, told = checked_batch_size(batch_size, device_of(classifier)), progress or (lambda _: None)
            units = store or MemoryStore()

            def evaluated(chosen: Sequence[Attack]) -> Evaluation:
                run = Run(classifier, source, chosen, mode, seed, size, speed, units, draws, keep_examples)
                return run.evaluation(findings, told, group)

            return audited(evaluated, attacks)


@dataclass(eq=False)
class Run:
    """One evaluation under way."""

    classifier: Classifier
    images: Images
    attacks: Sequence[Attack]
    mode: Mode
    seed: int
    batch_size: int
    speed: Speed | None
    store: UnitStore
    draws: int = 1
    keep: bool = False  # examples of broken images

    def __post_init__(self) -> None:
        if len(self.images) == 0:
            raise ValueError("an evaluation needs at least one image, got none")
        self.first, _ = first_rows(self.images, device_of(self.classifier))
        self.oracle = Oracle(self.classifier, speed=self.speed, draws=self.draws, images=self.first)
        self.oracles = Oracles(self.oracle)
        self.packing = self.oracles.packing(self.batch_size)
        self.features = any(attack.needs_features for attack in self.attacks)

    def prepared(self, group: Group = ALONE) -> tuple[Arrays, list[tuple[Attack, tuple[str, ...]]], Rows]:
        """The clean pass, the attacks fitted to the classes, and the rows to attack."""
        look = first_look(self.oracle, self.images, self.features)
        self.oracles.look(self.attacks, self.first)
        settings: list[object] = [self.mode, self.seed, len(self.images), self.batch_size]
        settings += ["differences in pairs"] if any(self.oracles.paired.values()) else []
        mark = fingerprint(self.oracle, self.attacks, [*settings, data_mark(self.images)], look)
        clean = self.clean_pass(mark)
        if group.size > 1:  # what one of them stored holds for all
            group.wait()
            clean = self.clean_pass(mark)
        fitted = [attack.for_classes(int(clean["classes"])) for attack in self.attacks]
        return clean, fitted, np.flatnonzero(clean["label"] == clean["prediction"])

    def evaluation(self, findings: tuple[Finding, ...], progress: Report, group: Group) -> Evaluation:
        clean, fitted, correct = self.prepared(group)
        labels, prediction = clean["label"], clean["prediction"]
        units = self.attack_all(correct, [attack for attack, _ in fitted], len(labels), progress, group)
        results = tuple(assemble(attack, notes, units[attack.name], len(labels)) for attack, notes in fitted)
        findings += randomness(self.oracle, self.images)
        return Evaluation(
            mode=self.mode,
            labels=labels,
            clean_prediction=prediction,
            cosine_disagrees=clean.get("cosine_disagrees"),
            attacks=results,
            seconds=float(clean["seconds"]) + sum(result.seconds for result in results),
            speed=self.oracles.describe(),
            head=self.oracle.classifier.head_name,
            findings=findings + doubts(labels, prediction, int(clean["classes"]), results),
            draws=self.oracle.draws,
            clean_chance=clean.get("chance"),
            examples=gathered((name, unit.restart, unit.arrays) for name in units for unit in units[name]),
        )

    def clean_pass(self, mark: Mark) -> Arrays:
        """Predictions on clean images in float32, after checking images, labels and logits."""
        began = time.perf_counter()
        stored = self.store.load("clean")
        if stored is not None and not mark.fits(stored):
            raise ValueError(
                "the store holds units of another run (model, attacks, seed or data): give an empty one"
            )
        if stored is not None:
            return stored
        parts = [self.clean_part(rows) for rows in spans(len(self.images), self.batch_size)]
        joined: dict[str, NDArray[Any]] = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "classes"
        }
        joined |= {"classes": parts[0]["classes"], **mark.arrays()}
        joined["seconds"] = np.array(time.perf_counter() - began)
        self.store.save("clean", joined)
        return joined

    def clean_part(self, rows: Rows) -> dict[str, NDArray[Any]]:
        x, y = self.batch(rows)
        check_images(x, y, int(rows[0]))
        with self.oracle.chance(self.seed, "clean", int(rows[0])):
            output = self.oracle.judge_outputs(x, features=self.features)
            several = self.oracle.draws > 1
            logits, chance = self.oracle.judge_chance(x, y) if several else (output.logits, None)
        check_finite(logits)
        check_labels(y, logits.shape[1], int(rows[0]))
        decision = logits.argmax(1)
        part = {"label": y, "prediction": decision} | ({} if chance is None else {"chance": chance})
        if self.features:
            part["cosine_disagrees"] = output.cosines.argmax(1) != decision
        arrays: dict[str, NDArray[Any]] = {name: tensor.cpu().numpy() for name, tensor in part.items()}
        return {**arrays, "classes": np.array(output.logits.shape[1])}

    def batch(self, rows: Rows) -> tuple[Tensor, Tensor]:
        x, y = self.images.select(rows)
        return full_precision(x.detach().to(self.oracle.device)), y.to(self.oracle.device)

    def attack_all(
        self, correct: Rows, attacks: Sequence[Attack], count: int, progress: Report, group: Group
    ) -> dict[str, list[Unit]]:
        """Every unit of work, from the store where it is there already; several processes share the chunks."""
        units: dict[str, list[Unit]] = {attack.name: [] for attack in attacks}
        meter, alive = Meter(progress, count, len(correct)), np.zeros(count, np.bool_)
        alive[correct] = True
        margins = {attack.name: np.full(count, -np.inf) for attack in attacks}
        whole_set = Left(rows=correct, margins=margins, total=len(self.images), seed=self.seed)
        meter.total = sum(self.steps_of(stage, whole_set) for stage in stages(attacks))
        for stage in stages(attacks):
            left = replace(whole_set, rows=correct[alive[correct]]) if self.mode == "cascade" else whole_set
            chunks = list(enumerate(even_chunks(taken(stage[0], left), self.batch_size)))
            self.packing = self.oracles.packing(len(chunks[0][1]) if chunks else 1)
            if group.size > 1:
                silent = Meter(lambda _: None, count, len(correct))
                self.attack_chunks(chunks[group.rank :: group.size], stage, alive.copy(), silent)
                group.wait()
            meter.total += self.steps_of(stage, left) - self.steps_of(stage, whole_set)
            for unit, attack in self.attack_chunks(chunks, stage, alive, meter):
                units[attack.name].append(unit)
                rows, found = unit.arrays["row"], margins[attack.name]
                found[rows] = np.fmax(found[rows], unit.arrays["margin"])
        return units

    def steps_of(self, stage: Sequence[Attack], left: Left) -> int:
        """Steps and judgements of these attacks on what they take of these rows."""
        chunks = len(even_chunks(taken(stage[0], left), self.batch_size))
        return chunks * sum(attack.restarts * (attack.steps + 1) for attack in stage)

    def attack_chunks(
        self,
        chunks: Sequence[tuple[int, Rows]],
        attacks: Sequence[Attack],
        alive: NDArray[np.bool_],
        meter: Meter,
    ) -> list[tuple[Unit, Attack]]:
        """Each chunk meets each attack; what breaks is no longer alive."""
        units: list[tuple[Unit, Attack]] = []
        for number, chunk in chunks:
            for attack in attacks:
                for restart in range(attack.restarts):
                    meter.begin(chunk_label(attack, restart, number, len(chunks)), attack.steps + 1)
                    unbroken = chunk[alive[chunk]]
                    rows = unbroken if self.mode == "cascade" else chunk
                    key = f"{number:05d}.{attack.name}.{restart}"
                    unit = self.unit(key, attack, restart, rows, meter.tick, unbroken)
                    units.append((unit, attack))
                    alive[unit.broken_rows] = False
                    meter.end(len(unbroken) - int(alive[chunk].sum()))
        return units

    def unit(self, key: str, attack: Attack, restart: int, rows: Rows, tick: Tick, unbroken: Rows) -> Unit:
        stored = Unit.accepted(restart, self.store.load(key), rows, self.keep)
        if stored is not None:
            return stored
        arrays = self.work(attack, restart, rows, tick, unbroken)
        self.store.save(key, arrays)
        return Unit(restart, arrays)

    def work(
        self, attack: Attack, restart: int, rows: Rows, tick: Tick, unbroken: Rows
    ) -> dict[str, NDArray[Any]]:
        """Attack these rows and judge what comes back."""
        oracle, began = self.oracles.suited(attack), time.perf_counter()
        cost = oracle.cost
        forwards, backwards = cost.forwards, cost.backwards
        arrays: dict[str, NDArray[Any]] = {name: np.zeros(0, dtype) for name, dtype in VERDICTS.items()}
        if len(rows) > 0:
            x, y = self.batch(rows)
            index, rng = torch.from_numpy(rows).to(x.device), Rng(self.seed, whole(attack).name, restart)
            drop = self.mode == "cascade" and oracle.draws == 1  # one lucky draw is no verdict
            with oracle.chance(self.seed, whole(attack).name, restart, int(rows[0])):
                found = perturb(attack, oracle, x, y, index, rng, drop=drop, packing=self.packing, tick=tick)
                arrays = verdict(attack, oracle, x, found, y)  # copies to the host: the clock below is honest
                if self.keep:
                    wanted = arrays["broken"] & np.isin(rows, unbroken)
                    arrays |= kept(attack.threat, x, found, rows, wanted)
        counts = [cost.forwards - forwards, cost.backwards - backwards, *oracle.health.read()]
        return {
            **arrays,
            "row": rows,
            "counts": np.array(counts),
            "seconds": np.array(time.perf_counter() - began),
        }


def checked_mode(mode: str, attacks: Sequence[Attack] = ()) -> Mode:
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, got {mode!r}")
    check_stages(attacks, mode)
    return cast(Mode, mode)


def checked_batch_size(batch_size: int | None, device: torch.device) -> int:
    if batch_size is None:
        return 1024 if device.type == "cuda" else 128
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1, got {batch_size}")
    return batch_size
