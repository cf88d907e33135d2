"""TrainConfig: how a network is trained, apart from the defense; checked when it is made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Literal, Self, get_args

from scaleproof.training.schedule import Schedule, Steps

Guard = Literal["off", "stop", "rollback"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """SGD with momentum on `epochs` passes over the training images, weight decay on all parameters.

    `validation` images are held out to select a checkpoint; `average` is the decay of a running mean of the weights;
    `eps_warm_up` epochs raise eps in equal parts to its full size; `guard` says what happens when the accuracy under
    PGD on the held-out images falls by more than `guard_drop` points below its best, or to next to nothing
    (`collapse.py`).
    """

    epochs: int = 120
    batch_size: int = 128
    rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Schedule = Steps((75, 90, 100))
    eps_warm_up: int = 0
    average: float | None = None
    augment: bool = True
    validation: int = 1000
    probe_steps: int = 10
    probe_every: int = 1
    test_probe: int = 1000
    guard: Guard = "off"
    guard_drop: float = 20.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (
            ("epochs", 1), ("batch_size", 1), ("validation", 0), ("eps_warm_up", 0), ("probe_steps", 1),
            ("probe_every", 1), ("test_probe", 0), ("seed", 0),
        ):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number >= {least}, got {value}")
        for name in ("rate", "momentum", "weight_decay", "guard_drop"):
            if not isinstance(getattr(self, name), Real):  # numpy's numbers, too
                raise ValueError(f"{name} must be a number, got {getattr(self, name)!r}")
        if not 0 < self.rate < float("inf"):
            raise ValueError(
                f"rate must be finite and > 0, got {self.rate}: a larger one, as 0.1; nothing is learned at 0"
            )
        for name in ("momentum", "weight_decay", "guard_drop"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be finite and >= 0, got {getattr(self, name)}")
        if self.average is not None and not 0 < self.average < 1:
            raise ValueError(f"average must be between 0 and 1, got {self.average}")
        if self.guard not in get_args(Guard):
            raise ValueError(f"guard must be one of {', '.join(get_args(Guard))}, got {self.guard!r}")
        if self.eps_warm_up > self.epochs:
            raise ValueError(
                f"the warm-up of eps is longer than the run: {self.eps_warm_up} of {self.epochs} epochs; give "
                f"{self.epochs} at most, the last one of them has all of eps"
            )
        self.schedule.check(self.epochs)

    def rate_at(self, moment: float) -> float:
        """The learning rate at a moment, in epochs from 0."""
        return self.rate * self.schedule.share(moment, self.epochs)

    def eps_share(self, epoch: int) -> float:
        """The share of eps in force in an epoch, counted from 0."""
        return min(1.0, (epoch + 1) / self.eps_warm_up) if self.eps_warm_up else 1.0

    def lasting(self, epochs: int) -> Self:
        """The same training in another number of epochs: what the schedule says moves along."""
        least = min(
            self.eps_warm_up, 2
        )  # a short run warms up, too; the last epoch of a warm-up has the full size
        warm_up = max(self.eps_warm_up * epochs // self.epochs, least) if epochs > 2 else 0
        schedule = self.schedule.rescaled(self.epochs, epochs)
        return replace(self, epochs=epochs, schedule=schedule, eps_warm_up=warm_up)

    def place(self, epochs: int, number: int) -> int:
        """Which epoch of the same training of `epochs` epochs comes where `number` (from 1) does in this one.

        That of its decay, where it begins with one; a run too short for decays ends before it, and the first epoch
        stays the first.
        """
        if number <= 1:
            return number
        decays = self.schedule if isinstance(self.schedule, Steps) else Steps(())
        if number not in decays.epochs:
            decays = Steps((number,))
        moved = decays.rescaled(self.epochs, epochs).epochs
        return moved[decays.epochs.index(number)] if moved and number <= self.epochs else epochs + 1

    def describe(self) -> dict[str, object]:
        return {
            **asdict(self),
            "schedule": {"kind": type(self.schedule).__name__.lower(), **vars(self.schedule)},
        }
