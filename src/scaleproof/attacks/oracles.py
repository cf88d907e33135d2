"""Oracles: one model in several number formats, as coarse as each attack's search bears."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from scaleproof.attacks.base import Attack, Format
from scaleproof.attacks.loop import Packing
from scaleproof.oracle import Oracle

FORMATS = get_args(Format)


class Oracles:
    """The main oracle, and finer ones for searches that its rounding would drown, made when they are first needed."""

    def __init__(self, main: Oracle) -> None:
        self.main = main
        self.finer: dict[Format, Oracle] = {}

    def suited(self, attack: Attack) -> Oracle:
        fine = attack.coarsest
        if getattr(attack, "in_pairs", False) and self.main.choice.pairs is not None:
            return self.main
        if fine in ("fp16", "tf32") and self.main.device.type == "cpu":
            fine = "float32"
        if FORMATS.index(fine) <= FORMATS.index(self.main.format):
            return self.main
        if fine not in self.finer:
            speed = replace(self.main.speed, precision=fine)
            self.finer[fine] = Oracle(self.main.classifier, speed=speed, draws=self.main.draws)
            self.finer[fine].width = self.main.width
        return self.finer[fine]

    def describe(self) -> dict[str, object]:
        """What was chosen, with what the finer ones have to say."""
        notes = list(self.main.notes)
        for oracle in self.finer.values():
            notes.append(f"searches that need finer numbers: {oracle.choice.precision}")
            notes += [] if oracle.graphs is None else oracle.graphs.notes
        return {**self.main.describe(), "notes": notes}

    def packing(self, batch: int) -> Packing:
        """The batch sizes to run: graphs want few of them, and torch compiles fewer still."""
        pad = self.main.graphs is not None
        return Packing(batch, pad, parts=8) if self.main.choice.compiled else Packing(batch, pad)
