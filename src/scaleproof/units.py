"""Units: finished pieces of an evaluation, and how they become results."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from scaleproof.attacks.base import Attack, attack_settings
from scaleproof.contract import ONE_CLASS, Finding, check_order, commonest, one_answer
from scaleproof.evaluation import EMPTY, VERDICTS, AttackResult
from scaleproof.images import Rows
from scaleproof.store import Arrays

PARTS = {*VERDICTS, "row", "counts", "seconds"}
COUNTS = 4  # forwards, backwards, gradients not finite, gradients zero at an image still classified right
STUCK_LIMIT = 0.01
FEWEST_ALIKE = 8  # answers; fewer may be alike by chance


@dataclass(frozen=True)
class Unit:
    """One attack and restart on one chunk of rows."""

    restart: int
    arrays: Arrays

    @classmethod
    def accepted(cls, restart: int, arrays: Arrays | None, rows: Rows, keep: bool = False) -> Unit | None:
        """A stored unit, if it is whole and about these rows, and has its examples where they are to be kept."""
        if arrays is None or not set(arrays) >= PARTS or not np.array_equal(arrays["row"], rows):
            return None
        if keep and len(rows) > 0 and "example_row" not in arrays:
            return None
        return cls(restart, arrays)

    @property
    def broken_rows(self) -> Rows:
        rows: Rows = self.arrays["row"][self.arrays["broken"]]
        return rows


def assemble(attack: Attack, notes: tuple[str, ...], units: Sequence[Unit], count: int) -> AttackResult:
    """One attack's units as arrays of shape (restarts, N)."""
    verdicts: dict[str, NDArray[Any]] = {
        name: np.full((attack.restarts, count), EMPTY[name], dtype) for name, dtype in VERDICTS.items()
    }
    for unit in units:
        for name, values in verdicts.items():
            values[unit.restart, unit.arrays["row"]] = unit.arrays[name]
    counts = np.sum([unit.arrays["counts"] for unit in units], axis=0) if units else np.zeros(COUNTS)
    forwards, backwards, not_finite, stuck = (int(value) for value in counts)
    return AttackResult(
        name=attack.name,
        label=attack.label,
        settings=attack_settings(attack),
        scale_invariant=attack.scale_invariant,
        needs_features=attack.needs_features,
        verdicts=verdicts,
        forwards=forwards,
        backwards=backwards,
        not_finite=not_finite,
        stuck=stuck,
        seconds=float(sum(float(unit.arrays["seconds"]) for unit in units)),
        notes=notes,
    )


def doubts(
    labels: NDArray[np.int64],
    prediction: NDArray[np.int64],
    classes: int,
    results: Sequence[AttackResult],
) -> tuple[Finding, ...]:
    """What the images, the answers on them and the attacks' gradients say against the numbers."""
    return check_order(labels, classes) + answer_findings(labels, prediction) + gradient_findings(results)


def answer_findings(labels: NDArray[np.int64], prediction: NDArray[np.int64]) -> tuple[Finding, ...]:
    """A network with hardly more than one answer for images of several classes: what withstands attacks is a class."""
    if len(labels) < FEWEST_ALIKE or one_answer(prediction, labels) <= ONE_CLASS:
        return ()
    answer, count = commonest(prediction)
    images = f"all {len(labels)}" if count == len(labels) else f"{count} of {len(labels)}"
    hardly = "" if count == len(labels) else "next to "
    meaning = (
        f"the network answers class {answer} for {images} images, whatever they show: it tells {hardly}nothing apart, "
        f"and its accuracy, attacked or not, is {hardly}the share of that class"
    )
    return (Finding(name="one-answer", severity="note", meaning=meaning),)


def gradient_findings(results: Sequence[AttackResult]) -> tuple[Finding, ...]:
    """Attacks whose gradients were of no use: their accuracy is the attack's failure, not the model's strength."""
    findings: list[Finding] = []
    for result in results:
        steps = max(result.backwards, 1)
        lost = int((result.verdicts["attacked"] & np.isnan(result.verdicts["margin"])).any(axis=0).sum())
        if lost:
            meaning = (
                f"under {result.label} the logits of {lost} images are not numbers: they count as broken"
            )
            findings.append(Finding(name="logits-not-finite", severity="warning", meaning=meaning))
        if result.not_finite > 0:
            share = f"{100 * result.not_finite / steps:.1f}% of its steps"
            meaning = (
                f"{result.label} met gradients that are not numbers in {share}: its accuracy says little"
            )
            findings.append(Finding(name="gradient-not-finite", severity="warning", meaning=meaning))
        if result.stuck > STUCK_LIMIT * steps:
            share = f"{100 * result.stuck / steps:.1f}% of its steps"
            meaning = (
                f"{result.label} had no gradient at images still classified right in {share}: "
                "its accuracy says little; look at the scale of the logits and for parts that round or detach"
            )
            findings.append(Finding(name="gradient-zero", severity="warning", meaning=meaning))
    return tuple(findings)


def digests(x: Tensor) -> NDArray[np.uint64]:
    """A 64-bit hash of each example's bytes."""
    rows = x.detach().contiguous().cpu().numpy()
    hashes = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows]
    return np.array([int.from_bytes(value, "little") for value in hashes], np.uint64)
