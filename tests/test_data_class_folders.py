"""Folders of images, one for each class."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data_files import some_images
from scaleproof.data import Dataset, load, mosaic


def picture(path: Path, pixels: np.ndarray, mode: str | None = None, **settings: object) -> Path:
    """Save (C, H, W) bytes, or (H, W) ones, in the format that the ending names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = Image.fromarray(pixels.transpose(1, 2, 0) if pixels.ndim == 3 else pixels)
    found.convert(mode or found.mode).save(path, **settings)
    return path


def write(folder: Path, *files: str, channels: int = 3, seed: int = 0) -> np.ndarray:
    """Write random images under the given names; give them in the order of the names."""
    images = some_images(len(files), seed)[:, :channels, :6, :5]
    for name, pixels in zip(files, images, strict=True):
        picture(folder / name, pixels if channels == 3 else pixels[0], lossless=True)
    return images


def test_classes_and_images_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    images = write(tmp_path / "pets", "dog/b.png", "Cat/2.png", "dog/a.webp", "Cat/10.PNG", "ant/x.png")
    for junk in ("dog/.hidden.png", ".git/a.png", "dog/notes.txt", "classes.txt"):
        (tmp_path / "pets" / junk).parent.mkdir(exist_ok=True)
        (tmp_path / "pets" / junk).write_bytes(b"no image")
    dataset = load(tmp_path / "pets")
    assert dataset.classes == ("Cat", "ant", "dog")
    assert dataset.labels.tolist() == [0, 2, 1, 0, 2]  # classes take turns
    assert np.array_equal(dataset.images, images[[3, 2, 4, 1, 0]])
    assert (dataset.name, dataset.split, dataset.images.dtype) == ("pets", "test", np.uint8)
    assert dataset.source == "The user's own images in 3 class folders of pets."
    assert load(str(tmp_path / "pets"), split="train").digest() == dataset.digest()


def test_the_first_images_are_a_sample_of_all_classes(tmp_path: Path) -> None:
    write(tmp_path, *(f"a/{n:02}.png" for n in range(30)), *(f"b/{n:02}.png" for n in range(10)))
    labels = load(tmp_path).labels
    for count in (4, 8, 20):
        assert labels[:count].sum() == count / 4
    assert np.bincount(labels).tolist() == [30, 10]


def test_the_digest_is_that_of_the_same_images_elsewhere(tmp_path: Path) -> None:
    images = write(tmp_path, "a/1.png", "a/2.png", "b/1.png")
    arrays = Dataset(
        name="x",
        split="test",
        images=images[[0, 2, 1]],
        labels=np.array([0, 1, 0]),
        classes=("a", "b"),
        source="A test.",
    )
    assert load(tmp_path).digest() == arrays.digest()


def test_splits_have_folders_of_their_own(tmp_path: Path) -> None:
    test = write(tmp_path / "set", "test/a/1.png", "test/b/1.png")
    train = write(tmp_path / "set", "train/a/1.png", "train/b/1.png", "train/b/2.png", seed=1)
    assert np.array_equal(load(tmp_path / "set").images, test)
    found = load(tmp_path / "set", split="train")
    assert np.array_equal(found.images, train[[1, 0, 2]])
    assert found.source == "The user's own images in 2 class folders of set/train."
    assert load(tmp_path / "set" / "train").digest() == found.digest()


def test_a_train_may_be_a_class(tmp_path: Path) -> None:
    write(tmp_path, "train/1.png", "car/1.png")
    assert load(tmp_path, split="train").classes == ("car", "train")


def test_splits_without_classes_are_no_classes(tmp_path: Path) -> None:
    write(tmp_path, "train/1.png", "train/2.png", "test/1.png")
    with pytest.raises(ValueError, match=r"test, train are named as splits are, .* into .*/test/CLASS"):
        load(tmp_path)


def test_labels_mean_the_same_in_both_splits(tmp_path: Path) -> None:
    write(tmp_path, "train/a/1.png", "train/b/1.png", "train/c/1.png", "test/a/1.png", "test/c/1.png")
    training, test = load(tmp_path, split="train"), load(tmp_path)
    assert training.classes == test.classes == ("a", "b", "c")
    assert test.labels.tolist() == [0, 2]
    assert load(tmp_path / "test").labels.tolist() == [0, 1]
    write(tmp_path, "test/d/1.png")
    with pytest.raises(ValueError, match=r"must be among those of .*/train; d is not"):
        load(tmp_path)


def png_of_16_bits(path: Path, colour: int) -> None:
    """A PNG by hand of 5 by 6 zeros: Pillow writes none of 16 bits a channel in colour."""
    channels = {2: 3, 4: 2}[colour]

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\0" + b"\0" * 5 * 2 * channels) * 6)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 5, 6, 16, colour, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


