"""The dataset: what it refuses, and what it hands out."""

import hashlib
import os
import subprocess
import sys
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scaleproof.data import Dataset


def make(images=None, labels=None, classes=("a", "b")):
    images = np.zeros((4, 3, 2, 2), np.uint8) if images is None else images
    labels = np.array([0, 1, 0, 1], np.int64) if labels is None else labels
    return Dataset(name="mine", split="test", images=images, labels=labels, classes=classes, source="A test.")


def floats(index, value):
    images = np.zeros((4, 3, 2, 2), np.float32)
    images[index, 1, 1, 0] = value
    return images


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": [[1]]}, "must be a numpy array; this is a list"),
        ({"images": np.zeros((4, 3, 2, 2))}, "uint8 .* or float32 .*; these are float64"),
        (
            {"images": np.zeros((4, 2, 2, 3), np.uint8)},
            r"this is \(4, 2, 2, 3\). Channels last: use .transpose",
        ),
        (
            {"images": np.zeros((4, 2, 2, 1), np.uint8)},
            r"this is \(4, 2, 2, 1\). Channels last: use .transpose",
        ),
        ({"images": np.zeros((4, 2, 2), np.uint8)}, r"without an axis of channels: use images\[:, None\]"),
        ({"images": np.zeros((4, 12), np.uint8)}, r"Flat rows: use .reshape\(-1, channels, height, width\)"),
        ({"images": np.zeros((4, 4, 2, 2), np.uint8)}, r"leave the transparency out with images\[:, :3\]"),
        ({"images": np.zeros((4, 2, 2, 4), np.uint8)}, r"images\[..., :3\].transpose\(0, 3, 1, 2\)"),
        (
            {"images": np.zeros((4, 5, 2, 2), np.uint8)},
            r"this is \(4, 5, 2, 2\). Give images of 1 or 3 channels",
        ),
        ({"images": np.zeros((0, 3, 2, 2), np.uint8)}, "at least one pixel"),
        ({"labels": [0, 1, 0, 1]}, "numpy array of int64; this is list"),
        ({"labels": np.zeros(4, np.int32)}, "numpy array of int64; this is int32"),
        ({"labels": np.zeros((4, 1), np.int64)}, r"shape \(N,\); this is \(4, 1\)"),
        ({"labels": np.zeros(3, np.int64)}, "labels have another length .*: 3 labels, 4 images"),
        ({"labels": np.array([0, 1, 2, 9])}, "from 0 to 1 for 2 classes; label 2 stands at index 2"),
        ({"labels": np.array([0, -1, 0, 0])}, "label -1 stands at index 1"),
        ({"images": floats(2, np.nan)}, "must be finite; image 2 holds nan"),
        ({"images": floats(1, np.inf)}, "must be finite; image 1 holds inf"),
        ({"images": floats(3, 255)}, r"must lie in \[0, 1\]; image 3 holds 255"),
        ({"images": floats(3, -0.5)}, r"must lie in \[0, 1\]; image 3 holds -0.5"),
    ],
)
def test_bad_input_is_refused_with_the_value_seen(change, message):
    with pytest.raises(ValueError, match=message):
        make(**change)


def test_grey_images_have_one_channel():
    x, _ = make(images=np.full((4, 1, 2, 2), 51, np.uint8)).batch(0, 4)
    assert x.shape == (4, 1, 2, 2)
    assert x[0, 0, 0, 0] == torch.tensor(51) / 255


def test_offender_beyond_the_first_piece_has_its_own_index():
    images = np.zeros((600, 3, 1, 1), np.float32)
    images[555] = 2
    with pytest.raises(ValueError, match="image 555 holds 2"):
        make(images=images, labels=np.zeros(600, np.int64))


def test_dataset_is_frozen_and_has_a_length():
    dataset = make()
    assert len(dataset) == 4
    with pytest.raises(FrozenInstanceError):
        dataset.name = "other"


def test_first_keeps_the_order_and_refuses_more_than_there_is():
    dataset = make()
    assert dataset.first(3).labels.tolist() == [0, 1, 0]
    for n in (0, 5, -1):
        with pytest.raises(ValueError, match=f"n from 1 to 4.*n is {n}"):
            dataset.first(n)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (2, 2), (3, 1), (4, 6)])
def test_batch_refuses_empty_and_outside(start, stop):
    with pytest.raises(ValueError, match=f"start {start} and stop {stop}"):
        make().batch(start, stop)


def test_bytes_become_exact_float32_quotients():
    values = np.arange(256, dtype=np.uint8).repeat(3).reshape(256, 3, 1, 1)
    x, y = make(images=values, labels=np.zeros(256, np.int64)).batch(0, 999)
    assert (x.dtype, y.dtype, x.shape) == (torch.float32, torch.int64, (256, 3, 1, 1))
    assert torch.equal(x[:, 0, 0, 0], torch.arange(256).float() / 255)


def test_batch_is_a_copy_even_of_read_only_floats():
    images = np.full((4, 3, 2, 2), 0.25, np.float32)
    images.flags.writeable = False
    x, y = make(images=images).batch(1, 3)
    x += 1
    y += 1
    assert images.max() == np.float32(0.25)
    assert x.is_contiguous()


def test_select_gives_the_rows_asked_for():
    images = np.arange(4, dtype=np.uint8).repeat(12).reshape(4, 3, 2, 2)
    x, y = make(images=images).select(np.array([3, 0]))
    assert torch.equal(x[:, 0, 0, 0], torch.tensor([3, 0]).float() / 255)
    assert y.tolist() == [1, 0]


@settings(deadline=None)
@given(st.integers(0, 3), st.integers(0, 3))
def test_digest_sees_every_pixel_and_label(image, label):
    images, labels = np.zeros((4, 3, 2, 2), np.uint8), np.array([0, 1, 0, 1])
    before = make(images=images.copy(), labels=labels.copy()).digest()
    assert before == hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    images[image, 0, 0, 0] = 1
    assert make(images=images, labels=labels).digest() != before
    labels[label] = 1 - labels[label]
    assert make(images=np.zeros_like(images), labels=labels).digest() != before


def test_importing_the_data_package_leaves_torch_and_matplotlib_alone():
    code = "import sys, scaleproof.data; print({'torch', 'matplotlib', 'scipy'} & set(sys.modules))"
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=paths
    )
    assert answer.stdout.strip() == "set()"
