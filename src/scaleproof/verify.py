"""Verify: a stored evaluation judged again, from its examples, in one forward pass and on any machine.

It confirms that robust accuracy is at most what is claimed, image by image. It cannot tell whether a better attack
would find more, nor whether examples were left out: such a run claims a higher robust accuracy than it found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scaleproof.claims import Check, Claims, check, consistency, read_claims
from scaleproof.contract import check_mode
from scaleproof.data import Dataset, load, names
from scaleproof.evaluation import Share
from scaleproof.examples import Examples
from scaleproof.images import Rows, spans
from scaleproof.losses import decided, margin
from scaleproof.models.architectures import weights_digest
from scaleproof.models.classifier import Classifier, as_classifier
from scaleproof.models.specs import is_code, is_path, load_model
from scaleproof.oracle import Oracle
from scaleproof.speed import PLAIN
from scaleproof.threat import Threat
from scaleproof.units import digests

TOLERANCE = 1e-4  # of the largest logit of an image: margins this small are the arithmetic's, not the model's
MOST_FLIPS = 0.01  # of the images, that arithmetic may explain
BATCH = 256
SMALLEST = 1e-30


@dataclass(frozen=True, kw_only=True)
class Flip:
    """An image on which the recount differs: on the clean image or on its example."""

    row: int
    on: str  # clean or example
    claimed: str
    recounted: str
    margin: float  # best other logit minus true logit, now
    claimed_margin: float  # nan where it was not kept
    scale: float  # the largest logit of the image, in size

    @property
    def numerical(self) -> bool:
        """Whether all margins known are within the tolerance, so that another machine's rounding explains it."""
        unsaid = 0.0 if self.on == "clean" else math.inf  # an example's margin is on record
        claimed = unsaid if math.isnan(self.claimed_margin) else self.claimed_margin
        return max(abs(self.margin), abs(claimed)) <= TOLERANCE * self.scale


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was claimed, what a recount gives, and where they differ."""

    claimed_clean: Share
    claimed_robust: Share
    clean: Share | None  # None where the images are not those of the run
    robust: Share | None
    checks: tuple[Check, ...]
    flips: tuple[Flip, ...] = ()
    largest_shift: float = 0.0  # of a margin on an example, over the largest logit

    @property
    def contradictions(self) -> tuple[Flip, ...]:
        """Flips that rounding does not explain; all of them, where they are too many for that."""
        few = sum(flip.numerical for flip in self.flips) <= math.ceil(MOST_FLIPS * self.claimed_clean.count)
        return tuple(flip for flip in self.flips if not (flip.numerical and few))

    @property
    def confirmed(self) -> bool:
        return self.clean is not None and all(c.passed for c in self.checks) and not self.contradictions


def verify(
    folder: Path | str,
    *,
    model: nn.Module | str | None = None,
    data: Dataset | str | None = None,
    architecture: str | None = None,
    data_folder: Path | str | None = None,
    device: torch.device | str = "cpu",
) -> Verification:
    """Judge a run folder's examples again, with the model and images it names or with those given."""
    claims = read_claims(Path(folder))
    dataset = the_images(claims, data, data_folder)
    classifier = the_model(claims, model, architecture, len(dataset.classes), device)
    check_mode(classifier.net, allow_train_mode=False)
    checks = [*consistency(claims), weights_check(claims, classifier)]
    same = [check("data", "pixels and labels have the claimed digest", data_problems(claims, dataset))]
    claim = Verification(
        claimed_clean=stated(claims, "clean"),
        claimed_robust=stated(claims, "worst_case"),
        clean=None,
        robust=None,
        checks=(*checks, *same),
    )
    if not same[0].passed:
        return claim
    recount = Recount(claims, Oracle(classifier, speed=PLAIN), dataset)
    recount.judge_clean()
    recount.judge_examples()
    budget = check("budget", "every example is within the threat and in [0, 1]", iter(recount.violations))
    copies = check("bits", "every example has the digest of its verdict", iter(recount.changed))
    right = recount.right
    return replace(
        claim,
        clean=Share(int(right.sum()), len(right)),
        robust=Share(int((right & ~recount.broken).sum()), len(right)),
        checks=(*claim.checks, budget, copies),
        flips=tuple(recount.flips),
        largest_shift=recount.largest_shift,
    )


