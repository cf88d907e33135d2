"""Small real images and networks on which a training takes a second."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from scaleproof.data import Dataset, load
from scaleproof.defenses import NAMES, Defense, defense, hypersphere, scale_invariant
from scaleproof.models import Classifier
from scaleproof.models.hypersphere import HypersphereHead
from scaleproof.models.resnet import BasicBlock, ResNet
from scaleproof.speed import PLAIN, Speed
from scaleproof.training import Cyclic, TrainConfig, Trainer
from speed_fixtures import trained_looking

COMBINATIONS = [
    "standard",
    *(name + twin for name in NAMES if name != "standard" for twin in ("", "-si")),
    *(name + "-he" for name in ("at", "trades", "alp")),
]  # fmt: skip
QUICK = TrainConfig(
    epochs=2, batch_size=24, rate=0.02, schedule=Cyclic(), validation=6, test_probe=8, probe_steps=2
)


def small(count: int = 64, split: str = "train") -> Dataset:
    """The first images of the packaged sample, every second pixel."""
    found = load("sample-train" if split == "train" else "sample").first(count)
    return replace(found, images=found.images[:, :, ::2, ::2].copy())


def network(seed: int = 0, *, sphere: bool = False, width: int = 4) -> Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = ResNet(BasicBlock, (1, 1, 1), width=width)
        if sphere:
            net.head = HypersphereHead(net.head.in_features, net.head.out_features)
    return Classifier(net)


def hesitant(x: Tensor) -> Classifier:
    """A network that takes these images for many classes, and most of them for nearly another one."""
    classifier = network()
    trained_looking(classifier.net)
    with torch.no_grad():
        classifier.net.head.bias.sub_(classifier(x).mean(0))
    return classifier


def chosen(combination: str) -> Defense:
    name, _, twin = combination.partition("-")
    found = defense(name)
    return {"": lambda d: d, "si": scale_invariant, "he": hypersphere}[twin](found)  # type: ignore[operator]


def trainer(
    combination: str = "at", config: TrainConfig = QUICK, folder: Path | None = None, speed: Speed = PLAIN
) -> Trainer:
    return Trainer(
        network(config.seed, sphere=combination.endswith("-he")),
        small(),
        chosen(combination),
        config,
        test=small(8, "test"),
        speed=speed,
        folder=folder,
        checkpoint_seconds=0,
    )


def finished(training: Trainer) -> dict[str, Tensor]:
    """All that a run leaves: last and selected weights, momenta, memory."""
    for _ in training.run():
        pass
    return {name: tensor.clone() for name, tensor in training.tensors().items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return set(first) == set(second) and all(torch.equal(first[name], second[name]) for name in first)
