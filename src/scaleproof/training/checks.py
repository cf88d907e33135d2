"""What is checked before a training begins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scaleproof.data import Dataset
from scaleproof.defenses.base import Defense, Outcome
from scaleproof.differences import differences, told
from scaleproof.models.classifier import Classifier, evaluating
from scaleproof.models.hypersphere import HypersphereHead
from scaleproof.parallel import ALONE, Group
from scaleproof.threat import Threat
from scaleproof.training.config import TrainConfig


def probe_threat(defense: Defense) -> Threat:
    """The ball that the defense trains against, 8/255 where it trains against none."""
    return defense.ball or Threat()


def checked_outcome(defense: Defense, outcome: object) -> Outcome:
    """What a defense returned for a batch: scalars by name, whose sum is the loss."""
    if not isinstance(outcome, Outcome):
        raise ValueError(
            f"outcome of {type(defense).__name__} must return named terms, got {type(outcome).__name__}: "
            "return self.finished({'loss': loss}, output, batch.y)"
        )
    if not outcome.terms:
        raise ValueError(f"{type(defense).__name__} must return at least one term, got none")
    for name, term in outcome.terms.items():
        if not isinstance(term, Tensor) or term.dim() > 0:
            got = f"shape {tuple(term.shape)}" if isinstance(term, Tensor) else type(term).__name__
            raise ValueError(
                f"terms of {type(defense).__name__} must be tensors of one number, got {got} for {name!r}: "
                "take its mean over the batch"
            )
    return outcome


def checked_validation(config: TrainConfig, count: int) -> int:
    """The held-out images; a small training set gives up a tenth at most."""
    return min(config.validation, count // 10)


def check_network(classifier: Classifier, defense: Defense, x: Tensor, classes: int) -> None:
    check_head(classifier, defense, x)
    check_classes(classifier, x[:2], classes)


def check_classes(classifier: Classifier, x: Tensor, classes: int) -> None:
    with evaluating(classifier), torch.no_grad():
        outputs = classifier(x).shape[1]
    if outputs != classes:
        raise ValueError(
            f"the network must have as many outputs as the data has classes, {outputs} for {classes}"
        )


def check_labels(dataset: Dataset, test: Dataset) -> None:
    """A network has an output for each class of the training images, and for no other."""
    highest = int(test.labels.max())
    if highest >= len(dataset.classes):
        raise ValueError(
            f"the test images have the label {highest}, the training images {len(dataset.classes)} classes, numbered "
            "from 0: both must be labelled alike"
        )


def check_head(classifier: Classifier, defense: Defense, x: Tensor) -> None:
    """Every epoch reports the head's weights and cosines; a margin on cosines means nothing to other logits."""
    try:
        head = classifier.net.get_submodule(classifier.find_head(x))
    except ValueError as error:
        raise ValueError(
            "a network in training must end in one linear layer that takes one vector an image, none is found: let it "
            f"end so, or have its factory return Classifier(net, head=NAME) ({str(error).partition(':')[0]})"
        ) from error
    if defense.label_margin and not isinstance(head, HypersphereHead):
        raise ValueError(
            f"the loss of hypersphere embedding needs a HypersphereHead, got {type(head).__name__}: "
            "build('resnet18+he', classes) has one"
        )


def identity(dataset: Dataset, defense: Defense, config: TrainConfig) -> dict[str, Any]:
    """What makes one training another one, as plain data."""
    found = {"defense": defense.describe(), "config": config.describe(), "pixels": dataset.digest()}
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def check_identity(then: Mapping[str, Any] | None, now: Mapping[str, Any], folder: Path | None) -> None:
    """A checkpoint of another training must not be gone on with."""
    changed = [] if then is None else differences("", then, now)
    if changed:
        raise ValueError(
            f"{folder} holds a checkpoint of another training ({told(changed)}): give another folder"
        )


def check_batch(batch: int, count: int, group: Group = ALONE) -> None:
    if batch > count:
        raise ValueError(
            f"a batch must not be larger than the training set, got {batch} for {count} images: "
            "give a smaller batch_size (--batch-size)"
        )
    if batch < group.size:
        raise ValueError(
            f"a batch must have a row for each of {group.size} processes, got {batch}: "
            "give a larger batch_size (--batch-size), or fewer processes"
        )


def check_synchronised(config: TrainConfig, count: int, device: torch.device, group: Group) -> None:
    """Synchronised BatchNorm needs GPUs, and rows for every process in every batch."""
    if device.type != "cuda":
        raise ValueError("synchronised BatchNorm works on CUDA devices only: leave it out")
    least = (count - checked_validation(config, count)) % config.batch_size or config.batch_size
    if least < group.size:
        raise ValueError(
            f"synchronised BatchNorm needs a row for each of {group.size} processes, the last batch has {least}: "
            "give another --batch-size"
        )
