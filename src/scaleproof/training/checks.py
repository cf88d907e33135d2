"""What is checked before a training begins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import SyncBatchNorm
from torch.nn.modules.batchnorm import _BatchNorm as Norm

from scaleproof.contract import check_finite, understood
from scaleproof.data import Dataset
from scaleproof.defenses.base import Defense, Outcome
from scaleproof.defenses.named import defense_settings
from scaleproof.differences import differences, told
from scaleproof.models.architectures import ARCHITECTURES
from scaleproof.models.classifier import Classifier, evaluating
from scaleproof.models.hypersphere import HypersphereHead
from scaleproof.parallel import ALONE, Group
from scaleproof.rng import random_state_kept
from scaleproof.threat import Threat
from scaleproof.training.config import TrainConfig
from scaleproof.training.diverged import check_numbers
from scaleproof.training.images import SMALL

SAME_CLASSES = (
    "Save both .npz files with one list of classes and labels that follow it, or give both folders the same "
    "subfolders"
)
FIELDS = {  # of an epoch's record beside the terms of the loss
    *("schema", "epoch", "rate", "loss", "train_accuracy", "weight_norm", "validation", "test", "guard"),
    *("seconds", "images_per_second"),
}
MOST_TERMS = 14


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
    if not 1 <= len(outcome.terms) <= MOST_TERMS:
        raise ValueError(
            f"{type(defense).__name__} must return at least one term and at most {MOST_TERMS}, got "
            f"{len(outcome.terms) or 'none'}: add some up"
        )
    if "loss" in outcome.terms and len(outcome.terms) > 1:
        raise ValueError(
            f"'loss' is the sum of all terms, {type(defense).__name__} gives {', '.join(outcome.terms)}: "
            "give that term another name"
        )
    taken = (FIELDS - {"loss"}).intersection(outcome.terms)
    if taken:
        raise ValueError(
            f"{min(taken)!r} stands for something else in the record of an epoch, {type(defense).__name__} has a term "
            "of that name: give it another one"
        )
    for name, term in outcome.terms.items():
        if not isinstance(term, Tensor) or term.dim() > 0:
            got = f"shape {tuple(term.shape)}" if isinstance(term, Tensor) else type(term).__name__
            raise ValueError(
                f"terms of {type(defense).__name__} must be tensors of one number, got {got} for {name!r}: "
                "take its mean over the batch"
            )
    return outcome


def check_names(names: Sequence[str], defense: Defense) -> None:
    """Each term of any step has its place in the record of an epoch."""
    if len(names) > MOST_TERMS:
        raise ValueError(
            f"{type(defense).__name__} must return at most {MOST_TERMS} terms in all steps together, got {len(names)}, "
            f"of late {names[-1]!r}: let a term keep its name from step to step"
        )


def checked_validation(config: TrainConfig, count: int) -> int:
    """The held-out images; a small training set gives up a tenth at most."""
    return min(config.validation, count // 10)


def check_sets(dataset: object, test: object) -> None:
    """Images come with the names of their classes."""
    for name, found in (("dataset", dataset), *([] if test is None else [("test", test)])):
        if not isinstance(found, Dataset):
            raise ValueError(
                f"{name} must be a Dataset, got {type(found).__name__}: load('images.npz') makes one, or "
                "Dataset(name=..., split=..., images=..., labels=..., classes=..., source=...)"
            )


def check_network(classifier: Classifier, defense: Defense, x: Tensor, classes: int) -> None:
    """Whether the network takes the images, which is explained where it does not, and gives what a training needs."""
    with understood(x, classifier), evaluating(classifier), random_state_kept(x.device), torch.no_grad():
        outputs = classifier(x)
    check_numbers(classifier)
    check_finite(outputs)
    check_head(classifier, defense, x)
    check_classes(classifier, x[:2], classes)


def check_classes(classifier: Classifier, x: Tensor, classes: int) -> None:
    with evaluating(classifier), torch.no_grad():
        outputs = classifier(x).shape[1]
    if outputs != classes:
        raise ValueError(
            f"the network must have as many outputs as the data has classes, {outputs} for {classes}"
        )


def check_alike(dataset: Dataset, test: Dataset, architecture: str) -> None:
    """Training and test images have the same classes, channels and size, and the network takes so many channels."""
    check_classes_alike(dataset, test)
    check_labels(dataset, test)
    check_class_counts(dataset, test)
    check_channels(dataset, test, architecture)
    check_sizes(dataset, test)


def check_labels(dataset: Dataset, test: Dataset) -> None:
    """A network has an output for each class of the training images, and for no other."""
    highest = int(test.labels.max())
    if highest >= len(dataset.classes):
        raise ValueError(
            f"the test images have the label {highest}, the training images {len(dataset.classes)} classes, numbered "
            "from 0: both must be labelled alike"
        )


def check_classes_alike(dataset: Dataset, test: Dataset) -> None:
    """Class lists must not contradict; one that only counts its classes contradicts no names but numbers."""
    pairs = list(zip(dataset.classes, test.classes, strict=False))
    wrong = next((number for number, (one, other) in enumerate(pairs) if one != other), None)
    counted = is_counted(dataset.classes) or is_counted(test.classes)
    if wrong is None or (counted and not set(dataset.classes) & set(test.classes)):
        return
    one, other = pairs[wrong]
    raise ValueError(
        f"class {wrong} is {one!r} in the training images ({dataset.name}) and {other!r} in the test images "
        f"({test.name}): both must name the same classes in the same order. {SAME_CLASSES}"
    )


def check_class_counts(dataset: Dataset, test: Dataset) -> None:
    """Test images have as many classes as training images; the highest label of a set without names may be lower."""
    here, there = len(dataset.classes), len(test.classes)
    if here != there and not (there < here and is_counted(test.classes)):
        raise ValueError(
            f"the training images ({dataset.name}) have {here} classes, the test images ({test.name}) {there}: both "
            f"must have the same. {SAME_CLASSES}"
        )


def is_counted(classes: tuple[str, ...]) -> bool:
    """Whether the names of the classes are their numbers, as where nobody named them."""
    return classes == tuple(str(number) for number in range(len(classes)))


def check_channels(dataset: Dataset, test: Dataset, architecture: str) -> None:
    """Training and test images are both grey or both in colour, and in colour for our own architectures."""
    channels, others = dataset.images.shape[1], test.images.shape[1]
    if channels != others:
        raise ValueError(
            f"the training images have {channels} channels, the test images {others}: both must have the same number"
        )
    if channels != 3 and architecture in ARCHITECTURES:
        raise ValueError(
            f"{architecture} takes images of 3 channels, as all networks of ours do, and those of {dataset.name} have "
            f"{channels}: give a network of your own that takes them, as --model module:factory, or make 3 channels of "
            "1, with np.repeat(images, 3, axis=1)"
        )


def check_sizes(dataset: Dataset, test: Dataset) -> None:
    """Training and test images have the same height and width."""
    size, other = (one.images.shape[2:] for one in (dataset, test))
    if size != other:
        raise ValueError(
            f"the training images ({dataset.name}) are of {size[0]} x {size[1]} pixels, the test images ({test.name}) "
            f"of {other[0]} x {other[1]}: both must have the same size, bring one of them to that of the other"
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
    """What makes one training another one, as plain data; older checkpoints say less of what small sets hold out."""
    balanced = len(dataset) < SMALL and checked_validation(config, len(dataset)) > 0
    return {
        "defense": plain_settings(defense),
        **({"held_out": "a share of each class"} if balanced else {}),
        **json.loads(json.dumps({"config": config.describe(), "pixels": dataset.digest()})),
    }


def plain_settings(defense: Defense) -> dict[str, Any]:
    """What a defense says of itself, as it is kept in a file."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(defense_settings(defense), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"a training in a folder needs settings that are plain data, {type(defense).__name__} has others "
            f"({error}): let its describe() give finite numbers, texts and lists"
        ) from error
    missing = sorted({"defense", "inner", "margin", "batch_norm"} - plain.keys())
    if missing:
        raise ValueError(
            f"the settings of a defense must hold {', '.join(missing)}, those of {type(defense).__name__} do not: let "
            "its describe() return {**super().describe(), ...}"
        )
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
            f"a batch must not be larger than the training set, got {batch} for the {count} images "
            "that are not held out: give a smaller batch_size (--batch-size)"
        )
    if batch < group.size:
        raise ValueError(
            f"a batch must have a row for each of {group.size} processes, got {batch}: "
            "give a larger batch_size (--batch-size), or fewer processes"
        )


def check_last_batch(classifier: Classifier, x: Tensor, batch: int, count: int, group: Group = ALONE) -> None:
    """BatchNorm has no statistics of one number: behind a pooling it needs two images in each process's part."""
    last, small = count % batch or batch, list[str]()

    def look(module: Norm, given: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        values = given[0] if given else named["input"]
        if values.numel() == len(x) * values.shape[1]:
            small.append(type(module).__name__)

    if last >= 2 * group.size:
        return
    norms = [module for module in classifier.modules() if isinstance(module, Norm) and module.training]
    alone = [norm for norm in norms if not isinstance(norm, SyncBatchNorm)]
    hooks = [norm.register_forward_pre_hook(look, with_kwargs=True) for norm in alone]
    try:
        with evaluating(classifier), random_state_kept(x.device), torch.no_grad():
            classifier(x)
    finally:
        for hook in hooks:
            hook.remove()
    if small:
        shared = f" for {group.size} processes" if group.size > 1 else ""
        raise ValueError(
            f"a network with {small[0]} behind its pooling needs two images a process in every batch, the last one has "
            f"{last}{shared}: give another batch_size (--batch-size)"
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
