"""Load, find and fetch image sets by their names."""

import difflib
import os
from dataclasses import replace
from pathlib import Path

from scaleproof.data import arrays, class_folders, locate, mosaic, samples
from scaleproof.data.dataset import Dataset
from scaleproof.data.download import Progress, Remote, fetch
from scaleproof.data.known import SVHN_MD5
from scaleproof.data.locate import PUBLISHED, SPLITS, Found

CIFAR_HOME = "https://www.cs.toronto.edu/~kriz"
SVHN_HOME = "http://ufldl.stanford.edu/housenumbers"

REMOTES: dict[str, tuple[Remote, ...]] = {
    "cifar10": (
        Remote(base=CIFAR_HOME, file="cifar-10-binary.tar.gz", md5="c32a1d4ab5d03f1284b67883e8d87530"),
    ),
    "cifar100": (
        Remote(base=CIFAR_HOME, file="cifar-100-binary.tar.gz", md5="03b5dce01913d631647c71ecec9e9cb8"),
    ),
    "svhn": (
        Remote(base=SVHN_HOME, file="train_32x32.mat", md5=SVHN_MD5["train"]),
        Remote(base=SVHN_HOME, file="test_32x32.mat", md5=SVHN_MD5["test"]),
    ),
}


def names() -> tuple[str, ...]:
    """Name every set that load knows."""
    return (*PUBLISHED, *samples.NAMES)


def data_folder(folder: Path | str | None = None) -> Path:
    """Give the folder of the data: the one asked for, else SCALEPROOF_DATA, else the user's cache."""
    chosen = folder or os.environ.get("SCALEPROOF_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "scaleproof" / "data"


def load(name: str | Path, *, split: str = "test", folder: Path | str | None = None) -> Dataset:
    """Load a set by its name, or from the path of an .npz file or a folder."""
    check_split(split)
    text = str(name)
    if text in samples.NAMES:
        return samples.read("train" if text == "sample-train" else split)
    if text in PUBLISHED:
        return _load_published(text, split, data_folder(folder))
    path = Path(name).expanduser()
    if path.suffix == ".npz":
        return arrays.read_npz(path, split)
    if path.is_dir():
        return _load_folder(path, split)
    raise _unknown(text)


def locations(name: str, folder: Path | str | None = None) -> dict[str, Found]:
    """Find which splits of a published set are there, and in which form."""
    check_published_name(name)
    found = {split: locate.find(name, split, data_folder(folder)) for split in SPLITS}
    return {split: place for split, place in found.items() if place is not None}


def remotes(name: str, base: str | None = None) -> tuple[Remote, ...]:
    """List the files to fetch for a published set, from its home page or from another base address."""
    check_published_name(name)
    return tuple(remote if base is None else replace(remote, base=base) for remote in REMOTES[name])


def get(
    name: str, folder: Path | str | None = None, progress: Progress | None = None, *, base: str | None = None
) -> list[Path]:
    """Fetch the files of a published set, unless all of it is there; give the paths of the files."""
    wanted = remotes(name, base)
    if len(locations(name, folder)) == len(SPLITS):
        return []
    return [fetch(remote, data_folder(folder) / name, progress) for remote in wanted]


def check_split(split: str) -> None:
    """Require one of the two splits."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}; it is {split!r}.")


def check_published_name(name: str) -> None:
    """Require the name of a set that is fetched or imported."""
    if name in samples.NAMES:
        raise ValueError(f"{name} comes with scaleproof; load it as it is. Others: {', '.join(PUBLISHED)}.")
    if name not in PUBLISHED:
        raise _unknown(name)


def _load_published(name: str, split: str, root: Path) -> Dataset:
    """Read a published set from wherever it is under a folder."""
    found = locate.find(name, split, root)
    if found is None:
        raise ValueError(
            f"{name}, {split} split, is not there: looked in {root / name} and {root} for batches, archives, "
            f"MATLAB files and mosaics. Fetch it with: scaleproof data get {name}, "
            f"or, where you have its files: scaleproof data import FOLDER {name}"
        )
    return locate.read(found)


def _load_folder(folder: Path, split: str) -> Dataset:
    """Read the one set that a folder holds: a published one, mosaics, or class folders of images."""
    own = folder.resolve().name
    if mosaic.is_there(folder, split) and own not in PUBLISHED:
        return mosaic.read_folder(folder, split, name=own)
    places = [locate.find(name, split, folder) for name in PUBLISHED]
    found = [place for place in places if place is not None]
    if mosaic.is_there(folder, split):
        found = [place for place in found if place.name == own]
    if not found and not _holds_mosaics(folder) and class_folders.is_there(folder):
        return class_folders.read(folder, split)
    if len(found) != 1:
        seen = ", ".join(place.name for place in found) or "none"
        raise ValueError(
            f"{folder} must hold one set with a {split} split: a subfolder of images (PNG, JPEG, WebP) for each "
            f"class, or a published set as batches, archives, MATLAB files or mosaics; found: {seen}. "
            f"Give a name and folder={str(folder)!r}, or another path."
        )
    return locate.read(found[0])


def _holds_mosaics(folder: Path) -> bool:
    """Say whether the pictures in a folder are mosaics of some split, and no images themselves."""
    return any(mosaic.is_there(folder, split) for split in SPLITS)


def _unknown(name: str) -> ValueError:
    """Say that a name is unknown, and which one is near."""
    if Path(name).expanduser().is_file():
        return ValueError(f"{name} must be an .npz file or a folder; it is another file. Give one of those.")
    if os.sep in name or "." in name:
        return ValueError(
            f"{name} is not there. Give an .npz file, a folder, or one of {', '.join(names())}."
        )
    near = difflib.get_close_matches(name.lower(), names(), n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    return ValueError(f"{name!r} is not a known set.{hint} Known: {', '.join(names())}, or a path.")
