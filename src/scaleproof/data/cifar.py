"""CIFAR-10 and CIFAR-100 as their authors publish them: binary or python batches, loose or in an archive."""

import gzip
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scaleproof.data import classes
from scaleproof.data.dataset import Array, Dataset
from scaleproof.data.known import check_cifar10_batch
from scaleproof.data.unpickle import read_numbers

PIXELS = 3 * 32 * 32
LARGEST_MEMBER = 256 * 2**20


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where one of the two sets keeps its batches, and how a batch keeps its labels."""

    name: str
    classes: tuple[str, ...]
    label_bytes: int
    label_key: str
    batches: dict[str, tuple[str, ...]]
    folders: dict[str, str]
    archives: dict[str, str]

    def files(self, form: str, split: str) -> tuple[str, ...]:
        """Name the files of a split, in the form binary or python."""
        ending = ".bin" if form == "binary" else ""
        return tuple(batch + ending for batch in self.batches[split])


CIFAR10 = Layout(
    name="cifar10",
    classes=classes.CIFAR10,
    label_bytes=1,
    label_key="labels",
    batches={"test": ("test_batch",), "train": tuple(f"data_batch_{i}" for i in range(1, 6))},
    folders={"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"},
    archives={"binary": "cifar-10-binary.tar.gz", "python": "cifar-10-python.tar.gz"},
)
CIFAR100 = Layout(
    name="cifar100",
    classes=classes.CIFAR100,
    label_bytes=2,
    label_key="fine_labels",
    batches={"test": ("test",), "train": ("train",)},
    folders={"binary": "cifar-100-binary", "python": "cifar-100-python"},
    archives={"binary": "cifar-100-binary.tar.gz", "python": "cifar-100-python.tar.gz"},
)


def read_folder(layout: Layout, form: str, folder: Path, split: str) -> Dataset:
    """Read a split from the batch files in a folder."""
    files = layout.files(form, split)
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise ValueError(f"{folder} must hold {', '.join(files)}; {missing[0]} is missing. Get it again.")
    contents = {file: (folder / file).read_bytes() for file in files}
    return _assemble(layout, form, contents, split, folder)


def read_archive(layout: Layout, form: str, archive: Path, split: str) -> Dataset:
    """Read a split straight from a .tar.gz archive; nothing is unpacked to disk."""
    contents = _members(archive, layout.files(form, split))
    return _assemble(layout, form, contents, split, archive)


def parse_binary(data: bytes, label_bytes: int, label: str) -> tuple[Array, Array]:
    """Split binary records into (N, 3, 32, 32) images and the last label byte of each."""
    record = label_bytes + PIXELS
    if not data or len(data) % record:
        raise ValueError(
            f"{label} must hold whole records of {record} bytes; it has {len(data)} bytes, which is "
            f"{len(data) // record} records and {len(data) % record} bytes. Get the file again."
        )
    table = np.frombuffer(data, np.uint8).reshape(-1, record)
    return table[:, label_bytes:].reshape(-1, 3, 32, 32), table[:, label_bytes - 1].astype(np.int64)


def parse_python(data: bytes, label_key: str, label: str) -> tuple[Array, Array]:
    """Take the images and labels out of a python batch."""
    content = read_numbers(data, label)
    missing = [key for key in ("data", label_key) if key not in content]
    if missing:
        raise ValueError(f"{label} must hold {missing[0]!r}; it holds {sorted(content)}. Is it another set?")
    pixels = content["data"]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (PIXELS,):
        raise ValueError(f"{label} must hold uint8 rows of {PIXELS} pixels under 'data'. Get the file again.")
    return pixels.reshape(-1, 3, 32, 32), _integers(content[label_key], label)


def _integers(values: Any, label: str) -> Array:
    """Turn the labels of a python batch into int64."""
    labels = np.asarray(values)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"{label} must hold a list of whole numbers as labels. Get the file again.")
    return labels.astype(np.int64)


def _assemble(layout: Layout, form: str, contents: dict[str, bytes], split: str, place: Path) -> Dataset:
    """Parse the batches of a split, check each, and join them in order."""
    parts = [_parse(layout, form, data, place / file) for file, data in contents.items()]
    return Dataset(
        name=layout.name,
        split=split,
        images=np.concatenate([images for images, _ in parts]),
        labels=np.concatenate([labels for _, labels in parts]),
        classes=layout.classes,
        source=f"The {form} batches of {layout.name}, {split} split, read from {place.name}.",
    )


def _parse(layout: Layout, form: str, data: bytes, path: Path) -> tuple[Array, Array]:
    """Parse one batch, and compare a batch of CIFAR-10 with the published one."""
    if form == "binary":
        images, labels = parse_binary(data, layout.label_bytes, str(path))
    else:
        images, labels = parse_python(data, layout.label_key, str(path))
    if len(images) != len(labels):
        raise ValueError(
            f"{path}: labels have another length ({len(labels)}) than the images ({len(images)})."
        )
    if layout.name == "cifar10":
        check_cifar10_batch(images, labels, path.name.removesuffix(".bin"), str(path))
    return images, labels


def _members(archive: Path, files: tuple[str, ...]) -> dict[str, bytes]:
    """Read the wanted members of an archive into memory in one pass, by their last name only."""
    found: dict[str, bytes] = {}
    try:
        with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                file = member.name.rsplit("/", 1)[-1]
                if member.isfile() and file in files and file not in found:
                    found[file] = _member_bytes(tar, member, archive)
            _read_to_end(stream)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{archive} is damaged or cut ({error}). Delete it and get it again.") from error
    missing = [file for file in files if file not in found]
    if missing:
        raise ValueError(f"{archive} must hold {missing[0]}; it does not. Get the archive again.")
    return {file: found[file] for file in files}


def _read_to_end(stream: gzip.GzipFile) -> None:
    """Read what is left of an archive: gzip compares its checksum only at the end."""
    while stream.read(2**20):
        pass


def _member_bytes(tar: tarfile.TarFile, member: tarfile.TarInfo, archive: Path) -> bytes:
    """Read one member, if its size is one that a batch can have."""
    stream = tar.extractfile(member)
    if stream is None or member.size > LARGEST_MEMBER:
        raise ValueError(
            f"{archive}: {member.name} must be a file of at most {LARGEST_MEMBER} bytes; "
            f"it has {member.size}. Get the archive again."
        )
    return stream.read()
