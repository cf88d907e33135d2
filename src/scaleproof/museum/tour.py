"""A tour of the museum: what each exhibit seems to be, which checks fail on it, and what is left of it with the key."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from scaleproof.attacks.suites import suite
from scaleproof.checks import Check, examine, failed
from scaleproof.evaluator import evaluate
from scaleproof.images import Images
from scaleproof.models.classifier import Classifier
from scaleproof.museum.rooms import Key, Room
from scaleproof.threat import Threat

NAIVE = "pgd"  # what a hurried evaluation runs
WITH_KEY = "pgd-cw,pgd-std"


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One exhibit, before and after."""

    room: str
    words: str
    strength: float
    clean: float | None
    before: (
        float | None
    )  # what PGD on the cross entropy leaves; both are None where an evaluation refuses the model
    checks: tuple[Check, ...]
    caught_by: str
    key: str | None
    after: float | None  # robust accuracy with the key

    @property
    def caught(self) -> bool:
        """Whether the check whose business it is failed."""
        return self.caught_by in failed(self.checks)

    def as_json(self) -> dict[str, object]:
        found = {"caught": self.caught, "failed": list(failed(self.checks))}
        return {**vars(self), **found, "checks": [check.as_json() for check in self.checks]}


def visit(
    room: Room,
    strength: float,
    net: nn.Module,
    images: Images,
    threat: Threat,
    *,
    surrogate: Classifier | None = None,
    seed: int = 0,
) -> Visit:
    """Measure one exhibit as a hurried evaluation would, examine it, and open it."""
    exhibit = room.exhibit(net, strength)
    clean, before = naive(exhibit, images, threat, seed)
    return Visit(
        room=room.name,
        words=room.words,
        strength=strength,
        clean=clean,
        before=before,
        checks=examine(exhibit, images, threat, seed=seed, surrogate=surrogate),
        caught_by=room.caught_by,
        key=None if room.key is None else room.key.words,
        after=None if room.key is None else opened(room.key, exhibit, images, threat, seed),
    )


def naive(exhibit: nn.Module, images: Images, threat: Threat, seed: int) -> tuple[float | None, float | None]:
    """Clean accuracy and what one PGD leaves; an evaluation that refuses the model gives no number."""
    try:
        found = evaluate(exhibit, images, suite(NAIVE, threat), seed=seed, allow_train_mode=True)
    except ValueError:
        return None, None
    return found.clean.accuracy, found.robust().accuracy


def opened(key: Key, exhibit: nn.Module, images: Images, threat: Threat, seed: int) -> float:
    attacks = suite(WITH_KEY, threat)
    model = key.opened(exhibit)
    found = evaluate(
        model, images, attacks, mode="cascade", seed=seed, draws=key.draws, allow_train_mode=True
    )
    return found.robust().accuracy
