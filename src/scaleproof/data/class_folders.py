"""A user's own images in folders, one for each class, as torchvision's ImageFolder has them."""

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scaleproof.data.dataset import Dataset

ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
OTHER_ENDINGS = (".avif", ".bmp", ".gif", ".heic", ".jp2", ".pgm", ".ppm", ".tif", ".tiff")
FORMATS = ("PNG", "JPEG", "WEBP")
GREY = ("1", "L", "LA")
DEEP = ("I", "F")  # modes of more than 8 bits a channel begin so
SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation"}  # alone, no classes
_BROKEN = (OSError, ValueError, struct.error, SyntaxError, EOFError, zlib.error, Image.DecompressionBombError)


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a file says of its image before the pixels are decoded."""

    path: Path
    size: tuple[int, int]  # width and height
    mode: str


def is_there(folder: Path) -> bool:
    """Say whether the subfolders of a folder hold images, or their subfolders do."""
    places = _subfolders(folder)
    return any(_images(place) or _is_split(place) for place in places)


def read(folder: Path, split: str) -> Dataset:
    """Read `folder/split/class/*.png`, or `folder/class/*.png` for either split; classes are sorted by name.

    Where there is a `folder/train`, its classes are those of every split: a class may be absent from the others.
    Classes take turns, so that the first images are a sample of all of them.
    """
    place = _place(folder, split)
    found = _class_folders(place)
    classes = _classes(folder, place, found)
    files = _in_turns([_class_images(one) for one in found])
    return Dataset(
        name=folder.resolve().name,
        split=split,
        images=_pixels([_header(path) for path in files]),
        labels=np.array([classes.index(path.parent.name) for path in files], np.int64),
        classes=classes,
        source=f"The user's own images in {len(found)} class folders of {_place_name(folder, place)}.",
    )


def _in_turns(files: list[list[Path]]) -> list[Path]:
    """Put the images of all classes into one order in which each class is spread evenly, the first ones first."""
    placed = [
        ((place + 0.5) / len(paths), number, path)
        for number, paths in enumerate(files)
        for place, path in enumerate(paths)
    ]
    return [path for *_, path in sorted(placed, key=lambda one: one[:2])]


def _place(folder: Path, split: str) -> Path:
    """Give the folder of the split, or the whole folder where it is not split."""
    inside = _subfolders(folder)
    splits = [place for place in inside if _is_split(place)]
    if folder / split in splits:
        return folder / split
    if splits and not any(_images(place) for place in inside):
        raise ValueError(
            f"{folder} must hold the folder {split} for the {split} split, with a subfolder for each class; it "
            f"holds {', '.join(place.name for place in splits)}. Rename one of them, or give the path of one "
            f"itself, such as {splits[-1]}."
        )
    return folder


def _place_name(folder: Path, place: Path) -> str:
    """Name a folder and the split in it."""
    return "/".join([folder.resolve().name, *place.relative_to(folder).parts])


def _class_folders(place: Path) -> list[Path]:
    """List the folders of the classes, two at least, in the order of their names."""
    classes = _subfolders(place)
    if len(classes) < 2:
        seen = classes[0].name if classes else "none"
        raise ValueError(
            f"{place} must hold a subfolder of images for each of two classes or more; found: {seen}. "
            f"Put the images into {place / 'CLASS'}, a folder for each class."
        )
    if {one.name.lower() for one in classes} <= SPLITS:
        raise ValueError(
            f"{place} must hold a folder for each class; {', '.join(one.name for one in classes)} are named as splits "
            f"are, and hold images themselves. Put these into {classes[0] / 'CLASS'}, a folder for each class."
        )
    return classes


def _classes(folder: Path, place: Path, found: list[Path]) -> tuple[str, ...]:
    """Name the classes of a split as the training split has them, for labels must mean the same in both."""
    training = folder / "train"
    here = tuple(one.name for one in found)
    if place == folder or not _is_split(training):
        return here
    names = tuple(one.name for one in _subfolders(training))
    unknown = [name for name in here if name not in names]
    if unknown:
        raise ValueError(
            f"the class folders of {place} must be among those of {training}; {unknown[0]} is not. Rename it, or "
            f"give the path of {place} itself, whose classes are then numbered on their own."
        )
    return names


def _class_images(place: Path) -> list[Path]:
    """List the images of a class in the order of their names; refuse what would be left out silently."""
    paths = _images(place)
    others = [path for path in _visible(place) if path.suffix.lower() in OTHER_ENDINGS]
    deeper = [path for path in _subfolders(place) if _images(path)]
    if others:
        raise ValueError(
            f"images must be PNG, JPEG or WebP files; {others[0]} is not. Convert it, or move it away."
        )
    if deeper or not paths:
        seen = f"{deeper[0]} holds some" if deeper else "there is none"
        raise ValueError(
            f"the images of a class ({', '.join(ENDINGS)}) must lie in its folder {place} itself; {seen}. "
            "Put them there, or remove the folder."
        )
    return paths


def _pixels(headers: list[Header]) -> NDArray[np.uint8]:
    """Decode images of one size into one array: of one channel where all are grey, else of three."""
    (width, height), count = Counter(header.size for header in headers).most_common(1)[0]
    odd = next((header for header in headers if header.size != (width, height)), None)
    if odd is not None:
        raise ValueError(
            f"all images must have one size; {odd.path} is {odd.size[0]} by {odd.size[1]} pixels, {count} of "
            f"{len(headers)} are {width} by {height}. Resize it with Pillow: "
            f"Image.open(path).resize(({width}, {height})).save(path)."
        )
    mode = "L" if all(header.mode in GREY for header in headers) else "RGB"
    images = np.empty((len(headers), len(mode), height, width), np.uint8)
    for row, header in enumerate(headers):
        images[row] = _decode(header.path, mode)
    return images


def _header(path: Path) -> Header:
    """Read the size and the kind of an image; refuse more than 8 bits a channel, which would be cut off."""
    with _opened(path) as picture:
        header = Header(path=path, size=picture.size, mode=picture.mode)
        raw = str(getattr(picture, "tile", ""))  # 16 bits in colour have no mode of their own
    if header.mode.startswith(DEEP) or ";16" in raw:
        raise ValueError(
            f"images must have 8 bits a channel; {path} has more (its mode is {header.mode}). Convert it first."
        )
    return header


def _decode(path: Path, mode: str) -> NDArray[np.uint8]:
    """Decode one image as (channels, height, width); mode is L or RGB."""
    with _opened(path) as picture:
        if picture.mode.endswith("A") or "transparency" in picture.info:
            whole = picture.convert("RGBA")
            clear = whole.getchannel("A").getextrema()[0] != 255
            grid = np.asarray(whole.convert(mode))
        else:
            clear, grid = False, np.asarray(picture.convert(mode))
    if clear:
        raise ValueError(
            f"images must not be transparent; {path} has transparent pixels. Put it on a background and save "
            "it without transparency."
        )
    return grid[None] if grid.ndim == 2 else grid.transpose(2, 0, 1)


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """An image file, whatever its ending; one that cannot be read is named."""
    try:
        with Image.open(path, formats=FORMATS) as picture:
            yield picture
    except _BROKEN as error:
        raise ValueError(
            f"{path} is not a readable PNG, JPEG or WebP image ({error}). Get it again, or remove it."
        ) from error


def _is_split(place: Path) -> bool:
    """Say whether a folder holds no images itself, but folders of them."""
    return not _images(place) and any(_images(inner) for inner in _subfolders(place))


def _images(place: Path) -> list[Path]:
    """List the images that lie in a folder itself, in the order of their names."""
    return [path for path in _visible(place) if path.suffix.lower() in ENDINGS and path.is_file()]


def _subfolders(place: Path) -> list[Path]:
    """List the folders in a folder, in the order of their names."""
    return [path for path in _visible(place) if path.is_dir()]


def _visible(place: Path) -> list[Path]:
    """List all but the hidden in a folder, in the order of their names."""
    return sorted((path for path in place.iterdir() if not path.name.startswith(".")), key=lambda p: p.name)
