"""Mosaics, MATLAB files and a user's own arrays."""

import builtins
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import data_files
from scaleproof.data import arrays, load, mosaic, svhn


def write_mosaics(folder, images, labels, split="test"):
    mosaic.write_parts(images, folder / split)
    np.save(folder / f"{split}_labels.npy", labels)
    return folder


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 230), st.integers(0, 2**32 - 1))
def test_mosaic_round_trip_is_bit_exact(count, seed):
    images = data_files.some_images(count, seed)
    squares = mosaic.decode_part(mosaic.encode_part(images, method=0, quality=0), "part")
    assert np.array_equal(mosaic.join_parts([squares], count, "part"), images)


def test_image_stands_at_its_row_and_column():
    images = data_files.some_images(205)
    with Image.open(io.BytesIO(mosaic.encode_part(images))) as picture:
        grid = np.asarray(picture.convert("RGB"))
    assert grid.shape == (96, 3200, 3)
    assert np.array_equal(grid[64:96, 96:128], images[203].transpose(1, 2, 0))
    assert not grid[64:, 160:].any()


def test_parts_hold_ten_thousand_each(tmp_path):
    images = np.zeros((10_001, 3, 32, 32), np.uint8)
    images[-1] = 7
    seen = []
    mosaic.write_parts(images, tmp_path / "test", method=0, progress=lambda *pair: seen.append(pair))
    np.save(tmp_path / "test_labels.npy", np.arange(10_001) % 5)
    dataset = mosaic.read_folder(tmp_path, "test", name="mine")
    assert seen == [(10_000, 10_001), (10_001, 10_001)]
    assert dataset.classes == ("0", "1", "2", "3", "4")
    assert np.array_equal(dataset.images, images)
    (tmp_path / "test" / "part_0.webp").rename(tmp_path / "test" / "part_5.webp")
    with pytest.raises(ValueError, match=r"must hold part_0\.webp"):
        mosaic.read_folder(tmp_path, "test", name="mine")


def test_labels_within_the_folder_classes_and_source(tmp_path):
    mosaic.write_parts(data_files.some_images(3), tmp_path / "test")
    np.save(tmp_path / "test" / "labels.npy", np.array([0, 1, 1], np.uint8))
    (tmp_path / "classes.txt").write_text("sea\nsky\n")
    (tmp_path / "test_source.txt").write_text("From a walk.\n")
    dataset = mosaic.read_folder(tmp_path, "test", name="mine")
    assert (dataset.classes, dataset.source) == (("sea", "sky"), "From a walk.")
    with pytest.raises(ValueError, match=r"classes\.txt must name the 1 classes.*another set"):
        mosaic.read_folder(tmp_path, "test", name="mine", classes=("land",))


@pytest.mark.parametrize("labels", [np.zeros(2, int), np.zeros(101, int), np.zeros(0, int), np.zeros(3)])
def test_labels_that_do_not_fit_the_squares(tmp_path, labels):
    write_mosaics(tmp_path, data_files.some_images(3), labels)
    with pytest.raises(ValueError, match=r"must be blank after|one square for each|must hold whole numbers"):
        mosaic.read_folder(tmp_path, "test", name="mine")


