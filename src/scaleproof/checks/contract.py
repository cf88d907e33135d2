"""Checks of the contract between a model and the images and labels it is measured on."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleproof.checks.shares import seldom
from scaleproof.checks.subject import Subject
from scaleproof.contract import MODE_MATTERS, ONE_CLASS, are_probabilities, one_answer
from scaleproof.diagnosis import Check, at_most
from scaleproof.models.classifier import Classifier
from scaleproof.statistics import paired

NORMALISATIONS = {
    "CIFAR": ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "[-1, 1]": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}
SAME = 1e-3  # of logits, relative to their spread
GAIN_LIMIT = 0.1
FOREIGN_LIMIT = 0.5
REPEATS = 4
CHANCE = 0.05


def pixel_range(subject: Subject) -> Check:
    over = (subject.all_x - subject.all_x.clamp(0, 1)).abs().max()
    return at_most(
        "range", "Pixels in [0, 1]", float(over), 0.0,
        "How far the darkest or brightest pixel lies outside [0, 1].",
        "Give images in [0, 1]; normalise inside the model, with Classifier(net, mean=..., std=...).",
    )  # fmt: skip


def label_range(subject: Subject) -> Check:
    classes, y = subject.logits.shape[1], subject.all_y
    outside = float(((y < 0) | (y >= classes)).float().mean())
    decided = subject.logits.argmax(1)
    value = max(outside, *(gain(y == decided, (y + shift) % classes == decided) for shift in (1, -1)))
    return at_most(
        "labels", "Labels fit the model", value, GAIN_LIMIT,
        "By how much labels shifted by one would fit the decisions better, or the share of labels outside the classes.",
        "Look at the order of the classes and whether labels begin at 0.",
    )  # fmt: skip


def foreign_classes(subject: Subject) -> Check:
    """Answers that the data has no class for are held against a model that is right no more often than by chance.

    Chance is one class in those of the data; where all labels are one, a guess among the outputs.
    """
    outputs, y = subject.logits.shape[1], subject.all_y
    classes = max(int(y.max()) + 1, subject.classes or 1)
    decided = subject.logits.argmax(1)
    chance = 1 / (classes if int(y.min()) < int(y.max()) else outputs)
    lost = float((decided == y).float().mean()) <= chance
    return seldom(
        "classes", "The model's classes are those of the data", (decided >= classes) & lost, FOREIGN_LIMIT,
        f"The model has {outputs} outputs, the data {classes} classes. The share of answers that are no class of the "
        "data, where clean accuracy is no better than chance:",
        "Do the labels mean the model's classes? Give each image the number that the model has for its class.",
    )  # fmt: skip


def train_mode(subject: Subject) -> Check:
    modules = subject.classifier.net.modules()
    felt = sum(isinstance(module, MODE_MATTERS) and module.training for module in modules)
    return at_most(
        "train-mode", "Evaluation mode", float(felt), 0.0,
        "How many layers that behave otherwise in training (BatchNorm, dropout) are in train mode.",
        "Call model.eval() before the evaluation.",
    )  # fmt: skip


def probabilities(subject: Subject) -> Check:
    found = are_probabilities(subject.logits, subject.classifier.logit_scale)
    return at_most(
        "probabilities", "Logits, not probabilities", float(found.float().mean()), 0.5,
        "The share of outputs that are probabilities: a softmax at the end hides gradients from attacks on logits.",
        "Remove the softmax at the end of the model.",
    )  # fmt: skip


def determinism(subject: Subject) -> Check:
    before = first(subject)
    value = max(relative(before, once(subject)) for _ in range(REPEATS))
    if subject.oracle.draws > 1:
        return Check(
            name="determinism", label="The same answer twice", passed=True, value=value,
            meaning=f"The model is randomised; gradients and verdicts are over {subject.oracle.draws} draws.",
            advice="Give the number of draws beside the result.",
        )  # fmt: skip
    return at_most(
        "determinism", "The same answer twice", value, SAME,
        "The largest difference between several answers to the same images, relative to the spread of the logits.",
        "Evaluate a randomised model with draws=20 (--attacks rand), which attacks and judges the mean of many draws.",
    )  # fmt: skip


def batch_dependence(subject: Subject) -> Check:
    if subject.oracle.draws > 1:
        value = 0.0
    else:
        half = len(subject.all_x) // 2
        value = relative(first(subject)[:half], subject.oracle.judge(subject.all_x[:half])) if half else 0.0
    return at_most(
        "batch", "An image's answer does not depend on its batch", value, SAME,
        "The largest difference between an image's logits in one batch and in another, relative to their spread.",
        "Look for BatchNorm in train mode, or for statistics taken over the batch.",
    )  # fmt: skip


def normalisation(subject: Subject) -> Check:
    y = subject.all_y
    here = subject.logits.argmax(1) == y
    gains = {"none": 0.0}
    if subject.classifier.mean is None and subject.all_x.shape[1] == 3:
        for name, (mean, std) in NORMALISATIONS.items():
            other = Classifier(subject.classifier, mean=mean, std=std)
            with torch.no_grad():
                answers = other(subject.all_x).argmax(1)
            gains[name] = 0.0 if alike(answers, y) > ONE_CLASS else gain(here, answers == y)
    best = max(gains, key=lambda name: gains[name])
    return at_most(
        "normalisation", "Normalisation inside the model", gains[best], GAIN_LIMIT,
        f"How much the clean accuracy would gain from a usual normalisation of the images (best: {best}).",
        "The model seems to expect normalised images: wrap it as Classifier(net, mean=..., std=...).",
    )  # fmt: skip


def constant(subject: Subject) -> Check:
    value = alike(subject.logits.argmax(1), subject.all_y)
    return at_most(
        "constant", "More than one answer", value, ONE_CLASS,
        "The share of images with the model's commonest answer; a constant one cannot be changed and is of no use.",
        "Look at the weights: the model hardly looks at its input.",
    )  # fmt: skip


def alike(answers: Tensor, labels: Tensor) -> float:
    """The share of the commonest answer, where the labels do not explain it; another one is no gain."""
    return one_answer(answers.cpu().numpy(), labels.cpu().numpy())


def gain(before: Tensor, after: Tensor) -> float:
    """By how much more images are right, where it is more than chance (McNemar's exact test)."""
    found = paired(before.cpu().numpy(), after.cpu().numpy())
    return max(0.0, -found.drop) if found.p_value < CHANCE else 0.0


def once(subject: Subject) -> Tensor:
    return subject.oracle.judge(subject.all_x)


def first(subject: Subject) -> Tensor:
    """One answer: the first look's, where that is no mean over draws."""
    return subject.logits if subject.oracle.draws == 1 else once(subject)


def relative(one: Tensor, other: Tensor) -> float:
    spread = float(one.std(correction=0)) or 1.0
    return float((one - other).abs().max()) / spread


CONTRACT = (
    pixel_range, label_range, foreign_classes, train_mode, probabilities, determinism, batch_dependence, normalisation,
    constant,
)  # fmt: skip
