"""What is known of the published sets: sizes of classes, hashes, and what a rebuilt copy is."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from scaleproof.data.dataset import Array, Dataset
from scaleproof.data.download import file_md5

CIFAR10_SHA256: dict[str, str] = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
CIFAR10_BATCH = 10_000

SVHN_MD5 = {"train": "e26dedcc434d2e4c54c9b2d4a06d8373", "test": "eb5a983be6a315427106f1b164d9cef3"}

CLASS_COUNTS: dict[tuple[str, str], tuple[int, ...]] = {
    ("cifar10", "test"): (1000,) * 10,
    ("cifar10", "train"): (5000,) * 10,
    ("cifar100", "test"): (100,) * 100,
    ("cifar100", "train"): (500,) * 100,
    ("svhn", "test"): (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
    ("svhn", "train"): (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
}

_REBUILT_SVHN = (
    "SVHN rebuilt from the photos of full numbers, not the published pixels: all images in the original "
    "order; of the first 1083 originals 98% are bit-exact and no pixel differs by more than 1."
)
_REORDERED_CIFAR100 = (
    "CIFAR-100 with every published image bit-exact but in another order: "
    "a part of it is a part of this order."
)
REBUILT: dict[str, str] = {
    "802a99e89470bf446a0f1753d45261440e24869d5fcf816aa44579d9b6ebb0c0": _REBUILT_SVHN,
    "67348aad678fc1e32e4ac82cd11325f73116a14c50ce03a4df5ce625f35d263a": _REBUILT_SVHN,
    "95a44bc48421e0ef3936dcc34f1a0162d191b21eee30512c01598cc6fb31ae52": _REORDERED_CIFAR100,
    "e9c50c61cf280d2d14e8044dc750aaad8406e349197470b40a8164a8ca25792b": _REORDERED_CIFAR100,
}


def check_cifar10_batch(images: Array, labels: Array, batch: str, label: str) -> None:
    """Compare one batch of CIFAR-10 with the sha256 of the published binary batch of that name."""
    expected = CIFAR10_SHA256.get(batch)
    if expected is None:
        return
    if len(images) != CIFAR10_BATCH:
        raise ValueError(
            f"{label} must hold {CIFAR10_BATCH} images; this has {len(images)}. Get the file again."
        )
    seen = binary_sha256(images, labels)
    if seen != expected:
        raise ValueError(
            f"{label} is not the published batch of CIFAR-10: the sha256 of its records is {seen[:16]}..., "
            f"not {expected[:16]}.... Get the file again."
        )


def check_svhn_file(path: Path, split: str) -> None:
    """Require the published file of SVHN before it is opened: scipy can crash on a damaged one."""
    seen = file_md5(path)
    if seen != SVHN_MD5[split]:
        raise ValueError(
            f"{path} is not the published {split} file of SVHN: its md5 is {seen}, not {SVHN_MD5[split]}. "
            "Get it again, or keep images of your own as an .npz file."
        )


def binary_sha256(images: Array, labels: Array) -> str:
    """Give the sha256 that images and labels have as records of CIFAR-10's binary format."""
    rows = [labels.astype(np.uint8).reshape(-1, 1), images.reshape(len(images), -1)]
    return hashlib.sha256(np.concatenate(rows, axis=1).data).hexdigest()


def check_class_sizes(dataset: Dataset, place: str) -> None:
    """Require the class sizes of the published set."""
    expected = CLASS_COUNTS.get((dataset.name, dataset.split))
    seen = tuple(np.bincount(dataset.labels, minlength=len(dataset.classes)).tolist())
    if expected is not None and seen != expected:
        raise ValueError(
            f"{place}: {dataset.name} {dataset.split} must have {sum(expected)} images, {_range(expected)} a "
            f"class; this has {len(dataset)}, {_range(seen)} a class. Is it another set? Get it again."
        )


def with_origin(dataset: Dataset) -> Dataset:
    """Let a copy that is known to differ from the published set say so."""
    origin = REBUILT.get(dataset.digest())
    return dataset if origin is None else replace(dataset, source=origin)


def check_cifar10_order(dataset: Dataset, place: str) -> None:
    """Compare a whole split of CIFAR-10 in another format with the published batches."""
    names = ("test_batch",) if dataset.split == "test" else tuple(f"data_batch_{i}" for i in range(1, 6))
    for number, name in enumerate(names):
        part = slice(number * CIFAR10_BATCH, (number + 1) * CIFAR10_BATCH)
        check_cifar10_batch(dataset.images[part], dataset.labels[part], name, f"{place}, {name},")


def _range(counts: tuple[int, ...]) -> str:
    """Write the smallest and largest count."""
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"
