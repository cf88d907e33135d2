"""What training.json says, read and found valid."""

from collections.abc import Mapping
from dataclasses import dataclass

from scaleproof.report.records import Data, Evaluation, Threat


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A probe after an epoch: accuracies in percent, means over its images, and how many gradients are 0."""

    clean: float
    pgd: float
    feature_norm: float
    true_cosine: float
    zero_gradients: float


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One epoch of a training: its loss and what was measured after it."""

    number: int
    rate: float
    loss: float
    terms: Mapping[str, float]
    train_accuracy: float
    weight_norm: float
    validation: Standing | None
    test: Standing | None
    guard: str | None
    seconds: float
    images_per_second: float


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One set of weights of a training, attacked on the test images."""

    kind: str
    epoch: int
    file: str
    evaluation: Evaluation


@dataclass(frozen=True, kw_only=True)
class BatchNorm:
    """Which statistics the training attack uses, and which passes move the running ones."""

    attack: str
    attack_updates: bool
    updates: str


@dataclass(frozen=True, kw_only=True)
class Config:
    """How the network was trained, apart from the defense."""

    epochs: int
    rate: float
    schedule: str
    probe_steps: int
    test_probe: int
    guard: str
    guard_drop: float
    averaged: bool
    settings: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Training:
    """Everything in training.json."""

    label: str
    recipe: str
    recipe_source: str
    defense: Mapping[str, object]
    batch_norm: BatchNorm
    config: Config
    architecture: str
    parameters: int
    data: Data
    test: Data
    threat: Threat
    held_out: int
    precision: str
    attack_precision: str | None
    folded: bool  # the weights that the training attack saw
    graph: bool
    notes: tuple[str, ...]
    history: tuple[Epoch, ...]
    selected: Checkpoint
    last: Checkpoint
    leaking: Checkpoint | None
    stopped: str | None
