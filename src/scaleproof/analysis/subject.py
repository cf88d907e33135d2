"""Subject: the model and the images under analysis, checked once, with what every part of it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from scaleproof.attacks.loop import perturb
from scaleproof.attacks.pgd import PGD, si_pgd
from scaleproof.contract import Finding, buffers_kept, check_mode
from scaleproof.evaluator import checked_batch_size
from scaleproof.images import AnyImages, Images, Rows, as_images
from scaleproof.look import first_look, first_rows
from scaleproof.losses import Objective, cosine_cross_entropy, cross_entropy
from scaleproof.models.architectures import weights_digest
from scaleproof.models.backward import described
from scaleproof.models.classifier import AnyModel, Classifier, as_classifier, device_of
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.speed import PLAIN, Speed
from scaleproof.store import settings_digest
from scaleproof.threat import DEFAULT_THREAT, Threat


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A classifier, images, a threat and a seed; `doubt` says why there are no cosines, where there are none."""

    classifier: Classifier
    images: Images
    threat: Threat
    seed: int
    batch_size: int
    speed: Speed
    classes: int
    doubt: str | None
    findings: tuple[Finding, ...]
    digest: str

    @classmethod
    def of(
        cls,
        model: AnyModel,
        images: AnyImages,
        *,
        threat: Threat = DEFAULT_THREAT,
        seed: int = 0,
        batch_size: int | None = None,
        speed: Speed | None = None,
        allow_train_mode: bool = False,
    ) -> Subject:
        """Look at a model and its images once, and refuse what no part could use."""
        classifier, source = as_classifier(model), as_images(images)
        if len(source) == 0:
            raise ValueError("an analysis needs at least one image, got none")
        if threat.eps == 0:
            raise ValueError("an analysis needs an eps above 0, got 0")
        findings = check_mode(classifier.net, allow_train_mode)
        with torch.inference_mode(False), buffers_kept(classifier):
            oracle = Oracle(classifier, speed=PLAIN)
            look = first_look(oracle, source, features=False)
            x, _ = first_rows(source, oracle.device)
            doubt, classes = head_doubt(oracle, x), oracle.judge(x[:1]).shape[1]
        normalisation = [None if t is None else t.tolist() for t in (classifier.mean, classifier.std)]
        known = [weights_digest(classifier), str(normalisation), classifier.logit_scale, look, len(source)]
        known.append(described(classifier.stand_ins))
        return cls(
            classifier=classifier,
            images=source,
            threat=threat,
            seed=seed,
            batch_size=checked_batch_size(batch_size, oracle.device),
            speed=speed or Speed(),
            classes=classes,
            doubt=doubt,
            findings=findings,
            digest=settings_digest({"subject": known}),
        )

    @property
    def objectives(self) -> dict[str, Objective]:
        """The cross entropy and, where the head is known, the cosine cross entropy."""
        return {"cross_entropy": cross_entropy} | ({} if self.doubt else {"cosine": cosine_cross_entropy()})

    def attacks(self, steps: int, *, restarts: int = 1, threat: Threat | None = None) -> tuple[PGD, ...]:
        """PGD and, where the head is known, SI-PGD, with so many steps of eps / 4."""
        threat = threat or self.threat
        pgd = PGD(threat=threat, steps=steps, restarts=restarts)
        return (pgd,) if self.doubt else (pgd, si_pgd(threat, steps=steps, restarts=restarts))

    def oracle(self, *, graph: bool = True) -> Oracle:
        speed = self.speed if graph else replace(self.speed, graph=False)
        images, _ = first_rows(self.images, device_of(self.classifier))
        return Oracle(self.classifier, speed=speed, images=images)

    def batch(self, oracle: Oracle, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Images, labels and positions of some rows, on the oracle's device."""
        x, y = self.images.select(rows)
        device = oracle.device
        return x.detach().to(device), y.to(device), torch.from_numpy(rows).to(device)

    def perturbed(self, oracle: Oracle, name: str, steps: int, x: Tensor, y: Tensor, index: Tensor) -> Tensor:
        """What PGD makes of a batch in so many steps; `name` says which random numbers it has."""
        attack = PGD(threat=self.threat, steps=steps, name=name)
        return perturb(attack, oracle, x, y, index, Rng(self.seed, name, 0))

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Gradients can be taken, and a model in train mode gets its buffers back."""
        with torch.inference_mode(False), buffers_kept(self.classifier):
            yield

    def mark(self, part: str, plan: Any) -> str:
        """What the numbers of a part depend on, so that a store never answers for another analysis."""
        run = [
            self.seed,
            self.batch_size,
            vars(self.threat),
            self.speed.settings(),
            self.classifier.head_name,
        ]
        return settings_digest({"subject": self.digest, "run": run, "part": part, "plan": vars(plan)})


def head_doubt(oracle: Oracle, x: Tensor) -> str | None:
    """Why a model that takes these images gives no features, or None where it does."""
    try:
        oracle.judge_outputs(x, features=True)
    except ValueError as error:
        return str(error).splitlines()[0].rstrip(":;")
    return None


def symmetric(reach: float, points: int) -> list[float]:
    """An odd number of even steps from -reach to reach, with 0 exactly in the middle."""
    half = points // 2
    return [reach * (number / half) for number in range(-half, half + 1)]


def checked_grid(reach: float, points: int) -> None:
    """Refuse a grid without a middle or without an extent."""
    if points < 3 or points % 2 == 0:
        raise ValueError(f"points must be odd and >= 3, so that 0 is one of them, got {points}")
    if not 0 < reach < float("inf"):
        raise ValueError(f"the reach of a grid must be finite and > 0, got {reach}")