def stated(claims: Claims, name: str) -> Share:
    share = claims.document[name]
    return Share(int(share["correct"]), int(share["count"]))


def the_images(claims: Claims, data: Dataset | str | None, folder: Path | str | None) -> Dataset:
    """The first images of the set that the run names, or of one given, as many as the run had."""
    said = claims.document["data"]
    if data is None and said["name"] not in names():
        raise ValueError(f"the run's images are not a known set ({said['source']}): give them as --data PATH")
    found = (
        data if isinstance(data, Dataset) else load(data or said["name"], split=said["split"], folder=folder)
    )
    count = claims.evaluation.count
    return found.first(count) if len(found) > count else found


def the_model(
    claims: Claims,
    model: nn.Module | str | None,
    architecture: str | None,
    classes: int,
    device: torch.device | str,
) -> Classifier:
    """The model that the run names, on the device; or the one given, where it is."""
    if isinstance(model, nn.Module):
        return as_classifier(model)
    said = claims.document["model"]
    if model is None and is_code(said["spec"]):
        raise ValueError(
            f"the run names the function {said['spec']!r}, and verifying it would run code that the folder chose: "
            "if it is yours, give it as --model"
        )
    if architecture is None and model is None and is_path(said["spec"]):
        architecture = said["architecture"]
    return load_model(model or said["spec"], architecture=architecture, classes=classes).classifier.to(device)


def weights_check(claims: Claims, classifier: Classifier) -> Check:
    claimed, seen = claims.document["model"]["weights_sha256"], weights_digest(classifier)
    problem = f"the weights have the digest {seen[:12]}, the claim is about {claimed[:12]}"
    return check("weights", "the model has the claimed digest", iter([] if seen == claimed else [problem]))


def data_problems(claims: Claims, dataset: Dataset) -> Iterator[str]:
    claimed, seen = claims.document["data"]["sha256"], dataset.digest()
    if len(dataset) != claims.evaluation.count:
        yield f"there are {len(dataset)} images, the claim is about {claims.evaluation.count}"
    elif seen != claimed:
        yield f"pixels and labels have the digest {seen[:12]}, the claim is about {claimed[:12]}"
    elif not np.array_equal(dataset.labels, claims.evaluation.labels):
        yield "the labels in verdicts.npz are not those of the images"


def read_examples(
    folder: Path | str, *, data: Dataset | str | None = None, data_folder: Path | str | None = None
) -> tuple[Examples, Tensor, Tensor]:
    """What a run kept: which images and attacks, the adversarial images (B, ...) and their true classes (B,)."""
    claims = read_claims(Path(folder))
    dataset = the_images(claims, data, data_folder)
    for problem in data_problems(claims, dataset):
        raise ValueError(f"the examples in {folder} were made from other images: {problem}")
    if claims.examples is None:
        raise ValueError(f"{folder} holds no examples: evaluate with --keep-examples")
    clean, labels = dataset.select(claims.examples.row)
    found = claims.examples.unpacked(0, len(claims.examples), clean.numpy(), claims.threat)
    return claims.examples, torch.from_numpy(found), labels


