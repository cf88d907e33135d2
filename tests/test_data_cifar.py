"""CIFAR batches: binary and python, loose and in archives, honest and hostile."""

import contextlib
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import data_files
from scaleproof.data import cifar
from scaleproof.data.unpickle import read_numbers

LABELS = [3, 1, 4, 1, 5]
IMAGES = data_files.some_images(5)


def test_binary_cifar10_is_one_label_and_three_planes():
    images, labels = cifar.parse_binary(data_files.binary_batch(IMAGES, LABELS), 1, "x.bin")
    assert np.array_equal(images, IMAGES)
    assert labels.tolist() == LABELS


def test_binary_cifar100_takes_the_fine_label():
    data = data_files.binary_batch(IMAGES, [19] * 5, [99, 0, 7, 42, 1])
    images, labels = cifar.parse_binary(data, 2, "x.bin")
    assert np.array_equal(images, IMAGES)
    assert labels.tolist() == [99, 0, 7, 42, 1]


@pytest.mark.parametrize("length", [0, 3072, 3074, 5 * 3073 - 1])
def test_binary_of_another_size_is_refused(length):
    with pytest.raises(
        ValueError, match=rf"x\.bin must hold whole records of 3073 bytes; it has {length} bytes"
    ):
        cifar.parse_binary(bytes(length), 1, "x.bin")


@pytest.mark.parametrize("key", ["labels", "fine_labels"])
def test_python2_pickle_as_published(key):
    images, labels = cifar.parse_python(data_files.python2_batch(IMAGES, LABELS, key), key, "batch")
    assert np.array_equal(images, IMAGES)
    assert labels.tolist() == LABELS


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("labels", [LABELS, np.array(LABELS), np.array(LABELS, ">i4")])
def test_python3_pickles_of_every_protocol(protocol, labels):
    data = data_files.python3_batch(IMAGES, labels, protocol)
    images, seen = cifar.parse_python(data, "labels", "batch")
    assert np.array_equal(images, IMAGES)
    assert seen.tolist() == LABELS


def test_fortran_order_is_kept():
    array = np.asfortranarray(IMAGES.reshape(-1, 3072))
    data = pickle.dumps({"data": array, "labels": LABELS}, protocol=2)
    assert np.array_equal(cifar.parse_python(data, "labels", "batch")[0], IMAGES)


