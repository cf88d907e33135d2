"""The contract between images, labels and a model, checked before any time is spent on attacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something the reader of a number should know."""

    name: str
    severity: str
    meaning: str


MODE_MATTERS = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.dropout._DropoutNd,
    nn.RReLU,
    nn.MultiheadAttention,
)
BYTES_ABOVE = (
    2  # the largest pixel of images that were normalised may be a little above 1, of bytes it is far above
)
ONE_CLASS = 0.95  # of all answers: a network that gives one class more often tells hardly anything apart
FEWEST_SORTED = 8  # labels; fewer may come in order by chance


def check_images(x: Tensor, y: Tensor, first: int = 0) -> None:
    """Pixels finite and in [0, 1], one label an image, labels not negative; `first` is the index of the first row."""
    if len(x) != len(y):
        raise ValueError(f"images and labels must be equally many, got {len(x)} images and {len(y)} labels")
    if not x.is_floating_point():
        raise ValueError(f"images must be floating point in [0, 1], got {x.dtype}: divide bytes by 255")
    bad = (~((x >= 0) & (x <= 1))).flatten(1).any(1)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        image = x[row]
        if bool(torch.isnan(image).any()):
            raise ValueError(f"pixels must be numbers, got NaN in image {first + row}")
        low, high = float(image.min()), float(image.max())
        raise ValueError(
            f"pixels must be in [0, 1], image {first + row} has {low:.4g} to {high:.4g}: {remedy(x)}"
        )


def remedy(x: Tensor) -> str:
    """What brings pixels into [0, 1]: those made of bytes are never negative, and far above 1."""
    low, high = float(x.min()), float(x.max())
    if low >= 0 and BYTES_ABOVE < high <= 255:
        network = f"Classifier(net, mean=[0.0] * {x.shape[1]}, std=[1 / 255] * {x.shape[1]})"
        return f"divide them by 255; a network that wants them so is {network}"
    return "normalise inside the model, with Classifier(net, mean=..., std=...)"


def full_precision(x: Tensor) -> Tensor:
    """Images in float32 at least: half precision cannot hold a step inside a small ball."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def check_labels(y: Tensor, classes: int, first: int = 0) -> None:
    bad = (y < 0) | (y >= classes)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(f"labels must be in 0 to {classes - 1}, got {int(y[row])} for image {first + row}")


def are_probabilities(logits: Tensor, scale: float = 1.0) -> Tensor:
    """Which rows are probabilities, times the scale of the logits (B,)."""
    rows = logits / scale
    return ((rows.sum(1) - 1).abs() < 1e-3) & (rows >= 0).all(1)


def check_logits(logits: Tensor, scale: float = 1.0) -> None:
    """Not probabilities: a softmax at the end hides gradients from every attack on logits."""
    if bool(are_probabilities(logits, scale).all()):
        raise ValueError(
            "the model must return logits, its outputs are probabilities (>= 0, each row sums to 1): "
            "remove the softmax at its end"
        )


def check_finite(logits: Tensor) -> None:
    if not bool(torch.isfinite(logits).all()):
        raise ValueError(
            "the model returned NaN or infinite logits on clean images: look at its weights and inputs"
        )


def check_mode(model: nn.Module, allow_train_mode: bool) -> tuple[Finding, ...]:
    """A model in train mode is an error, or a finding where it was allowed."""
    kinds = [(name, module) for name, module in model.named_modules() if module.training]
    felt = [f"{name} ({type(module).__name__})" for name, module in kinds if isinstance(module, MODE_MATTERS)]
    if not kinds:
        return ()
    where = ", ".join(felt[:3]) if felt else "no layer that depends on it was seen"
    message = f"the model is in train mode ({where})"
    if not allow_train_mode:
        raise ValueError(f"{message}: call model.eval() first, or pass allow_train_mode (--allow-train-mode)")
    meaning = f"{message}: verdicts may depend on the batch and on chance"
    return (Finding(name="train-mode", severity="warning", meaning=meaning),)


def check_order(labels: NDArray[np.int64], classes: int) -> tuple[Finding, ...]:
    """A finding where images are the beginning of a set that is sorted by class: such are no sample of it.

    A beginning has every class up to its last one; others that come in order were chosen.
    """
    last = int(labels.max(initial=0))
    steps = np.diff(labels, prepend=-1)
    if len(labels) < FEWEST_SORTED or last >= classes - 1 or ((steps < 0) | (steps > 1)).any():
        return ()
    meaning = (
        f"the labels of these {len(labels)} images come in order and end at {last}, of {classes} classes: they are the "
        "beginning of a sorted set and no sample of it. Shuffle the set before you take its first images"
    )
    return (Finding(name="sorted-images", severity="warning", meaning=meaning),)


def commonest(values: NDArray[np.int64]) -> tuple[int, int]:
    """The value that comes most often, and how often."""
    found, counts = np.unique(values, return_counts=True)
    place = int(counts.argmax())
    return int(found[place]), int(counts[place])


def one_answer(answers: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """The share of the commonest answer; nothing where the labels, too, are nearly all of one class.

    Nor where most images of other classes get another answer: then it is common because its class is.
    """
    answer, count = commonest(answers)
    others = answers[labels != answer]
    expected = commonest(labels)[1] > ONE_CLASS * len(labels)
    return 0.0 if expected or (others != answer).mean() > 0.5 else count / len(answers)


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Put back every buffer of a model in train mode, whose running statistics each forward pass would move."""
    saved = [(buffer, buffer.clone()) for buffer in model.buffers()] if any_training(model) else []
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in saved:
                buffer.copy_(value)


def any_training(model: nn.Module) -> bool:
    return any(module.training for module in model.modules())


@contextmanager
def understood(x: Tensor, model: nn.Module) -> Iterator[None]:
    """What a model raises on its first images, explained with their shape and kind."""
    try:
        yield
    except torch.OutOfMemoryError:  # no fault of theirs, and explained elsewhere
        raise
    except (RuntimeError, AssertionError, TypeError, IndexError) as error:
        kinds = {str(parameter.dtype) for parameter in model.parameters()} or {"none"}
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"the model does not take these images, {x.dtype} of shape {tuple(x.shape)} "
            f"(its parameters are {', '.join(sorted(kinds))}): {kind_hint(model) or channels_hint(x, model)}{first}"
        ) from error


def kind_hint(model: nn.Module) -> str:
    """What to do where a model's weights are no float32, as images are."""
    kinds = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    if kinds <= {torch.float32}:
        return ""
    return "convert it with .float(): verdicts are float32. The network's own words: "


def channels_hint(x: Tensor, model: nn.Module) -> str:
    """What to do where the first convolution wants another number of channels than the images have."""
    found = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    if found is None or x.dim() != 4 or found.in_channels == x.shape[1]:
        return ""
    remedy = "give a network that takes them (module:factory; all of ours take 3)"
    if found.in_channels == x.shape[3]:
        remedy = "their channels come last, use .transpose(0, 3, 1, 2) on an array, .permute on a tensor"
    elif x.shape[1] == 1:
        remedy += ", or other images: np.repeat(images, 3, axis=1) makes 3 channels of 1"
    return (
        f"its first convolution takes {found.in_channels} channels, the images have {x.shape[1]}: {remedy}. "
        "The network's own words: "
    )
