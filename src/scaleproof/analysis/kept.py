"""Finished pieces of an analysis, and progress over several of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from scaleproof.progress import Progress, Report
from scaleproof.store import Arrays, UnitStore


@dataclass(frozen=True)
class Kept:
    """A store of pieces that all carry one mark, and the seconds that each took."""

    store: UnitStore
    mark: str

    def get(self, key: str, work: Callable[[], Arrays]) -> Arrays:
        """A finished piece from the store, or the work done now and stored."""
        stored = self.store.load(key)
        if stored is not None and str(stored.get("fingerprint")) != self.mark:
            raise ValueError(
                "the store holds pieces of another analysis (model, images, seed or plan): give an empty one"
            )
        if stored is not None:
            return stored
        began = time.perf_counter()
        arrays = {**work(), "fingerprint": np.array(self.mark)}
        arrays["seconds"] = np.array(time.perf_counter() - began)
        self.store.save(key, arrays)
        return arrays


def seconds_of(pieces: list[Arrays]) -> float:
    return float(sum(float(piece["seconds"]) for piece in pieces))


def silent(_: Progress) -> None:
    """Tell nobody."""


class Course:
    """Progress of several pieces as progress of the whole; a piece counts for its share of the work."""

    def __init__(self, report: Report, shares: Mapping[str, int]) -> None:
        self.report, self.shares = report, dict(shares)

    def piece(self, name: str, label: str | None = None) -> Report:
        """Where one piece reports to, under a label of its own where its name is none for people."""
        names = list(self.shares)
        before = sum(self.shares[other] for other in names[: names.index(name)])
        share, total = self.shares[name], sum(self.shares.values())

        def tell(at: Progress) -> None:
            done = before + round(share * at.done / max(at.total, 1))
            self.report(replace(at, done=done, total=total, label=f"{label or name}, {at.label}"))

        return tell


def step(report: Report, done: int, total: int, label: str) -> None:
    """Report work that breaks no images."""
    report(Progress(done=done, total=total, label=label, unbroken=1, count=1))