class Payload:
    """Make a folder when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_hostile_pickle_is_refused_and_does_not_run(tmp_path, protocol):
    proof = tmp_path / "payload-ran"
    data = pickle.dumps({"data": Payload(proof), "labels": LABELS}, protocol=protocol)
    with pytest.raises(ValueError, match=r"evil: .*forbidden global (posix|nt)\.mkdir"):
        cifar.parse_python(data, "labels", "evil")
    assert not proof.exists()
    pickle.loads(data)
    assert proof.exists(), "the payload would have run in the plain unpickler"


@pytest.mark.parametrize(
    "name", ["builtins\neval", "numpy\nload", "os\nsystem", "numpy.core.multiarray\nscalar"]
)
def test_other_globals_are_named(name):
    with pytest.raises(ValueError, match=f"forbidden global {name.replace(chr(10), '[.]')}"):
        read_numbers(b"c" + name.encode() + b"\n.", "batch")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "must be a dictionary; this is a list"),
        ({"labels": [1]}, "must hold 'data'; it holds"),
        ({"data": np.zeros((1, 3072), np.uint8), "fine_labels": [1]}, "must hold 'labels'"),
        ({"data": np.zeros((1, 9), np.uint8), "labels": [1]}, "uint8 rows of 3072"),
        ({"data": np.zeros((1, 3072), np.int16), "labels": [1]}, "uint8 rows of 3072"),
        ({"data": np.zeros((1, 3072)), "labels": [1]}, "array of kind f8; only integers"),
        ({"data": np.array([None]), "labels": [1]}, "array of kind O"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": ["cat"]}, "whole numbers as labels"),
    ],
)
def test_python_batch_with_other_content_is_refused(content, message):
    with pytest.raises(ValueError, match=message):
        cifar.parse_python(pickle.dumps(content, protocol=2), "labels", "batch")


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_refused_as_unreadable(data):
    with pytest.raises(ValueError, match="batch"):
        read_numbers(data, "batch")


VALID = data_files.python2_batch(IMAGES[:1], [1])


@settings(deadline=None)
@given(st.integers(0, len(VALID) - 1), st.integers(0, 255), st.booleans())
def test_damaged_pickle_reads_or_is_refused_but_never_fails_otherwise(place, value, cut):
    data = VALID[:place] if cut else VALID[:place] + bytes([value]) + VALID[place + 1 :]
    with contextlib.suppress(ValueError):
        images, labels = cifar.parse_python(data, "labels", "batch")
        assert images.shape[1:] == (3, 32, 32)
        assert labels.dtype == np.int64


@pytest.mark.parametrize("split", ["test", "train"])
def test_folder_and_archive_give_the_same(tmp_path, monkeypatch, split):
    data_files.pretend_published(monkeypatch)
    files = data_files.binary_files()
    folder = data_files.write_all(tmp_path / "batches", files)
    members = {f"cifar-10-batches-bin/{name}": data for name, data in files.items()}
    packed = data_files.archive(tmp_path / "cifar.tar.gz", members)
    loose = cifar.read_folder(cifar.CIFAR10, "binary", folder, split)
    stored = cifar.read_archive(cifar.CIFAR10, "binary", packed, split)
    assert loose.digest() == stored.digest()
    assert len(loose) == (20 if split == "test" else 100)
    assert "cifar.tar.gz" in stored.source


def test_python_batch_of_uneven_lengths_is_named(tmp_path):
    data_files.write_all(tmp_path, {"test_batch": data_files.python2_batch(IMAGES, LABELS[:4])})
    with pytest.raises(
        ValueError, match=r"test_batch: labels have another length \(4\) than the images \(5\)"
    ):
        cifar.read_folder(cifar.CIFAR10, "python", tmp_path, "test")


def test_archive_with_climbing_paths_writes_nothing(tmp_path, monkeypatch):
    data_files.pretend_published(monkeypatch)
    members = {"../../escaped": b"x", "../test_batch.bin": data_files.binary_files()["test_batch.bin"]}
    packed = data_files.archive(tmp_path / "cifar.tar.gz", members)
    assert len(cifar.read_archive(cifar.CIFAR10, "binary", packed, "test")) == 20
    assert [path.name for path in tmp_path.iterdir()] == ["cifar.tar.gz"]


def test_archive_cut_short_missing_or_no_archive(tmp_path):
    packed = data_files.archive(tmp_path / "a.tar.gz", {"test_batch.bin": os.urandom(30_000)})
    packed.write_bytes(packed.read_bytes()[:9_000])
    with pytest.raises(ValueError, match=r"a\.tar\.gz is damaged or cut"):
        cifar.read_archive(cifar.CIFAR10, "binary", packed, "test")
    packed.write_bytes(b"hello")
    with pytest.raises(ValueError, match=r"a\.tar\.gz is damaged or cut"):
        cifar.read_archive(cifar.CIFAR10, "binary", packed, "test")
    data_files.archive(packed, {"readme": b"x"})
    with pytest.raises(ValueError, match=r"must hold test_batch\.bin"):
        cifar.read_archive(cifar.CIFAR10, "binary", packed, "test")


def test_archive_with_a_single_wrong_bit_is_refused(tmp_path):
    content = data_files.binary_batch(IMAGES, [0] * 5, LABELS)
    packed = data_files.archive(tmp_path / "a.tar.gz", {"test.bin": content, "train.bin": content})
    assert len(cifar.read_archive(cifar.CIFAR100, "binary", packed, "test")) == 5
    data = bytearray(packed.read_bytes())
    data[len(data) // 4] ^= 1
    packed.write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.tar\.gz is damaged or cut"):
        cifar.read_archive(cifar.CIFAR100, "binary", packed, "test")


def test_member_beyond_any_batch_is_refused(tmp_path, monkeypatch):
    packed = data_files.archive(tmp_path / "a.tar.gz", {"test_batch.bin": bytes(3073)})
    monkeypatch.setattr(cifar, "LARGEST_MEMBER", 3000)
    with pytest.raises(ValueError, match="at most 3000 bytes; it has 3073"):
        cifar.read_archive(cifar.CIFAR10, "binary", packed, "test")
