"""Learning-rate schedules: the share of the base rate at a moment of training, counted in epochs from 0."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol


class Schedule(Protocol):
    def share(self, moment: float, epochs: int) -> float:
        """What the base rate is multiplied with."""

    def rescaled(self, before: int, after: int) -> Schedule:
        """The same shape for another number of epochs."""

    def check(self, epochs: int) -> None:
        """Refuse a run that this schedule does not fit."""

    def told(self) -> str:
        """What it does, in a few words."""


@dataclass(frozen=True)
class Steps:
    """The rate is multiplied with `factor` at the start of each of these epochs, counted from 1."""

    epochs: tuple[int, ...]
    factor: float = 0.1

    def share(self, moment: float, epochs: int) -> float:
        return self.factor ** sum(moment + 1 >= epoch for epoch in self.epochs)

    def rescaled(self, before: int, after: int) -> Steps:
        """Every decay at its share of the run; where that would lose some, each at the nearest start of an epoch.

        Decays that fall together there multiply; a run of one epoch has no room for any.
        """
        moved = tuple(epoch * after // before for epoch in self.epochs)
        if len(set(moved)) < len(self.epochs) or min(moved, default=2) < 2:
            nearest = (1 + (2 * (epoch - 1) * after + before) // (2 * before) for epoch in self.epochs)
            moved = tuple(max(2, min(after, epoch)) for epoch in nearest) if after > 1 else ()
        return replace(self, epochs=moved)

    def told(self) -> str:
        if not self.epochs:
            return "no decays"
        times = {epoch: self.epochs.count(epoch) for epoch in self.epochs}
        words = [f"{epoch}{'' if count == 1 else f' ({count} at once)'}" for epoch, count in times.items()]
        several = ", ".join(words[:-1]) + " and " if words[1:] else ""
        return f"decay{'s' if len(self.epochs) > 1 else ''} at {several}{words[-1]}"

    def check(self, epochs: int) -> None:
        if list(self.epochs) != sorted(self.epochs) or min(self.epochs, default=1) < 1:
            raise ValueError(f"decays must come in order and from epoch 1 on, got {self.epochs}")
        if max(self.epochs, default=0) > epochs:
            raise ValueError(
                f"the schedule is longer than the run: decays at epochs {self.epochs}, but {epochs} epochs: give "
                f"decays up to epoch {epochs}, or none, and let those of the recipe move along (--epochs without "
                "--decays; TrainConfig.lasting(epochs) in Python)"
            )


@dataclass(frozen=True)
class Cyclic:
    """A straight line from zero up to the base rate at `peak` (a share of the run) and down to zero at the end."""

    peak: float = 0.5

    def share(self, moment: float, epochs: int) -> float:
        progress = moment / epochs
        if progress < self.peak:
            return progress / self.peak
        return max(0.0, (1 - progress) / (1 - self.peak))

    def rescaled(self, before: int, after: int) -> Cyclic:
        return self

    def told(self) -> str:
        return f"the rate rises for {100 * self.peak:g}% of the run and then falls to zero"

    def check(self, epochs: int) -> None:
        if not 0 <= self.peak < 1:
            raise ValueError(f"the peak of a cyclic schedule must be in [0, 1), got {self.peak}")


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from the base rate to zero, after `warm_up` epochs of a straight line."""

    warm_up: float = 0.0

    def share(self, moment: float, epochs: int) -> float:
        if moment < self.warm_up:
            return moment / self.warm_up
        return 0.5 * (1 + math.cos(math.pi * (moment - self.warm_up) / (epochs - self.warm_up)))

    def rescaled(self, before: int, after: int) -> Cosine:
        return replace(self, warm_up=self.warm_up * after / before)

    def told(self) -> str:
        return "the rate falls to zero along a cosine"

    def check(self, epochs: int) -> None:
        if not 0 <= self.warm_up < epochs:
            raise ValueError(
                f"the schedule is longer than the run: a warm-up of {self.warm_up:g} epochs, but {epochs} epochs"
            )
