"""Training and test images fit each other, or are refused before anything is computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scaleproof import load
from scaleproof.training import Trainer
from scaleproof.training.checks import check_alike
from test_training_mistakes import invoke
from training_helpers import QUICK, chosen, network, small


def test_a_part_of_the_test_images_is_no_training_set(tmp_path: Path) -> None:
    images, mine = load("sample").first(60), tmp_path / "mine.npz"
    np.savez(mine, images=images.images, labels=images.labels)
    settings = ["--data", str(mine), "--limit", "40", "--batch-size", "20", "--out", str(tmp_path / "run")]
    assert "the test images are the training images" in invoke("at", *settings)[1]


def test_a_part_of_the_training_set_is_no_test_set(tmp_path: Path) -> None:
    images = load("sample-train").first(60)
    for name, count in (("big", 60), ("small", 40)):
        part = images.first(count)
        np.savez(tmp_path / f"{name}.npz", images=part.images, labels=part.labels)
    settings = ["--data", str(tmp_path / "big.npz"), "--test-data", str(tmp_path / "small.npz")]
    settings += ["--limit", "40", "--batch-size", "20", "--out", str(tmp_path / "run")]
    assert "the test images are the training images" in invoke("at", *settings)[1]


def test_test_images_that_are_trained_on_are_counted(tmp_path: Path) -> None:
    """As in sets that somebody split after duplicating images; a set of bytes may meet one of floats."""
    images, others = load("sample-train").first(60), load("sample").first(20)
    mixed = np.concatenate([images.images[:3], others.images[3:]])
    np.savez(tmp_path / "train.npz", images=images.images, labels=images.labels)
    np.savez(tmp_path / "test.npz", images=mixed.astype(np.float32) / 255, labels=others.labels)
    settings = ["--data", str(tmp_path / "train.npz"), "--test-data", str(tmp_path / "test.npz")]
    settings += ["--model", "resnet-tiny", "--batch-size", "20", "--epochs", "1", "--attacks", "pgd"]
    code, error, told = invoke("at", *settings, "--out", str(tmp_path / "run"))
    assert code == 0, error
    assert "3 of the 20 test images are among the training images, pixel by pixel" in told
    assert images.shared_with(images) == 60
    assert others.shared_with(images) == 0


def test_pairs_of_tensors_are_told_what_a_training_takes() -> None:
    pair: Any = (torch.rand(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(
        ValueError, match=r"dataset must be a Dataset, got tuple: load\('images.npz'\) makes one"
    ):
        Trainer(network(), pair, chosen("at"), QUICK)
    with pytest.raises(ValueError, match="test must be a Dataset, got tuple"):
        Trainer(network(), small(), chosen("at"), QUICK, test=pair)


def test_test_images_of_a_class_that_nobody_trains_are_refused(tmp_path: Path) -> None:
    images = load("sample-train").first(60)
    for name, labels in (("train", images.labels % 3), ("test", images.labels % 3 + 1)):
        shifted = images.images if name == "train" else images.images[:, :, ::-1]
        np.savez(tmp_path / f"{name}.npz", images=shifted, labels=labels)
    settings = ["--data", str(tmp_path / "train.npz"), "--test-data", str(tmp_path / "test.npz")]
    code, error, _ = invoke("at", *settings, "--batch-size", "20", "--out", str(tmp_path / "run"))
    assert code != 0
    assert "the test images have the label 3, the training images 3 classes" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("names", "others", "message"),
    [
        (["cat", "dog", "owl"], ["cat", "owl", "dog"], "class 1 is 'dog' in the training images (train) and 'owl'"),
        (["cat", "dog", "owl"], ["cat", "dog", "elk"], "class 2 is 'owl' in the training images (train) and 'elk'"),
        (["0", "10", "2"], None, "class 1 is '10' in the training images (train) and '1' in the test images (test)"),
        (["cat", "dog", "owl"], ["cat", "dog", "owl"], None),
        (["cat", "dog", "owl"], None, None),
        (None, ["cat", "dog", "owl"], None),
        (["cat", "dog", "owl", "elk"], None, None),
        (None, ["0", "1"], None),
        (["cat", "dog", "owl", "elk"], ["cat", "dog", "owl"], "(train) have 4 classes, the test images (test) 3"),
        (None, ["0", "1", "2", "3"], "(train) have 3 classes, the test images (test) 4"),
    ],
)  # fmt: skip
def test_classes_that_contradict_are_refused(
    tmp_path: Path, names: list[str] | None, others: list[str] | None, message: str | None
) -> None:
    images, labels = load("sample-train").first(60), load("sample-train").first(60).labels % 3
    for name, classes in (("train", names), ("test", others)):
        named = {} if classes is None else {"classes": np.array(classes)}
        shifted = images.images if name == "train" else images.images[:, :, ::-1]
        lower = np.minimum(labels, len(classes or labels) - 1)
        np.savez(tmp_path / f"{name}.npz", images=shifted, labels=lower, **named)  # type: ignore[arg-type]
    training, test = (load(tmp_path / f"{name}.npz") for name in ("train", "test"))
    if message is None:
        check_alike(training, test, "resnet18")
        return
    settings = ["--data", str(tmp_path / "train.npz"), "--test-data", str(tmp_path / "test.npz")]
    code, error, _ = invoke("at", *settings, "--batch-size", "20", "--out", str(tmp_path / "run"))
    assert code != 0
    assert message in error
    assert "Save both .npz files with one list of classes" in error
    assert not (tmp_path / "run").exists()


def test_test_images_of_another_size_are_refused() -> None:
    images, test = load("sample-train").first(60), load("sample")
    with pytest.raises(
        ValueError, match=r"\(sample-train\) are of 32 x 32 .* \(sample\) of 32 x 28: both must have"
    ):
        check_alike(images, replace(test, images=test.images[..., :28]), "resnet18")
