"""What is checked before a training begins."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleproof.data import Dataset
from scaleproof.defenses.base import Defense
from scaleproof.models.classifier import Classifier, evaluating
from scaleproof.models.hypersphere import HypersphereHead
from scaleproof.parallel import ALONE, Group
from scaleproof.threat import Threat
from scaleproof.training.config import TrainConfig


def probe_threat(defense: Defense) -> Threat:
    """The ball that the defense trains against, 8/255 where it trains against none."""
    return defense.ball or Threat()


def checked_validation(config: TrainConfig, count: int) -> int:
    """The held-out images; a small training set gives up a tenth at most."""
    return min(config.validation, count // 10)


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


def check_head(classifier: Classifier, defense: Defense) -> None:
    """A margin on cosines means nothing to logits of any other kind."""
    assert classifier.head_name is not None
    head = classifier.net.get_submodule(classifier.head_name)
    if defense.label_margin and not isinstance(head, HypersphereHead):
        raise ValueError(
            f"the loss of hypersphere embedding needs a HypersphereHead, got {type(head).__name__}: "
            "build('resnet18+he', classes) has one"
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