def test_missing_or_pickled_labels(tmp_path):
    mosaic.write_parts(data_files.some_images(3), tmp_path / "test")
    with pytest.raises(ValueError, match=r"mosaics need their labels: neither .*test_labels\.npy"):
        mosaic.read_folder(tmp_path, "test", name="mine")
    np.save(tmp_path / "test_labels.npy", np.array([None]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"not a readable .npy file of numbers \(it is no file of arrays"):
        mosaic.read_folder(tmp_path, "test", name="mine")


def test_unreadable_or_other_pictures(tmp_path):
    with pytest.raises(ValueError, match="p is not a readable WebP"):
        mosaic.decode_part(b"nothing", "p")
    whole = mosaic.encode_part(data_files.some_images(3))
    with pytest.raises(ValueError, match="p is not a readable WebP"):
        mosaic.decode_part(whole[: len(whole) // 2], "p")
    stream = io.BytesIO()
    Image.new("RGB", (64, 32)).save(stream, "WEBP")
    with pytest.raises(ValueError, match=r"3200 pixels wide .* it is 64 by 32"):
        mosaic.decode_part(stream.getvalue(), "p")
    with pytest.raises(ValueError, match=r"uint8 images of shape \(N, 3, 32, 32\); these are float32"):
        mosaic.encode_part(np.zeros((1, 3, 32, 32), np.float32))


def test_mat_label_ten_is_the_digit_zero(tmp_path):
    images = data_files.some_images(4)
    path = data_files.write_mat(tmp_path / "test_32x32.mat", images, [10, 1, 9, 10])
    dataset = svhn.read_mat(path, "test")
    assert np.array_equal(dataset.images, images)
    assert dataset.labels.tolist() == [0, 1, 9, 0]
    assert dataset.classes == tuple("0123456789")


def test_mat_with_other_content_is_refused(tmp_path):
    path = data_files.write_mat(tmp_path / "test_32x32.mat", data_files.some_images(3), [1, 2, 11])
    with pytest.raises(ValueError, match=r"1 to 10.*label 11 stands at index 2"):
        svhn.read_mat(path, "test")
    data_files.write_mat(path, np.zeros((3, 3, 8, 8), np.uint8), [1, 2, 3])
    with pytest.raises(ValueError, match=r"must hold X, uint8 of shape .* it holds uint8 \(8, 8, 3, 3\)"):
        svhn.read_mat(path, "test")
    for junk in (b"<html>", b"", bytes(300)):
        path.write_bytes(junk)
        with pytest.raises(ValueError, match=r"not a readable MATLAB file|must hold X"):
            svhn.read_mat(path, "test")


def test_mat_without_scipy_names_the_extra(tmp_path, monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest):
        if name.startswith("scipy"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ValueError, match=r"pip install .*-e '\.\[svhn\]'"):
        svhn.read_mat(tmp_path / "test_32x32.mat", "test")


def save(tmp_path, **content):
    np.savez(tmp_path / "mine.npz", **content)
    return arrays.read_npz(tmp_path / "mine.npz", "test")


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([np.uint8, np.float16, np.float32, np.float64]), st.booleans())
def test_npz_in_either_layout(tmp_path_factory, dtype, last):
    images = np.random.default_rng(0).integers(0, 2, (5, 3, 8, 6)).astype(dtype)
    stored = images.transpose(0, 2, 3, 1) if last else images
    dataset = save(tmp_path_factory.mktemp("npz"), images=stored, labels=np.arange(5, dtype=np.uint8))
    assert dataset.images.dtype == (np.uint8 if dtype == np.uint8 else np.float32)
    assert np.array_equal(dataset.images, images)
    assert (dataset.name, dataset.classes) == ("mine", ("0", "1", "2", "3", "4"))


@pytest.mark.parametrize("shape", [(5, 8, 6), (5, 8, 6, 1), (5, 1, 8, 6)])
def test_npz_of_grey_images_in_any_layout(tmp_path, shape):
    images = np.random.default_rng(0).integers(0, 256, (5, 1, 8, 6), np.uint8)
    dataset = save(tmp_path, images=images.reshape(shape), labels=np.arange(5))
    assert np.array_equal(dataset.images, images)


GOOD = {"images": np.zeros((2, 3, 8, 8), np.uint8), "labels": np.array([0, 1])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"images": np.zeros((2, 8, 8, 2), np.uint8)},
            r"shape is \(2, 8, 8, 2\), so no axis may be .* 1 or 3",
        ),
        (
            {"images": np.zeros((2, 8, 8, 4), np.uint8)},
            r"leave the transparency out with images\[\.\.\., :3\]",
        ),
        ({"images": np.zeros((2, 64), np.uint8)}, r"Flat rows: use .reshape\(-1, channels, height, width\)"),
        ({"images": np.zeros((2, 3, 8, 3), np.uint8)}, "both the second and the last axis may be"),
        ({"images": np.zeros((2, 1, 8, 3), np.uint8)}, "both the second and the last axis may be"),
        ({"images": np.zeros((2, 3, 8, 8), np.int64)}, "uint8 .* or floats .*; these are int64"),
        ({"images": np.full((2, 3, 8, 8), 200.0)}, "image 0 holds 200. Divide by 255"),
        ({"labels": np.array([0.5, 1])}, "labels must be whole numbers; these are float64"),
        ({"labels": np.array([0])}, "labels have another length"),
        ({"labels": np.array([0, 10**7])}, "labels must be below 100000; 10000000"),
        ({"classes": np.array([1, 2])}, "classes must be a list of texts"),
        ({"classes": np.array(["only"])}, "label 1 stands at index 1"),
        ({"images": np.array([None, None])}, "Python objects, which are never loaded"),
    ],
)
def test_npz_with_other_content_is_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        save(tmp_path, **{**GOOD, **change})


def test_npz_names_its_classes_or_what_is_missing(tmp_path):
    assert save(tmp_path, **GOOD, classes=np.array(["cat", "dog"])).classes == ("cat", "dog")
    with pytest.raises(ValueError, match=r"labels is missing, it holds .'images'."):
        save(tmp_path, images=GOOD["images"])
    with pytest.raises(ValueError, match="is not there"):
        arrays.read_npz(tmp_path / "none.npz", "test")
    for junk in (b"", b"junk", b"PK\x03\x04junk"):
        (tmp_path / "mine.npz").write_bytes(junk)
        with pytest.raises(ValueError, match=r"not a readable .npz .* np.savez\(path, images=") as caught:
            arrays.read_npz(tmp_path / "mine.npz", "test")
        assert "pickle" not in str(caught.value)
    with (tmp_path / "mine.npz").open("wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(ValueError, match="single array"):
        arrays.read_npz(tmp_path / "mine.npz", "test")


@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_labels_one_hot_are_told_what_to_do(kind: type, tmp_path: Path) -> None:
    images, labels = np.zeros((6, 3, 8, 8), np.uint8), np.eye(3, dtype=kind)[[0, 1, 2, 0, 1, 2]]
    np.savez(tmp_path / "mine.npz", images=images, labels=labels)
    with pytest.raises(ValueError, match=r"Use .argmax\(1\), if they are one-hot"):
        load(str(tmp_path / "mine.npz"))
