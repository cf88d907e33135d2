"""Progress: what an evaluation tells whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scaleproof.attacks.base import Attack


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where an evaluation stands: attack steps done, what runs now, images not yet broken."""

    done: int
    total: int
    label: str
    unbroken: int
    count: int


Report = Callable[[Progress], None]


class Meter:
    """Counts the steps of a run; a unit is its steps and a judgement. What is found done already is no work left."""

    def __init__(self, report: Report, count: int, unbroken: int) -> None:
        self.report, self.count, self.unbroken = report, count, unbroken
        self.done, self.total, self.unit_end, self.label = 0, 0, 0, ""
        self.unit_begin = 0

    def begin(self, label: str, steps: int) -> None:
        self.label, self.unit_begin, self.unit_end = label, self.done, self.done + steps
        self.tell()

    def tick(self) -> None:
        self.done += 1
        self.tell()

    def end(self, broken: int) -> None:
        if self.done == self.unit_begin:  # nobody took a step
            self.total -= self.unit_end - self.unit_begin
        else:
            self.done = self.unit_end
        self.unbroken -= broken
        self.tell()

    def tell(self) -> None:
        self.report(
            Progress(
                done=self.done, total=self.total, label=self.label, unbroken=self.unbroken, count=self.count
            )
        )


def chunk_label(attack: Attack, restart: int, chunk: int, chunks: int) -> str:
    """Which attack, target or restart, and part of the images is being worked on."""
    words = [attack.label]
    if attack.restarts > 1:
        targets = getattr(attack, "targets", None)
        words.append(f"target {restart + 1} of {targets}" if targets else f"restart {restart + 1}")
    if chunks > 1:
        words.append(f"part {chunk + 1} of {chunks}")
    return ", ".join(words)
