"""The logit-scale sweep of the paper's Figure 1: verdicts against the scale of the logits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from scaleproof.attacks.base import Attack
from scaleproof.attacks.pgd import PGD
from scaleproof.attacks.suites import AnyAttacks, as_attacks
from scaleproof.evaluation import AttackResult, Evaluation, Share
from scaleproof.evaluator import evaluate
from scaleproof.images import AnyImages, Images, as_images, spans
from scaleproof.models.classifier import AnyModel, Classifier, as_classifier
from scaleproof.oracle import Oracle
from scaleproof.progress import Report
from scaleproof.rng import Rng
from scaleproof.speed import PLAIN, Speed
from scaleproof.store import MemoryStore, UnitStore

ALPHAS = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
GRADIENT_IMAGES = 256
GRADIENT_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """One attack on the model whose logits are multiplied by alpha."""

    alpha: float
    attack: str
    label: str
    scale_invariant: bool
    robust: Share
    gradient_size: float  # mean L1 norm of the objective's gradient at the clean images, in float32
    zero_gradients: float  # share of that gradient's entries that are exactly zero
    digest: str  # of all adversarial examples

    def as_json(self) -> dict[str, object]:
        return {**vars(self), "robust": self.robust.as_json()}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Robust accuracy against the scale of the logits, although no decision changes."""

    alphas: tuple[float, ...]
    clean: Share
    rows: tuple[SweepRow, ...]
    cosine_mismatch: float | None
    head: str | None
    seconds: float

    def of(self, attack: str) -> list[SweepRow]:
        return [row for row in self.rows if row.attack == attack]

    @property
    def identical(self) -> dict[str, bool]:
        """Whether an attack's examples are bit for bit the same at every scale."""
        names = dict.fromkeys(row.attack for row in self.rows)
        return {name: len({row.digest for row in self.of(name)}) == 1 for name in names}

    def swing(self, attack: str) -> float:
        """Largest minus smallest robust accuracy over the scales."""
        values = [row.robust.accuracy for row in self.of(attack)]
        return max(values) - min(values)

    def as_json(self) -> dict[str, object]:
        return {
            "alphas": list(self.alphas),
            "clean": self.clean.as_json(),
            "rows": [row.as_json() for row in self.rows],
            "identical": self.identical,
            "cosine_mismatch": self.cosine_mismatch,
        }


def scale_sweep(
    model: AnyModel,
    images: AnyImages,
    attacks: AnyAttacks = "paper",
    *,
    alphas: Sequence[float] = ALPHAS,
    seed: int = 0,
    batch_size: int | None = None,
    speed: Speed | None = None,
    store: UnitStore | None = None,
    progress: Report | None = None,
    allow_train_mode: bool = False,
) -> Sweep:
    """Attack h = f(alpha g) for each alpha: the same decisions, other logits."""
    checked_alphas(alphas)
    classifier, source, store = as_classifier(model), as_images(images), store or MemoryStore()
    chosen = sweepable(as_attacks(attacks))
    rows: list[SweepRow] = []
    evaluations: list[Evaluation] = []
    for number, alpha in enumerate(alphas):
        scaled = classifier.rescaled(alpha)
        report = shifted(progress, number, len(alphas), alpha)
        evaluation = evaluate(
            scaled,
            source,
            chosen,
            mode="independent",
            seed=seed,
            batch_size=batch_size,
            speed=speed,
            store=store.part(f"alpha-{alpha!r}"),
            progress=report,
            allow_train_mode=allow_train_mode,
        )
        evaluations.append(evaluation)
        rows += [sweep_row(scaled, source, alpha, attack, evaluation) for attack in chosen]
    return Sweep(
        alphas=tuple(alphas),
        clean=evaluations[0].clean,
        rows=tuple(rows),
        cosine_mismatch=evaluations[0].cosine_mismatch,
        head=evaluations[0].head,
        seconds=sum(evaluation.seconds for evaluation in evaluations),
    )


def shifted(progress: Report | None, number: int, parts: int, alpha: float) -> Report | None:
    """Progress of one part of several, as progress of the whole."""
    if progress is None:
        return None
    return lambda at: progress(
        replace(
            at, done=at.done + number * at.total, total=at.total * parts, label=f"alpha {alpha:g}, {at.label}"
        )
    )


def sweep_row(
    classifier: Classifier, images: Images, alpha: float, attack: PGD, evaluation: Evaluation
) -> SweepRow:
    result = next(result for result in evaluation.attacks if result.name == attack.name)
    size, zeros = gradient_health(classifier, images, attack)
    return SweepRow(
        alpha=alpha,
        attack=attack.name,
        label=attack.label,
        scale_invariant=attack.scale_invariant,
        robust=evaluation.robust(attack.name),
        gradient_size=size,
        zero_gradients=zeros,
        digest=examples_digest(result),
    )


def examples_digest(result: AttackResult) -> str:
    return hashlib.sha256(result.verdicts["digest"].tobytes()).hexdigest()[:16]


def gradient_health(classifier: Classifier, images: Images, attack: PGD) -> tuple[float, float]:
    """Mean size and share of zeros of the objective's gradient at clean images, in plain float32."""
    oracle = Oracle(classifier, speed=PLAIN)
    sizes, zeros, count = 0.0, 0, 0
    for rows in spans(min(len(images), GRADIENT_IMAGES), GRADIENT_BATCH):
        x, y = (tensor.to(oracle.device) for tensor in images.select(rows))
        fitted, _ = attack.for_classes(oracle.judge(x[:1]).shape[1])
        state = replace(fitted, start="none").init(oracle, x, y, torch.from_numpy(rows), Rng(0))
        gradient = oracle.value_and_grad(fitted.objective, x, state.y).gradient
        sizes += float(gradient.double().abs().sum())
        zeros += int((gradient == 0).sum())
        count += len(x)
        entries = gradient[0].numel()
    return sizes / count, zeros / (count * entries)


def checked_alphas(alphas: Sequence[float]) -> None:
    if not alphas or not all(0 < alpha < math.inf for alpha in alphas):
        raise ValueError(f"alphas must be positive, finite and at least one, got {list(alphas)}")


def sweepable(attacks: Sequence[Attack]) -> tuple[PGD, ...]:
    """The attacks as PGDs, which have an objective whose gradient can be looked at."""
    chosen = [attack for attack in attacks if isinstance(attack, PGD)]
    if len(chosen) != len(attacks):
        raise ValueError("the scale sweep takes attacks of the PGD family only")
    return tuple(chosen)
