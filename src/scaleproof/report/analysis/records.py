"""What analysis.json and analysis.npz hold, as frozen records."""

from collections.abc import Mapping
from dataclasses import dataclass

from scaleproof.report.records import Array, Data, Model, Provenance, Share, Threat


@dataclass(frozen=True, kw_only=True)
class Surfaces:
    """Losses (n, P, P) around n images, along the PGD direction (second index) and a random one (third)."""

    steps: int
    coordinates: tuple[float, ...]
    rows: tuple[int, ...]
    labels: tuple[int, ...]
    losses: Mapping[str, Array]
    margin: Array


@dataclass(frozen=True, kw_only=True)
class WeightSurface:
    """Mean loss and accuracy, clean and adversarial, along directions of the weights (D, P)."""

    steps: int
    amounts: tuple[float, ...]
    count: int
    loss: Mapping[str, Array]
    accuracy: Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class Cosines:
    """Histograms of cosines on clean and adversarial images, of the true class and the best other."""

    steps: int
    edges: tuple[float, ...]
    count: int
    counts: Mapping[str, tuple[int, ...]]
    all_classes: Mapping[
        str, tuple[int, ...]
    ]  # of every class of every image; empty in runs that did not keep it
    means: Mapping[str, float]
    mismatch: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Point:
    """What an attack leaves at one place of a curve, alone and together with the places before."""

    at: float
    robust: Share
    within: Share


@dataclass(frozen=True, kw_only=True)
class Line:
    """One attack along a curve."""

    attack: str
    label: str
    scale_invariant: bool
    points: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True)
class EpsCurve:
    """Accuracy against the size of the perturbation."""

    steps: int
    clean: Share
    unbounded: float
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class StepCurve:
    """Accuracy against the number of steps, and against the number of restarts."""

    restart_steps: int
    clean: Share
    steps: tuple[Line, ...]
    restarts: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class Classes:
    """Images of each true class (row) by what they are taken for under attack (column)."""

    count: int
    attacks: tuple[str, ...]
    source: str
    confusion: Array
    clean_correct: Array


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Everything in analysis.json and analysis.npz."""

    run: Provenance
    model: Model
    data: Data
    threat: Threat
    count: int
    notes: tuple[str, ...]
    surfaces: Surfaces | None
    weights: WeightSurface | None
    cosines: Cosines | None
    eps: EpsCurve | None
    steps: StepCurve | None
    classes: Classes | None
