"""Find a published set in a folder, in whichever format it is there, and read it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scaleproof.data import cifar, classes, known, mosaic, svhn
from scaleproof.data.dataset import Dataset

PUBLISHED = ("cifar10", "cifar100", "svhn")
SPLITS = ("test", "train")
_LAYOUTS = {"cifar10": cifar.CIFAR10, "cifar100": cifar.CIFAR100}
_CLASSES = {"cifar10": classes.CIFAR10, "cifar100": classes.CIFAR100, "svhn": classes.DIGITS}


@dataclass(frozen=True, kw_only=True)
class Found:
    """A split of a published set: the form it has and the folder or file that holds it."""

    name: str
    split: str
    form: str
    path: Path

    def is_there(self) -> bool:
        """Say whether anything of this form is at the path."""
        if self.form == "mosaic":
            return mosaic.is_there(self.path, self.split)
        if self.form in ("binary", "python"):
            files = _LAYOUTS[self.name].files(self.form, self.split)
            return any((self.path / file).is_file() for file in files)
        return self.path.is_file()


def find(name: str, split: str, place: Path) -> Found | None:
    """Find a split in a folder or its subfolder of that name, or take a single file for it."""
    candidates = _file_candidates if place.is_file() else _folder_candidates
    return next((found for found in candidates(name, split, place) if found.is_there()), None)


def read(found: Found) -> Dataset:
    """Read a split and require it to be the published one."""
    dataset = _read_form(found)
    known.check_class_sizes(dataset, str(found.path))
    if found.form != "mosaic":
        return dataset
    if found.name == "cifar10":
        known.check_cifar10_order(dataset, str(found.path))
    return known.with_origin(dataset)


def _read_form(found: Found) -> Dataset:
    """Read a split with the reader of its form."""
    if found.form == "mosaic":
        return mosaic.read_folder(found.path, found.split, name=found.name, classes=_CLASSES[found.name])
    if found.form == "mat":
        known.check_svhn_file(found.path, found.split)
        return svhn.read_mat(found.path, found.split)
    layout = _LAYOUTS[found.name]
    if found.form.endswith(" archive"):
        return cifar.read_archive(layout, found.form.removesuffix(" archive"), found.path, found.split)
    return cifar.read_folder(layout, found.form, found.path, found.split)


def _folder_candidates(name: str, split: str, root: Path) -> Iterator[Found]:
    """List where a split may be, the quickest to read first."""
    places = (root / name, root)
    if name in _LAYOUTS:
        for form, folder in _LAYOUTS[name].folders.items():
            for place in places:
                yield Found(name=name, split=split, form=form, path=place / folder)
                yield Found(name=name, split=split, form=form, path=place)
    for place in places:
        yield Found(name=name, split=split, form="mosaic", path=place)
    for place in places:
        yield from _originals(name, split, place)


def _originals(name: str, split: str, place: Path) -> Iterator[Found]:
    """List the files as they are downloaded."""
    if name == "svhn":
        yield Found(name=name, split=split, form="mat", path=place / svhn.file_name(split))
        return
    for form, archive in _LAYOUTS[name].archives.items():
        yield Found(name=name, split=split, form=f"{form} archive", path=place / archive)


def _file_candidates(name: str, split: str, file: Path) -> Iterator[Found]:
    """Take a single file for an archive of CIFAR or for one split of SVHN."""
    if name == "svhn" and file.suffix == ".mat" and file.name.startswith(split):
        yield Found(name=name, split=split, form="mat", path=file)
    if name in _LAYOUTS and file.name.endswith((".tar.gz", ".tgz")):
        form = "python" if "python" in file.name else "binary"
        yield Found(name=name, split=split, form=f"{form} archive", path=file)
