"""Gate: is robust accuracy still high enough, as far as a given time can tell? For continuous integration.

One clean pass over all images; then images in a random but fixed order, block by block, each block through all attacks,
cheap ones first. What met all attacks is a random sample of the images, so that the number that would survive among all
of them lies in an exact interval, which is one number once all were seen.

fail        the whole interval is below the limit: even the most that could survive is too little
pass        the whole interval is at the limit or above: these attacks do not bring the accuracy below it
undecided   the interval holds the limit: more time is needed

A drop below an earlier run fails where it is larger than allowed beyond chance, see `about_drop`.

Looks before the end may only fail a model, and only at 99.9%, once for each doubling of the sample. So a model at the
limit or above it is failed by chance in less than 5% of all gates, if the time is up at a moment that has nothing to do
with the verdicts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np
import torch

from scaleproof.attacks.base import Attack
from scaleproof.attacks.sampled import Left, taken
from scaleproof.attacks.suites import AnyAttacks, cheap_first
from scaleproof.baseline import Baseline, check_attacks, wide
from scaleproof.contract import Finding, buffers_kept, check_mode
from scaleproof.diagnosis import Check, is_reliable
from scaleproof.evaluation import Share
from scaleproof.evaluator import Run, checked_batch_size
from scaleproof.images import AnyImages, Rows, as_images
from scaleproof.look import randomness
from scaleproof.models.classifier import AnyModel, as_classifier, device_of
from scaleproof.rng import Rng
from scaleproof.speed import Speed
from scaleproof.statistics import Flags, Paired, paired, part_interval
from scaleproof.store import MemoryStore

Decision = Literal["pass", "fail", "undecided"]
FINAL, EARLY, CERTAIN = 0.95, 0.999, 1.0
PARTS = 8  # the first block is so much smaller than the largest


class OutOfTimeError(Exception):
    """The budget is spent."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a model must keep: a least robust accuracy in percent, a largest drop in points, or both."""

    min_robust: float | None = None
    max_drop: float | None = None

    def __post_init__(self) -> None:
        if self.min_robust is None and self.max_drop is None:
            raise ValueError("a gate needs a limit: give --min-robust, or --against a run with --max-drop")
        for name, value in (("min_robust", self.min_robust), ("max_drop", self.max_drop)):
            if name == "min_robust" and value is not None and 0 < value < 1:
                raise ValueError(f"min_robust is in percent, got {value:g}: {100 * value:g} means that share")
            if value is not None and not 0 <= value <= 100:
                raise ValueError(f"{name} must be from 0 to 100, in percent, got {value:g}")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What was looked at: `seen` of `count` images met all attacks; `attacked` were right before, `survived` after."""

    count: int
    correct: int  # of all images, without an attack
    seen: int
    attacked: int
    survived: int

    @property
    def complete(self) -> bool:
        return self.seen == self.count

    @property
    def bound(self) -> float | None:
        """The upper bound on robust accuracy: exact where all images were seen, else what the sample suggests."""
        return self.survived / self.attacked * self.correct / self.count if self.attacked else None

    def counts(self, confidence: float) -> tuple[int, int]:
        """From how many to how many of all images would survive these attacks."""
        return part_interval(self.survived, self.attacked, self.correct, confidence)

    def interval(self, confidence: float = FINAL) -> tuple[float, float]:
        low, high = self.counts(confidence)
        return low / self.count, high / self.count

    def as_json(self) -> dict[str, object]:
        others = Share(self.survived, self.seen)
        return {
            **asdict(self),
            "complete": self.complete,
            "bound": self.bound,
            "interval": list(self.interval()),
            "interval_of_images_like_these": list(others.interval),
        }


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The decision and all that it rests on."""

    decision: Decision
    rules: Rules
    sample: Sample
    comparison: Paired | None
    attacks: tuple[str, ...]
    findings: tuple[Finding, ...]
    seconds: float
    checks: tuple[Check, ...] | None = None  # None where the model was not examined

    def examined(self, checks: tuple[Check, ...]) -> Gate:
        """The decision in the light of checks: a model whose number is not reliable does not pass."""
        doubt = self.decision == "pass" and not is_reliable(checks)
        return replace(self, checks=checks, decision="undecided" if doubt else self.decision)

    def as_json(self) -> dict[str, object]:
        return {
            "decision": self.decision,
            "rules": asdict(self.rules),
            "sample": self.sample.as_json(),
            "comparison": None if self.comparison is None else self.comparison.as_json(),
            "attacks": list(self.attacks),
            "findings": [vars(finding) for finding in self.findings],
            "seconds": self.seconds,
            "reliable": None if self.checks is None else is_reliable(self.checks),
            "checks": [check.as_json() for check in self.checks or ()],
        }


def about_minimum(sample: Sample, min_robust: float, confidence: float = FINAL) -> Decision:
    """Whether the interval is below the limit, not below it, or holds it; in whole images, so that no digit is lost."""
    limit = Fraction(str(min_robust)) * sample.count / 100
    low, high = sample.counts(confidence)
    if high < limit:
        return "fail"
    return "pass" if low >= limit else "undecided"


def about_drop(found: Paired, max_drop: float, complete: bool, confidence: float = FINAL) -> Decision:
    """Whether the drop is larger than allowed beyond chance: by its interval, and by the exact test.

    It passes where its whole interval is within the limit; where all images were seen, the drop itself will do.
    """
    low, high = (100 * end for end in found.interval(confidence))
    if low > max_drop and found.p_value < 1 - confidence:
        return "fail"
    seen = 100 * Fraction(found.lost - found.won, found.count) if complete and found.count else high
    return "pass" if seen <= Fraction(str(max_drop)) else "undecided"


