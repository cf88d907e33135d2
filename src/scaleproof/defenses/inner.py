"""The inner problem of adversarial training: how the examples to train on are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol, get_args

from torch import Tensor

from scaleproof.defenses.terms import divergence_rows, squared_distance_rows
from scaleproof.losses import Objective, cosine_cross_entropy, cross_entropy, logits
from scaleproof.models.output import Output
from scaleproof.threat import Threat

Start = Literal["uniform", "normal", "signs", "none"]
Draw = Literal["uniform", "normal"]


class InnerObjective(Protocol):
    """What a training attack maximises: one value a row from an output, the labels and the clean output."""

    @property
    def name(self) -> str: ...

    @property
    def needs_features(self) -> bool: ...

    @property
    def needs_reference(self) -> bool: ...

    def __call__(self, output: Output, y: Tensor, reference: Output | None) -> Tensor: ...

    def with_cosines(self, scale: float) -> InnerObjective:
        """The scale-invariant objective that stands in for this one."""


@dataclass(frozen=True)
class Labelled:
    """An objective of the attacks: it looks at labels alone."""

    objective: Objective = cross_entropy
    needs_reference = False

    @property
    def name(self) -> str:
        return self.objective.name

    @property
    def needs_features(self) -> bool:
        return self.objective.needs_features

    def __call__(self, output: Output, y: Tensor, reference: Output | None) -> Tensor:
        return self.objective(output, y)

    def with_cosines(self, scale: float) -> Labelled:
        return Labelled(cosine_cross_entropy(scale))


@dataclass(frozen=True)
class Divergence:
    """KL between the probabilities at the clean image and here (TRADES)."""

    name = "divergence"
    needs_features = False
    needs_reference = True

    def __call__(self, output: Output, y: Tensor, reference: Output | None) -> Tensor:
        assert reference is not None
        return divergence_rows(logits(reference).detach(), logits(output))

    def with_cosines(self, scale: float) -> Labelled:
        return Labelled(cosine_cross_entropy(scale))


@dataclass(frozen=True)
class Guided:
    """An objective plus a weight times the squared distance from the clean probabilities (GAT)."""

    objective: Objective = cross_entropy
    weight: float = 10.0  # `Guidance` says which, step by step

    @property
    def needs_reference(self) -> bool:
        return self.weight > 0

    @property
    def name(self) -> str:
        return f"{self.objective.name} + squared distance"

    @property
    def needs_features(self) -> bool:
        return self.objective.needs_features

    def __call__(self, output: Output, y: Tensor, reference: Output | None) -> Tensor:
        value = self.objective(output, y)
        if not self.needs_reference:
            return value
        assert reference is not None
        return value + self.weight * squared_distance_rows(logits(reference).detach(), logits(output))

    def with_cosines(self, scale: float) -> Guided:
        return replace(self, objective=cosine_cross_entropy(scale))


class View(Protocol):
    """A model as a training attack sees it: outputs, and gradients of a value in the images."""

    def apart(self, work: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """`work` on these tensors; where rows do not depend on each other, perhaps on parts of them side by side."""

    def outputs(self, x: Tensor) -> Output: ...

    def gradient(self, value: Callable[[Output], Tensor], x: Tensor, *, features: bool) -> Tensor: ...

    def ascend(
        self, threat: Threat, current: Tensor, gradient: Tensor, clean: Tensor, stride: float
    ) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class Inner:
    """`steps` steps of `step_size` from a start, inside the ball of `threat`.

    Starts: `uniform` in the ball, `normal` with deviation `start_size`, `signs` of size `start_size`, or `none`.
    """

    threat: Threat
    objective: InnerObjective = Labelled()
    steps: int = 10
    step_size: float = 2 / 255
    start: Start = "uniform"
    start_size: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps of a training attack must be >= 1, got {self.steps}")
        if not 0 < self.step_size < float("inf"):
            raise ValueError(
                f"step_size of a training attack must be finite and > 0, got {self.step_size}: give one as 2/255"
            )
        if self.threat.norm == "linf" and self.step_size > 1:
            raise ValueError(
                f"step_size must be at most 1 under linf, pixels are in [0, 1], got {self.step_size:g}: did you mean "
                f"{self.step_size:g}/255?"
            )
        if self.start not in get_args(Start):
            raise ValueError(f"start must be one of {', '.join(get_args(Start))}, got {self.start!r}")
        if self.start_size < 0 or (self.start in ("normal", "signs")) != (self.start_size > 0):
            raise ValueError(f"start_size is for normal and signs, got {self.start_size} for {self.start!r}")

    @property
    def draws(self) -> tuple[Draw, ...]:
        """The random numbers that the start takes, one tensor like the images each."""
        own: dict[Start, tuple[Draw, ...]] = {"none": (), "normal": ("normal",), "signs": ("uniform",)}
        return own.get(self.start, self.threat.draws)

    def resized(self, share: float) -> Inner:
        """The same attack in a ball `share` times as large."""
        threat = replace(self.threat, eps=self.threat.eps * share)
        return replace(
            self, threat=threat, step_size=self.step_size * share, start_size=self.start_size * share
        )

    def started(self, x: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
        """Where the attack begins, within the pixel range."""
        if self.start == "none":
            return x
        if self.start == "normal":
            return (x + self.start_size * noise[0]).clamp(0, 1)
        if self.start == "signs":
            return (x + self.start_size * (2 * (noise[0] < 0.5).to(x.dtype) - 1)).clamp(0, 1)
        return self.threat.spread(x, noise[0])

    def perturb(self, view: View, x: Tensor, y: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
        """Adversarial examples of a batch."""
        return view.apart(partial(self.found, view), x, y, *noise)

    def found(self, view: View, x: Tensor, y: Tensor, *noise: Tensor) -> Tensor:
        reference = view.outputs(x) if self.objective.needs_reference else None
        current = self.started(x, noise)
        for _ in range(self.steps):
            gradient = view.gradient(
                lambda output: self.objective(output, y, reference),
                current,
                features=self.objective.needs_features,
            )
            current = view.ascend(self.threat, current, gradient, x, self.step_size)
        return current.detach()

    def describe(self) -> dict[str, object]:
        return {
            **vars(self.threat),
            "objective": self.objective.name,
            "steps": self.steps,
            "step_size": self.step_size,
            "start": self.start,
            "start_size": self.start_size,
        }