@pytest.mark.parametrize("colour", [2, 4])
def test_colours_of_16_bits_are_not_cut_off(tmp_path: Path, colour: int) -> None:
    write(tmp_path, "a/1.png", "b/1.png")
    png_of_16_bits(tmp_path / "b" / "2.png", colour)
    with pytest.raises(ValueError, match=r"8 bits a channel; .*b/2\.png has more"):
        load(tmp_path)


def test_a_split_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, "train/a/1.png", "train/b/1.png", "val/a/1.png", "val/b/1.png")
    with pytest.raises(
        ValueError, match=r"must hold the folder test .* it holds train, val\. .* such as .*/val\."
    ):
        load(tmp_path)


def test_grey_images_have_one_channel_where_all_are_grey(tmp_path: Path) -> None:
    images = write(tmp_path, "a/1.png", "b/1.png", channels=1)
    picture(tmp_path / "b" / "2.png", images[1, 0], "LA")
    assert np.array_equal(load(tmp_path).images, images[[1, 0, 1]])
    colour = write(tmp_path, "c/1.png", seed=1)
    grey = images.repeat(3, 1)
    assert np.array_equal(load(tmp_path).images, np.stack([grey[1], grey[0], colour[0], grey[1]]))


def test_other_kinds_of_pictures_become_colour(tmp_path: Path) -> None:
    images = write(tmp_path, "a/1.png", "b/1.png")
    picture(tmp_path / "a" / "2.png", images[0], "RGBA")
    picture(tmp_path / "b" / "2.png", images[1], "P")
    picture(tmp_path / "b" / "3.jpg", images[1], "CMYK")
    dataset = load(tmp_path)
    assert dataset.images.shape == (5, 3, 6, 5)
    assert np.array_equal(dataset.images[1], images[0])


@pytest.mark.parametrize(
    ("name", "pixels", "mode", "message"),
    [
        ("b/2.png", np.zeros((7, 5), np.uint8), "RGB",
         r"b/2\.png is 5 by 7 pixels, 3 of 4 are 5 by 6\. .*resize\(\(5, 6\)\)"),
        ("a/0.png", np.zeros((7, 5), np.uint8), "RGB", r"a/0\.png is 5 by 7 pixels, 3 of 4 are 5 by 6"),
        ("b/2.png", np.zeros((4, 6, 5), np.uint8), "RGBA", r"b/2\.png has transparent pixels"),
        ("b/2.png", np.zeros((6, 5), np.uint16), None, r"8 bits a channel; .*b/2\.png has more"),
        ("b/2.bmp", np.zeros((6, 5), np.uint8), "RGB", r"PNG, JPEG or WebP files; .*b/2\.bmp is not"),
        ("b/deep/2.png", np.zeros((6, 5), np.uint8), "RGB", r"b itself; .*b/deep holds some"),
    ],
)  # fmt: skip
def test_a_picture_that_does_not_fit_is_named(
    tmp_path: Path, name: str, pixels: np.ndarray, mode: str | None, message: str
) -> None:
    write(tmp_path, "a/1.png", "a/2.png", "b/1.png")
    picture(tmp_path / name, pixels, mode)
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_a_damaged_picture_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a/1.png", "b/1.png")
    whole = picture(tmp_path / "b" / "2.png", some_images(1)[0, :, :6, :5]).read_bytes()
    for content in (b"", b"<html>", whole[: len(whole) // 2], whole[:40]):
        (tmp_path / "b" / "2.png").write_bytes(content)
        with pytest.raises(ValueError, match=r"b/2\.png is not a readable PNG, JPEG or WebP image"):
            load(tmp_path)


def test_an_empty_class_and_a_single_one_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a/1.png")
    with pytest.raises(
        ValueError, match=r"each of two classes or more; found: a\. Put the images into .*/CLASS"
    ):
        load(tmp_path)
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match=r"\.webp\) must lie in its folder .*/b itself; there is none"):
        load(tmp_path)


def test_a_folder_without_class_folders_says_what_it_should_hold(tmp_path: Path) -> None:
    write(tmp_path, "1.png", "2.png")
    with pytest.raises(
        ValueError, match=r"a subfolder of images .PNG, JPEG, WebP. for each class, .* found: none"
    ):
        load(tmp_path)


def test_mosaics_of_one_split_are_no_classes(tmp_path: Path) -> None:
    mosaic.write_parts(some_images(3), tmp_path / "walks" / "train")
    write(tmp_path / "walks", "pictures/1.png")
    with pytest.raises(ValueError, match="must hold one set with a test split"):
        load(tmp_path / "walks")


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_links_are_followed(tmp_path: Path) -> None:
    images = write(tmp_path / "real", "a/1.png", "b/1.png")
    (tmp_path / "mine").mkdir()
    for name in "ab":
        (tmp_path / "mine" / name).symlink_to(tmp_path / "real" / name)
    assert np.array_equal(load(tmp_path / "mine").images, images)
