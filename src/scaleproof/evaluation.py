"""Evaluation: per-sample verdicts and what they cost. Every percentage is derived from the verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scaleproof.contract import Finding
from scaleproof.diagnosis import Check, is_reliable
from scaleproof.examples import Examples
from scaleproof.statistics import Flags, boundary_distances, wilson


@dataclass(frozen=True)
class Share:
    """So many of so many, with its 95% Wilson interval."""

    correct: int
    count: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.count if self.count else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.correct, self.count)

    def as_json(self) -> dict[str, object]:
        return {
            "correct": self.correct,
            "count": self.count,
            "accuracy": self.accuracy,
            "interval": list(self.interval),
        }


VERDICTS = {
    "broken": np.bool_,  # misclassified in float32, within the budget
    "attacked": np.bool_,
    "prediction": np.int16,
    "margin": np.float32,  # best other logit minus true logit: positive when misclassified
    "size": np.float32,  # of the perturbation
    "digest": np.uint64,  # of the example's bytes
    "chance": np.float32,  # share of draws in which a randomised model is right; otherwise 0 or 1
}
EMPTY = {
    "broken": False,
    "attacked": False,
    "prediction": -1,
    "margin": math.nan,
    "size": math.nan,
    "digest": 0,
    "chance": math.nan,
}


@dataclass(frozen=True, kw_only=True, repr=False)
class AttackResult:
    """What one attack did to every image, by restart: arrays of shape (restarts, N)."""

    name: str
    label: str
    settings: Mapping[str, object]
    scale_invariant: bool
    needs_features: bool
    verdicts: Mapping[str, NDArray[np.generic]]
    forwards: int
    backwards: int
    seconds: float
    not_finite: int = 0  # gradients that were not numbers, in images
    stuck: int = 0  # gradients that were zero at an image still classified right
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        broke = f"broke {int(self.broken().sum())} of {self.attacked} images"
        return f"AttackResult({self.name}: {broke}, restarts: {self.restarts}, {self.seconds:.1f} s)"

    @property
    def restarts(self) -> int:
        return int(self.verdicts["broken"].shape[0])

    def broken(self, restarts: int | None = None) -> Flags:
        """Images broken in any of the first `restarts` restarts (all of them by default)."""
        return np.asarray(self.verdicts["broken"][:restarts].any(axis=0), dtype=np.bool_)

    @property
    def attacked(self) -> int:
        return int(self.verdicts["attacked"].any(axis=0).sum())


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Evaluation:
    """The verdicts of a list of attacks on one model and one set of images."""

    mode: str
    labels: NDArray[np.int64]
    clean_prediction: NDArray[np.int64]
    cosine_disagrees: Flags | None
    attacks: tuple[AttackResult, ...]
    seconds: float
    speed: Mapping[str, object]
    head: str | None = None
    findings: tuple[Finding, ...] = ()
    draws: int = 1  # of a randomised model, behind each gradient and each verdict
    clean_chance: NDArray[np.float32] | None = None
    examples: Examples | None = None  # of the images that were broken, where they were to be kept
    checks: tuple[Check, ...] | None = None  # None where the model was not examined

    @property
    def reliable(self) -> bool | None:
        """Whether no check failed; None where there were none."""
        return None if self.checks is None else is_reliable(self.checks)

    def __repr__(self) -> str:
        shares = {"clean": self.clean, **{result.name: self.robust(result.name) for result in self.attacks}}
        told = ", ".join(f"{name} {share.accuracy:.2%}" for name, share in shares.items())
        doubt = {None: ", not examined", False: ", UNRELIABLE", True: ""}[self.reliable]
        doubt += "".join(f", {f.name.upper()}" for f in self.findings if f.severity == "warning")
        return f"Evaluation({told}, worst case {self.robust().accuracy:.2%}, n = {self.count}, {self.mode}{doubt})"

    @property
    def count(self) -> int:
        return len(self.labels)

    @property
    def clean_correct(self) -> Flags:
        return np.equal(self.clean_prediction, self.labels)

    @property
    def clean(self) -> Share:
        return Share(int(self.clean_correct.sum()), self.count)

    @property
    def cosine_mismatch(self) -> float | None:
        """Share of images on which the cosine's argmax is not the decision."""
        return None if self.cosine_disagrees is None else float(self.cosine_disagrees.mean())

    def survivors(self, name: str | None = None, restarts: int | None = None) -> Flags:
        """Images still right: after one attack, or after all of them; in a cascade, after all up to that one."""
        alive = self.clean_correct.copy()
        for result in self.attacks:
            counts = name is None or result.name == name or self.mode == "cascade"
            if counts:
                alive &= ~result.broken(restarts if result.name == name else None)
            if result.name == name:
                return alive
        if name is not None:
            raise ValueError(f"no attack is called {name!r} here, there are {[a.name for a in self.attacks]}")
        return alive

    def robust(self, name: str | None = None, restarts: int | None = None) -> Share:
        """Robust accuracy: an upper bound, found by one attack or the worst case over all."""
        return Share(int(self.survivors(name, restarts).sum()), self.count)

    def expected(self, name: str | None = None) -> float:
        """The accuracy to be expected of a randomised model over its draws, by one attack or the worst over all.

        The worst example of an image has the largest margin; its chance comes from other draws than that margin.
        """
        chance = self.clean_correct.astype(np.float64) if self.clean_chance is None else self.clean_chance
        worst = np.full(self.count, -np.inf)
        for result in self.attacks:
            if name is None or result.name == name or self.mode == "cascade":
                columns = (np.asarray(result.verdicts[key]) for key in ("attacked", "margin", "chance"))
                for attacked, found, right in zip(*columns, strict=True):
                    margin = np.where(np.isnan(found), np.inf, found)  # logits that are no numbers: broken
                    worse = attacked & (margin > worst)
                    worst, chance = np.where(worse, margin, worst), np.where(worse, right, chance)
            if result.name == name:
                break
        return float(chance.mean())

    def expectation_as_json(self) -> dict[str, object]:
        if self.draws == 1:
            return {}
        attacks = {result.name: self.expected(result.name) for result in self.attacks}
        assert self.clean_chance is not None
        clean = float(self.clean_chance.mean())
        return {
            "expected": {
                "draws": self.draws,
                "clean": clean,
                "attacks": attacks,
                "worst_case": self.expected(),
            }
        }

    def as_json(self) -> dict[str, object]:
        """The part of `evaluation.json` that follows from the verdicts."""
        return {
            **self.expectation_as_json(),
            "mode": self.mode,
            "clean": self.clean.as_json(),
            "attacks": [self.attack_as_json(result) for result in self.attacks],
            "worst_case": self.robust().as_json(),
            **self.checks_as_json(),
            "findings": [vars(finding) for finding in self.findings],
            "speed": dict(self.speed),
        }

    def checks_as_json(self) -> dict[str, object]:
        if self.checks is None:
            return {}
        return {"reliable": self.reliable, "checks": [check.as_json() for check in self.checks]}

    def attack_as_json(self, result: AttackResult) -> dict[str, object]:
        return {
            "name": result.name,
            "label": result.label,
            "settings": dict(result.settings),
            "restarts": result.restarts,
            "attacked": result.attacked,
            "robust_one_restart": self.robust(result.name, 1).as_json(),
            "robust": self.robust(result.name).as_json(),
            "forwards": result.forwards,
            "backwards": result.backwards,
            "seconds": result.seconds,
            "image_steps_per_second": result.backwards / result.seconds if result.seconds else 0.0,
            "gradients_not_finite": result.not_finite,
            "gradients_zero": result.stuck,
            "scale_invariant": result.scale_invariant,
            "cosine_mismatch": self.cosine_mismatch if result.needs_features else None,
            "notes": [*result.notes, *self.distance_notes(result)],
        }

    def distance_notes(self, result: AttackResult) -> list[str]:
        """What a search for the nearest boundary is for, where its budget is the whole range of pixels.

        A cascade ends a search at the first break, and others may have broken the image before: no distance is known.
        """
        if (result.settings.get("attack"), result.settings.get("eps")) != (
            "rays",
            1,
        ) or self.mode != "independent":
            return []
        sizes = np.asarray(result.verdicts["size"]).min(axis=0)
        mean = float(boundary_distances(self.clean_correct, result.broken(), sizes).mean())
        return [
            f"mean distance to the decision boundary (ADBD) {mean:.4f}, zero where the clean image is wrong"
        ]

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Per-sample arrays, as `verdicts.npz` keeps them."""
        arrays: dict[str, NDArray[np.generic]] = {
            "labels": self.labels,
            "clean_prediction": self.clean_prediction,
            "clean_correct": self.clean_correct,
        }
        if self.cosine_disagrees is not None:
            arrays["cosine_disagrees"] = self.cosine_disagrees
        for result in self.attacks:
            arrays |= {f"{name}__{result.name}": values for name, values in result.verdicts.items()}
        return arrays
