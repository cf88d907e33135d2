"""What a run folder holds, as frozen records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from scaleproof.report.analysis.records import Analysis
    from scaleproof.report.training.records import Training

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Share:
    """Images classified correctly, out of how many, with a 95% Wilson interval."""

    correct: int
    count: int
    accuracy: float
    interval: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a run came from: everything in run.json."""

    kind: str
    name: str
    created: str
    command: str
    seed: int
    commit: str | None
    versions: Mapping[str, str]
    device: str
    device_name: str
    threads: int
    settings: Mapping[str, object]
    settings_sha256: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Model:
    """The classifier that was measured."""

    spec: str
    architecture: str
    parameters: int
    weights_sha256: str
    head: str | None


@dataclass(frozen=True, kw_only=True)
class Data:
    """The images that it was measured on."""

    name: str
    split: str
    count: int
    classes: tuple[str, ...]
    sha256: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Threat:
    """The set of perturbations that the attacker may use."""

    norm: str
    eps: float


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack with its verdict and its cost."""

    name: str
    label: str
    settings: Mapping[str, object]
    restarts: int
    attacked: int
    robust_one_restart: Share
    robust: Share
    forwards: int
    backwards: int
    seconds: float
    image_steps_per_second: float
    scale_invariant: bool
    cosine_mismatch: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A remark of the diagnosis on how far the verdict can be trusted."""

    name: str
    severity: str
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Check:
    """One examination of a number: whether it passed (None where it was skipped), and what to do."""

    name: str
    label: str
    passed: bool | None
    value: float | None
    limit: float | None
    meaning: str
    advice: str


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How the attacks were executed."""

    precision: str
    folded: bool
    graph: bool
    compiled: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Accuracies to be expected of a randomised model, over some draws."""

    draws: int
    clean: float
    worst_case: float


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Everything in evaluation.json."""

    model: Model
    data: Data
    threat: Threat
    mode: str
    clean: Share
    attacks: tuple[Attack, ...]
    worst_case: Share
    findings: tuple[Finding, ...]
    speed: Speed
    reliable: bool | None = None
    checks: tuple[Check, ...] | None = None
    expected: Expected | None = None


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """One attack at one scale of the logits."""

    alpha: float
    attack: str
    label: str
    scale_invariant: bool
    robust: Share
    gradient_size: float
    zero_gradients: float
    digest: str


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Everything in sweep.json."""

    model: Model
    data: Data
    threat: Threat
    alphas: tuple[float, ...]
    clean: Share
    rows: tuple[SweepRow, ...]
    identical: Mapping[str, bool]
    cosine_mismatch: float | None


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """Per-image verdicts: which images each attack broke at each restart, and by how much it moved them."""

    labels: Array
    clean_correct: Flags
    broken: Mapping[str, Flags]
    size: Mapping[str, Array]
    attacked: Mapping[str, Flags]
    margin: Mapping[str, Array]
    prediction: Mapping[str, Array]
    clean_prediction: Array | None


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """A few images with their adversarial examples."""

    clean: Array
    perturbed: Array
    label: Array
    clean_prediction: Array
    prediction: Array
    attack: Array
    index: Array


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run folder that was read and found valid."""

    run: Provenance
    evaluation: Evaluation | None
    sweep: Sweep | None
    verdicts: Verdicts | None
    gallery: Gallery | None
    training: "Training | None" = None
    analysis: "Analysis | None" = None