def decide(rules: Rules, sample: Sample, found: Paired | None, confidence: float = FINAL) -> Decision:
    """Fail where one rule fails, pass where all do, undecided otherwise."""
    decisions: list[Decision] = []
    if rules.min_robust is not None:
        decisions.append(about_minimum(sample, rules.min_robust, confidence))
    if rules.max_drop is not None and found is not None:
        decisions.append(about_drop(found, rules.max_drop, sample.complete, confidence))
    if "fail" in decisions:
        return "fail"
    return "undecided" if "undecided" in decisions else "pass"


def blocks(order: Rows, largest: int) -> Iterator[tuple[Rows, bool]]:
    """The images in blocks that grow up to the largest, each with whether it completes a doubling of the sample."""
    first = max(1, largest // PARTS)
    start, size = 0, first
    while start < len(order):
        block = order[start : start + size]
        start += len(block)
        times = start // first
        yield block, start == times * first and times & (times - 1) == 0
        size = min(largest, start)


def random_order(count: int, seed: int) -> Rows:
    """All images in an order that depends on the seed alone."""
    chance = Rng(seed, "gate").uniform(torch.arange(count), (1,))[:, 0].numpy()
    return np.argsort(chance, kind="stable").astype(np.int64)


def gate(
    model: AnyModel,
    images: AnyImages,
    attacks: AnyAttacks,
    rules: Rules,
    *,
    baseline: Baseline | None = None,
    budget: float = 300.0,
    seed: int = 0,
    batch_size: int | None = None,
    speed: Speed | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Gate:
    """Attack a model for at most `budget` seconds after its clean pass began, or until it is shown to fail."""
    if (rules.max_drop is None) != (baseline is None):
        raise ValueError("max_drop and a baseline go together: give both or none")
    if not budget > 0:
        raise ValueError(f"the budget must be above 0 seconds, got {budget:g}")
    began = clock()
    with torch.inference_mode(False):
        source, classifier = as_images(images), as_classifier(model)
        findings = check_mode(classifier.net, allow_train_mode=False)
        with buffers_kept(classifier):
            size = checked_batch_size(batch_size, device_of(classifier))
            run = Run(classifier, source, cheap_first(attacks), "cascade", seed, size, speed, MemoryStore())
            inspection = Inspection(run, rules, baseline, lambda: clock() - began > budget)
            sample, comparison = inspection.look()
            findings += randomness(run.oracle, source)
    decision = decide(rules, sample, comparison)
    if decision == "pass" and comparison is not None:
        findings += wide(comparison, rules.max_drop or 0.0)
    return Gate(
        decision=decision,
        rules=rules,
        sample=sample,
        comparison=comparison,
        attacks=tuple(attack.label for attack in run.attacks),
        findings=findings,
        seconds=clock() - began,
    )


class Inspection:
    """A gate under way."""

    def __init__(self, run: Run, rules: Rules, baseline: Baseline | None, spent: Callable[[], bool]) -> None:
        self.run, self.rules, self.baseline, self.spent = run, rules, baseline, spent

    def look(self) -> tuple[Sample, Paired | None]:
        """Block after block until all images were seen, the time is up, or the model fails."""
        clean, fitted, _ = self.run.prepared()
        attacks = [attack for attack, _ in fitted]
        if self.baseline is not None:
            check_attacks(self.baseline, attacks)
        self.correct: Flags = np.equal(clean["label"], clean["prediction"])
        self.alive, self.seen = self.correct.copy(), np.zeros(len(self.correct), np.bool_)
        order, confidence = random_order(len(self.correct), self.run.seed), CERTAIN
        try:
            for number, (block, doubled) in enumerate(blocks(order, self.run.batch_size)):
                if self.failed(confidence):
                    break
                self.attack(number, block[self.correct[block]], attacks)
                self.seen[block], confidence = True, EARLY if doubled else CERTAIN
        except OutOfTimeError:
            pass  # what the unfinished block found does not count: its images are not a random part
        return self.state()

    def failed(self, confidence: float) -> bool:
        """Whether enough is known to stop."""
        sample, found = self.state()
        if confidence < CERTAIN:
            return decide(self.rules, sample, found, confidence) == "fail"
        most = sample.survived + sample.correct - sample.attacked
        limit = self.rules.min_robust
        return limit is not None and most < Fraction(str(limit)) * sample.count / 100

    def state(self) -> tuple[Sample, Paired | None]:
        sample = Sample(
            count=len(self.correct),
            correct=int(self.correct.sum()),
            seen=int(self.seen.sum()),
            attacked=int((self.seen & self.correct).sum()),
            survived=int((self.seen & self.alive).sum()),
        )
        if self.baseline is None:
            return sample, None
        return sample, paired(self.baseline.right[self.seen], self.alive[self.seen])

    def attack(self, number: int, rows: Rows, attacks: Sequence[Attack]) -> None:
        """All attacks on some images, each on what those before it left."""
        alive = rows
        for attack in attacks:
            for restart in range(attack.restarts):
                self.tick()
                left = Left(rows=alive, margins={}, total=len(self.correct), seed=self.run.seed)
                key, chosen = f"{number}.{attack.name}.{restart}", taken(attack, left)
                unit = self.run.unit(key, attack, restart, chosen, self.tick, alive)
                alive = alive[~np.isin(alive, unit.broken_rows)]
        self.alive[rows[~np.isin(rows, alive)]] = False

    def tick(self) -> None:
        if self.spent():
            raise OutOfTimeError
