"""An examination: questions one by one, each answer told, and kept where a later one can take it up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from scaleproof.checks.subject import Subject
from scaleproof.diagnosis import Check, not_asked
from scaleproof.look import FIRST_LOOK, fingerprint, rounded
from scaleproof.models.architectures import weights_digest
from scaleproof.rng import random_state_kept
from scaleproof.store import UnitStore

ERRORS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)  # what a model may raise
Question = Callable[[Subject], Check | Sequence[Check]]


@dataclass(frozen=True, kw_only=True)
class Examining:
    """Where an examination stands: the question, how many there are, attack steps taken for it, what failed so far."""

    name: str
    number: int
    total: int
    steps: int
    failed: tuple[Check, ...]


Watch = Callable[[Examining], None]


class Examination:
    """Questions to one subject."""

    def __init__(
        self, subject: Subject, total: int, store: UnitStore | None = None, progress: Watch | None = None
    ) -> None:
        self.subject, self.total, self.store, self.progress = subject, total, store, progress
        self.number, self.steps, self.name = 0, 0, ""
        self.failed: tuple[Check, ...] = ()
        self.mark = "" if store is None else mark(subject)
        subject.tick = self.tick

    def ask(self, question: Question) -> list[Check]:
        """The answer that is kept, or a new one."""
        self.name, self.steps = question.__name__.replace("_checks", "s").replace("_", "-"), 0
        self.number += 1
        checks = self.kept()
        if checks is None:
            self.tell()
            checks = asked(question, self.name, self.subject)
            self.keep(checks)
        self.failed += tuple(check for check in checks if check.passed is False)
        return checks

    def keep(self, checks: list[Check]) -> None:
        if self.store is not None:
            words = json.dumps([check.as_json() for check in checks])
            self.store.save(self.name, {"mark": np.array(self.mark), "checks": np.array(words)})

    def kept(self) -> list[Check] | None:
        """What an earlier examination of the same model, images and settings answered."""
        stored = None if self.store is None else self.store.load(self.name)
        if stored is None or set(stored) != {"mark", "checks"} or str(stored["mark"]) != self.mark:
            return None
        return [Check(**check) for check in json.loads(str(stored["checks"]))]

    def tick(self) -> None:
        self.steps += 1
        self.tell()

    def tell(self) -> None:
        if self.progress is not None:
            at = Examining(
                name=self.name, number=self.number, total=self.total, steps=self.steps, failed=self.failed
            )
            self.progress(at)


def asked(question: Question, name: str, subject: Subject) -> list[Check]:
    """The checks of a question; one that the model answers with an error could not be asked."""
    try:
        found = question(subject)
    except ERRORS as error:
        advice = "Look at the error; give a smaller --batch-size."
        return [not_asked(name, name.capitalize(), in_words(error), advice)]
    return [found] if isinstance(found, Check) else list(found)


def in_words(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"The model raised {type(error).__name__}{': ' + text[0] if text else ''}."


def mark(subject: Subject) -> str:
    """All that the answers depend on, so that a store never answers for another model or other images."""
    x, other = subject.all_x[:FIRST_LOOK], subject.surrogate
    with random_state_kept(x.device):
        torch.manual_seed(0)
        look = rounded(subject.classifier, subject.oracle.judge(x))
    pixels = hashlib.sha256()
    for tensor in (subject.all_x, subject.all_y):
        pixels.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    settings = [vars(subject.threat), subject.seed, pixels.hexdigest(), subject.classes, subject.invariant]
    settings.append(None if other is None else weights_digest(other))
    return fingerprint(subject.oracle, (), settings, look).digest
