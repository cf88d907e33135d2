"""Oracles: one model in several number formats, as coarse as each attack's search bears."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor

from scaleproof.attacks.base import Attack, Format
from scaleproof.attacks.loop import Packing
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng

FORMATS = get_args(Format)
PAIRS_ERROR = 0.1  # of difference quotients that an attack is given
PAIRS_IMAGES, PAIRS_SIGNS = 4, 8  # that are looked at


class Oracles:
    """The main oracle, and finer ones for searches that its rounding would drown, made when they are first needed."""

    def __init__(self, main: Oracle) -> None:
        self.main = main
        self.finer: dict[Format, Oracle] = {}
        self.paired: dict[float, bool] = {}  # by step: whether differences come in pairs from the main one
        self.refused: set[Format] = set()  # formats whose range this network leaves
        self.said: list[str] = []

    def look(self, attacks: Iterable[Attack], x: Tensor) -> None:
        """Choose for these attacks, after a look at how well pairs do on some images of this network."""
        for attack in attacks:
            step = getattr(attack, "pairs_over", None)
            possible = self.main.choice.pairs is not None and self.main.draws == 1
            if step is not None and step not in self.paired and possible:
                error = pairs_error(self.main, x, step)
                self.paired[step] = error <= PAIRS_ERROR  # not where it is NaN: float16 ends at 65504
                self.said.append(
                    "differences in fp16, held apart from their middle"
                    if self.paired[step]
                    else f"differences in fp16 are {100 * error:.0f}% off here: float32 in their place"
                )
            oracle = self.suited(attack)
            coarse = oracle is not self.main and oracle.format == "fp16"
            if coarse and not bool(oracle.logits(x).isfinite().all()):
                self.refused.add("fp16")
                self.said.append("this network leaves the range of fp16: TF32 in its place")

    def suited(self, attack: Attack) -> Oracle:
        main, step = self.main, getattr(attack, "pairs_over", None)
        if step is not None and self.paired.get(step, False):
            return main
        fine = "tf32" if attack.coarsest in self.refused else attack.coarsest
        if fine in ("fp16", "tf32") and main.device.type == "cpu":
            fine = "float32"
        if FORMATS.index(fine) <= FORMATS.index(main.format):
            return main
        if fine not in self.finer:
            speed = replace(main.speed, precision=fine)
            self.finer[fine] = Oracle(main.classifier, speed=speed, draws=main.draws, images=main.images)
            self.finer[fine].width = main.width
        return self.finer[fine]

    def describe(self) -> dict[str, object]:
        """What was chosen, with what the finer ones have to say."""
        notes = [*self.main.notes, *dict.fromkeys(self.said)]
        for oracle in self.finer.values():
            notes.append(f"searches that need finer numbers: {oracle.choice.precision}")
            notes += [] if oracle.graphs is None else oracle.graphs.notes
        return {**self.main.describe(), "notes": notes}

    def packing(self, batch: int) -> Packing:
        """The batch sizes to run: a graph is made for each of them, and torch compiles for each, which takes longer."""
        pad = self.main.graphs is not None
        return Packing(batch, pad, parts=8) if self.main.choice.compiled else Packing(batch, pad)


def pairs_error(oracle: Oracle, x: Tensor, step: float) -> float:
    """How far differences of the logits in pairs are from those of the classifier in float32, relatively."""
    x = x[:PAIRS_IMAGES].to(oracle.device)
    chance = Rng(0, "pairs").uniform(torch.arange(len(x)), (PAIRS_SIGNS, *x.shape[1:]))
    signs = torch.where(chance < 0.5, -1.0, 1.0).to(x)
    ahead, behind = oracle.both_sides(x, signs, step)
    above, below = (oracle.judge((x[:, None] + side * signs).flatten(0, 1)) for side in (step, -step))
    exact = above - below
    return float((ahead - behind - exact).norm() / exact.norm().clamp_min(torch.finfo(exact.dtype).tiny))
