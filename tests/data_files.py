"""Write image sets by the specification of their formats, independently of the readers."""

import hashlib
import io
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from scaleproof.data import known


def some_images(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Draw random uint8 images of shape (count, 3, 32, 32)."""
    return np.random.default_rng(seed).integers(0, 256, (count, 3, 32, 32), np.uint8)


def binary_batch(images: np.ndarray[Any, Any], *label_columns: Any) -> bytes:
    """Write records of label bytes followed by the red, green and blue planes."""
    rows = zip(images, *label_columns, strict=True)
    return b"".join(bytes(int(label) for label in labels) + image.tobytes() for image, *labels in rows)


def python2_batch(images: np.ndarray[Any, Any], labels: list[int], key: str = "labels") -> bytes:
    """Write the opcodes with which python 2 pickled the published batches."""
    raw = images.tobytes()
    shape = b"J" + struct.pack("<i", len(images)) + b"J" + struct.pack("<i", 3072) + b"\x86"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01"
        + shape
        + b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
        b"K\x00tb\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    )
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    name = b"U" + bytes([len(key)]) + key.encode()
    return b"\x80\x02}(U\x04data" + array + name + numbers + b"u."


def python3_batch(images: np.ndarray[Any, Any], labels: Any, protocol: int, key: str = "labels") -> bytes:
    """Pickle a batch anew, as users do."""
    return pickle.dumps({"data": images.reshape(-1, 3072), key: labels}, protocol=protocol)


def archive(path: Path, contents: dict[str, bytes]) -> Path:
    """Write a .tar.gz archive of the given members."""
    with tarfile.open(path, "w:gz") as tar:
        for name, data in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


BATCH = 20
CIFAR10_FILES = ("test_batch", *(f"data_batch_{number}" for number in range(1, 6)))


def small_cifar10() -> dict[str, tuple[np.ndarray[Any, Any], list[int]]]:
    """Draw six batches of 20 images, two of each class."""
    labels = [index % 10 for index in range(BATCH)]
    return {file: (some_images(BATCH, seed), labels) for seed, file in enumerate(CIFAR10_FILES)}


def pretend_published(monkeypatch: Any) -> dict[str, tuple[np.ndarray[Any, Any], list[int]]]:
    """Let small random sets count as the published ones for one test."""
    batches = small_cifar10()
    hashes = {
        file: known.binary_sha256(images, np.array(labels)) for file, (images, labels) in batches.items()
    }
    counts = {
        ("cifar10", "test"): (2,) * 10,
        ("cifar10", "train"): (10,) * 10,
        ("cifar100", "test"): (1,) * 100,
        ("cifar100", "train"): (2,) * 100,
        ("svhn", "test"): (2,) * 10,
        ("svhn", "train"): (3,) * 10,
    }
    monkeypatch.setattr(known, "CIFAR10_SHA256", hashes)
    monkeypatch.setattr(known, "CIFAR10_BATCH", BATCH)
    monkeypatch.setattr(known, "CLASS_COUNTS", counts)
    return batches


def binary_files() -> dict[str, bytes]:
    """Write the small CIFAR-10 as binary batches."""
    return {f"{file}.bin": binary_batch(images, labels) for file, (images, labels) in small_cifar10().items()}


def write_all(folder: Path, contents: dict[str, bytes]) -> Path:
    """Write files into a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return folder


def publish_mat(monkeypatch: Any, path: Path, images: np.ndarray[Any, Any], labels: Any) -> Path:
    """Write a MATLAB file that counts as the published test file."""
    write_mat(path, images, labels)
    monkeypatch.setitem(known.SVHN_MD5, "test", hashlib.md5(path.read_bytes()).hexdigest())
    return path


def write_mat(path: Path, images: np.ndarray[Any, Any], labels: Any) -> Path:
    """Write a MATLAB file as SVHN has it: X is (32, 32, 3, N), y is (N, 1), and 10 means the digit 0."""
    from scipy.io import savemat

    savemat(path, {"X": images.transpose(2, 3, 1, 0), "y": np.asarray(labels, np.uint8).reshape(-1, 1)})
    return path