class Recount:
    """One forward pass over the clean images and one over the examples, in exact float32, compared with the claims."""

    def __init__(self, claims: Claims, oracle: Oracle, dataset: Dataset) -> None:
        self.claims, self.oracle, self.dataset = claims, oracle, dataset
        self.results = {result.name: result for result in claims.evaluation.attacks}
        self.right: NDArray[np.bool_] = np.zeros(len(dataset), np.bool_)
        self.broken: NDArray[np.bool_] = np.zeros(len(dataset), np.bool_)
        self.flips: list[Flip] = []
        self.violations: list[str] = []
        self.changed: list[str] = []
        self.largest_shift = 0.0

    def judge(self, x: Tensor, y: Tensor) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Whether each image is right, its margin, and its largest logit in size."""
        y = y.to(self.oracle.device)
        logits = self.oracle.judge(x.to(self.oracle.device)).double()
        answers = (decided(logits, y) == y, margin(logits, y), logits.abs().amax(1))
        right, margins, scale = (tensor.cpu().numpy() for tensor in answers)
        return right, margins, scale

    def judge_clean(self) -> None:
        claimed = self.claims.evaluation.clean_correct
        for rows in spans(len(self.dataset), BATCH):
            right, margins, scale = self.judge(*self.dataset.select(rows))
            self.right[rows] = right
            for k in np.flatnonzero(right != claimed[rows]):
                words = ("right", "wrong") if right[k] else ("wrong", "right")
                self.flip(rows[k], "clean", words[1], words[0], (margins[k], math.nan, scale[k]))

    def judge_examples(self) -> None:
        examples = self.claims.examples
        if examples is None:
            return
        for part in spans(len(examples), BATCH):
            rows = examples.row[part]
            if ((rows < 0) | (rows >= len(self.dataset))).any():
                self.violations.append("an example names an image that is not there")
                continue
            clean, y = self.dataset.select(rows)
            if examples.code.shape[1:] != clean.shape[1:]:
                self.violations.append(f"the examples are of another size than the images, {clean.shape[1:]}")
                continue
            pixels = examples.unpacked(int(part[0]), int(part[-1]) + 1, clean.numpy(), self.claims.threat)
            self.compare(part, rows, clean, torch.from_numpy(pixels), y)

    def compare(self, part: Rows, rows: Rows, clean: Tensor, found: Tensor, y: Tensor) -> None:
        """Judge some examples: their budget, their digests and what the model makes of them."""
        self.violations += violations(self.claims.threat, found, clean, rows)
        right, margins, scale = self.judge(found, y)
        self.broken[rows] = ~right
        digest = digests(found)
        for k, position in enumerate(part):
            claimed = self.claimed(int(position), int(rows[k]))
            if claimed is None or claimed[0] != digest[k]:
                self.changed.append(f"the example of image {rows[k]} is not the one that was judged")
            before = math.nan if claimed is None else claimed[1]
            if not math.isnan(before):
                self.largest_shift = max(
                    self.largest_shift, abs(float(margins[k]) - before) / max(float(scale[k]), SMALLEST)
                )
            if right[k]:
                self.flip(rows[k], "example", "broken", "right", (margins[k], before, scale[k]))

    def claimed(self, position: int, row: int) -> tuple[int, float] | None:
        """Digest and margin of the verdict that an example stands for, where there is such a verdict."""
        examples = self.claims.examples
        assert examples is not None
        result, restart = self.results.get(str(examples.attack[position])), int(examples.restart[position])
        if result is None or not 0 <= restart < result.restarts:
            return None
        verdicts: Any = result.verdicts
        return int(verdicts["digest"][restart, row]), float(verdicts["margin"][restart, row])

    def flip(
        self, row: int, on: str, claimed: str, recounted: str, sizes: tuple[float, float, float]
    ) -> None:
        now, before, scale = (float(value) for value in sizes)
        self.flips.append(
            Flip(
                row=int(row),
                on=on,
                claimed=claimed,
                recounted=recounted,
                margin=now,
                claimed_margin=before,
                scale=scale,
            )
        )


def violations(threat: Threat, found: Tensor, clean: Tensor, rows: Rows) -> list[str]:
    """What is wrong with each example that breaks the rules of the threat."""
    if threat.violation(found, clean) is None:
        return []
    each = [(row, threat.violation(found[k : k + 1], clean[k : k + 1])) for k, row in enumerate(rows)]
    return [f"image {row}: {wrong}" for row, wrong in each if wrong is not None]
