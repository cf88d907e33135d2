"""What a defense is: a frozen description that turns a batch into named loss terms, and nothing about loops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol, Self, get_args

from torch import Tensor

from scaleproof.defenses import terms
from scaleproof.defenses.inner import Draw, Inner, View
from scaleproof.losses import logits, positive
from scaleproof.models.output import Output
from scaleproof.threat import Threat

Mode = Literal["eval", "train"]
Role = Literal["clean", "adversarial"]
Updates = Literal["all", "clean", "adversarial"]
EIGHT = Threat(eps=8 / 255)


@dataclass(frozen=True, kw_only=True)
class BatchNormPolicy:
    """Which statistics the training attack uses, and which passes move the running ones."""

    attack: Mode = "eval"
    attack_updates: bool = False  # only in train mode can the attack's passes move them
    updates: Updates = "all"  # of the outer passes

    def __post_init__(self) -> None:
        for name, value, words in (
            ("attack", self.attack, get_args(Mode)),
            ("updates", self.updates, get_args(Updates)),
        ):
            if value not in words:
                raise ValueError(f"batch norm {name} must be one of {', '.join(words)}, got {value!r}")
        if self.attack_updates and self.attack == "eval":
            raise ValueError("the attack's passes update statistics in train mode only: give attack='train'")


def check_weights(**weights: float) -> None:
    """Factors of loss terms are finite and not negative."""
    for name, value in weights.items():
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name} must be finite and >= 0, got {value}")


def check_margin(margin: float) -> None:
    """Cosines differ by at most 2, so no true class could ever win by a larger margin."""
    if not 0 <= margin < 2:
        raise ValueError(
            f"a margin on cosines must be at least 0 and below 2, for cosines differ by at most 2, got {margin}: "
            "give a smaller one, as 0.2"
        )


@dataclass(frozen=True, kw_only=True)
class Margin:
    """The outer half of SI: `weight` times CE^m of the adversarial examples."""

    scale: float = 15.0
    margin: float = 0.2
    weight: float = 0.2

    def __post_init__(self) -> None:
        positive(self.scale)
        check_margin(self.margin)
        check_weights(weight=self.weight)

    def term(self, output: Output, y: Tensor) -> Tensor:
        value = terms.margin_cross_entropy(output.cosines, y, scale=self.scale, margin=self.margin)
        return self.weight * value


@dataclass(frozen=True)
class Batch:
    """Images in [0, 1] after augmentation, labels, and the random numbers of this step."""

    x: Tensor
    y: Tensor
    noise: tuple[Tensor, ...] = ()
    first: int = 0  # row of the whole batch at which this process's part begins


Memory = Mapping[str, Tensor]  # what persists from step to step, updated in place


class Learner(Protocol):
    """What a defense may ask of the model."""

    def outputs(self, x: Tensor, role: Role) -> Output:
        """An outer pass: train mode, gradients reach the weights."""

    def attacking(self) -> AbstractContextManager[View]:
        """The model as the training attack sees it, under the BatchNorm policy."""

    def gradient_graph(self, inner: Inner, x: Tensor, y: Tensor, *, keep: bool) -> Tensor:
        """The gradient of the inner objective in x in the attack's mode; `keep` makes it differentiable itself."""


@dataclass(frozen=True)
class Outcome:
    """Named scalars whose sum is the loss, the output they are about, and a leaf whose gradient is wanted."""

    terms: dict[str, Tensor]
    output: Output
    leaf: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Defense(ABC):
    """Fields that every defense has; each method is one subclass in its own file."""

    inner: Inner | None = None
    margin: Margin | None = None  # the outer half of SI
    label_margin: float = 0.0  # taken off the true logit: the loss of hypersphere embedding
    batch_norm: BatchNormPolicy = field(default_factory=BatchNormPolicy)

    name: ClassVar[str]
    label: ClassVar[str]
    single_step: ClassVar[bool] = False

    @property
    def replays(self) -> int:
        """How often a batch is trained on before the next one comes."""
        return 1

    @property
    def draws(self) -> tuple[Draw, ...]:
        """The random numbers of one step."""
        return () if self.inner is None else self.inner.draws

    @property
    def ball(self) -> Threat | None:
        """What it trains against; standard training is measured against it."""
        return None if self.inner is None else self.inner.threat

    @property
    def folds(self) -> bool:
        """Whether the attack sees a network in eval mode that stands still, and so may be folded."""
        return self.inner is not None and self.batch_norm.attack == "eval"

    def at(self, epoch: int, step: int) -> Self:
        """This defense as it is in one step of an epoch, both counted from 0; most never change."""
        return self

    def stretched(self, place: Callable[[int], int]) -> Self:
        """The same defense for a run of another length, where the epoch that was number n (from 1) is `place(n)`."""
        return self

    def resized(self, share: float) -> Self:
        """The same defense against a ball `share` times as large, for a warm-up."""
        return self if self.inner is None else replace(self, inner=self.inner.resized(share))

    def new_memory(self, images: Tensor) -> dict[str, Tensor]:
        """What persists, for batches of at most this shape."""
        return {}

    @abstractmethod
    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome: ...

    def remember(self, outcome: Outcome, batch: Batch, memory: Memory) -> None:  # noqa: B027 - most remember nothing
        """After the backward pass: update what persists, in place."""

    def adversarial(self, learner: Learner, batch: Batch) -> Tensor:
        if self.inner is None:
            raise ValueError(
                f"adversarial examples need a training attack, {type(self).__name__} has none: "
                "give it inner=Inner(threat=...)"
            )
        with learner.attacking() as view:
            return self.inner.perturb(view, batch.x, batch.y, batch.noise)

    def classified(self, output: Output, y: Tensor) -> Tensor:
        return terms.cross_entropy(logits(output), y, margin=self.label_margin)

    def finished(self, found: dict[str, Tensor], output: Output, y: Tensor) -> Outcome:
        """The method's own terms, and SI's margin term where it is on."""
        if self.margin is not None and self.margin.weight > 0:
            found = {**found, "margin": self.margin.term(output, y)}
        return Outcome(found, output)

    def describe(self) -> dict[str, object]:
        """All settings, as plain data."""
        own: dict[str, Any] = {
            key: value for key, value in vars(self).items() if key not in ("inner", "margin", "batch_norm")
        }
        own = {key: vars(value) if isinstance(value, Threat) else value for key, value in own.items()}
        return {
            "defense": self.name,
            **own,
            "inner": None if self.inner is None else self.inner.describe(),
            "margin": None if self.margin is None else asdict(self.margin),
            "batch_norm": asdict(self.batch_norm),
        }
