"""A first look: a few images through a model before anything is spent on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scaleproof.attacks.base import Attack, attack_settings
from scaleproof.attacks.sampled import whole
from scaleproof.contract import (
    Finding,
    any_training,
    buffers_kept,
    check_finite,
    check_images,
    check_logits,
    full_precision,
    understood,
)
from scaleproof.differences import differences
from scaleproof.images import Images, spans
from scaleproof.models.architectures import weights_digest
from scaleproof.models.backward import described
from scaleproof.models.classifier import Classifier
from scaleproof.oracle import Oracle
from scaleproof.rng import random_state_kept
from scaleproof.speed import PLAIN
from scaleproof.store import Arrays, settings_digest

FIRST_LOOK = 8
READ_AT_ONCE = 1024
ASKED_AGAIN = 4  # one more answer alone could by chance be the first again


def first_rows(images: Images, device: torch.device) -> tuple[Tensor, Tensor]:
    """The first few images in full precision on a device, and their labels as they are."""
    x, y = images.select(np.arange(min(FIRST_LOOK, len(images)), dtype=np.int64))
    return full_precision(x.detach().to(device)), y


def first_look(oracle: Oracle, images: Images, features: bool) -> list[list[float]]:
    """The first few images through the model: what it returns, checked and rounded, and where its head is.

    Three digits tell one forward pass from another, also on another machine; a model in train mode has none to give.
    """
    (x, y), classifier = first_rows(images, oracle.device), oracle.classifier
    check_images(x, y)
    with understood(x, classifier), random_state_kept(x.device):
        torch.manual_seed(0)  # a randomised model is recognised when its run goes on
        logits = oracle.judge(x)
    check_finite(logits)
    check_logits(logits, classifier.logit_scale)
    if features:
        oracle.judge_outputs(x, features=True)
    return rounded(classifier, logits)


def rounded(classifier: Classifier, logits: Tensor) -> list[list[float]]:
    """Three digits of each logit; a model in train mode has none to give."""
    if any_training(classifier):
        return []
    return [[float(f"{value:.2e}") for value in row] for row in logits.tolist()]


def randomness(oracle: Oracle, images: Images) -> tuple[Finding, ...]:
    """A finding where the same images get other logits when asked again: verdicts then depend on chance."""
    x, _ = first_rows(images, oracle.device)
    with oracle.chance("randomness"):
        first = oracle.judge(x)
        if all(torch.equal(first, oracle.judge(x)) for _ in range(ASKED_AGAIN)):
            return ()
    if oracle.draws > 1:
        meaning = f"the model is randomised: gradients and verdicts are over {oracle.draws} draws"
        return (Finding(name="randomised", severity="note", meaning=meaning),)
    meaning = (
        "the model gives other logits for the same images each time: an attack sees one draw and its verdict is about "
        "another, so the robust accuracy is no bound on what an attacker who tries again can reach: use the suite rand"
    )
    return (Finding(name="randomised", severity="warning", meaning=meaning),)


def first_logits(classifier: Classifier, images: Images) -> list[list[float]]:
    """What `first_look` sees, for the record of a run."""
    with buffers_kept(classifier):
        return first_look(Oracle(classifier, speed=PLAIN), images, features=False)


def data_mark(images: Images) -> str:
    """A digest of all pixels and labels."""
    digest = getattr(images, "digest", None)
    if digest is not None:
        return str(digest())
    state = hashlib.sha256()
    for rows in spans(len(images), READ_AT_ONCE):
        for tensor in images.select(rows):
            state.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return state.hexdigest()


@dataclass(frozen=True)
class Mark:
    """What verdicts depend on, so that a store never answers for another run; in another form it is the same."""

    settings: Mapping[str, object]

    @property
    def digest(self) -> str:
        return settings_digest(self.settings)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is kept beside the units of a run."""
        text = json.dumps(self.settings)
        return {"fingerprint": np.array(self.digest), "settings": np.array(text)}

    def fits(self, stored: Arrays) -> bool:
        """Whether units belong to this run: by the digest, or where the settings differ in no leaf, as 1 and 1.0."""
        if str(stored.get("fingerprint")) == self.digest:
            return True
        kept = stored.get("settings")
        return kept is not None and not differences("", json.loads(str(kept)), self.settings)


def fingerprint(
    oracle: Oracle, attacks: Sequence[Attack], settings: Sequence[object], look: list[list[float]]
) -> Mark:
    """The mark of a run."""
    classifier = oracle.classifier
    normalisation = [None if t is None else t.tolist() for t in (classifier.mean, classifier.std)]
    return Mark(
        {
            "weights": weights_digest(classifier),
            "model": [str(normalisation), classifier.logit_scale, look, described(classifier.stand_ins)],
            "attacks": [
                [attack.label, attack.scale_invariant, attack_settings(attack)]
                for attack in map(whole, attacks)
            ],
            "run": [*settings, oracle.draws, str(oracle.choice.precision)],
        }
    )
