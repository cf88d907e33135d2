"""The packaged samples: what they hold, and that they can be built again."""

import os

import numpy as np
import pytest

import data_files
from scaleproof import data
from scaleproof.data import catalog, mosaic, samples


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("sample", "533410b608537fd16fc8193ca5ae2f26acc7cf9d77d6772fa3a9e0f13abe291c"),
        ("sample-train", "c5f4f4c4881f076a6748cb2b7be72051b485a4325e4c11dba02dd29e909d5433"),
    ],
)
def test_packaged_sample_is_a_thousand_real_images(name, digest):
    sample = data.load(name)
    assert sample.digest() == digest
    assert (sample.name, sample.images.shape) == (name, (1000, 3, 32, 32))
    assert np.bincount(sample.labels).tolist() == [100] * 10
    means = sample.images.mean(axis=(0, 2, 3)) / 255
    assert np.allclose(means, [0.491, 0.482, 0.447], atol=0.02)
    places = samples.indices(sample.split)
    assert len(places) == 1000
    assert (np.diff(places) > 0).all()
    assert data.load("sample", split=sample.split).digest() == digest


def test_sample_takes_the_first_of_each_class_in_order():
    labels = np.array([1, 0, 1, 1, 0, 0, 2])
    assert samples.choose(labels, 2).tolist() == [0, 1, 2, 4, 6]


def test_sample_is_written_in_the_packaged_form(monkeypatch, tmp_path):
    data_files.pretend_published(monkeypatch)
    data_files.write_all(tmp_path / "a", data_files.binary_files())
    whole = data.load("cifar10", folder=tmp_path / "a")
    sample, places = samples.build(whole, per_class=1)
    assert (sample.name, places.tolist()) == ("sample", list(range(10)))
    samples.write(whole, tmp_path / "assets")
    assert mosaic.read_folder(tmp_path / "assets", "test", name="x").digest() == whole.digest()
    assert np.load(tmp_path / "assets" / "test_indices.npy").tolist() == list(range(20))


@pytest.mark.long
@pytest.mark.skipif(not os.environ.get("SCALEPROOF_DATA"), reason="needs SCALEPROOF_DATA with cifar10")
@pytest.mark.parametrize("split", ["test", "train"])
def test_packaged_sample_can_be_built_again(split, tmp_path):
    if not catalog.locations("cifar10").get(split):
        pytest.skip("SCALEPROOF_DATA holds no cifar10")
    samples.write(data.load("cifar10", split=split), tmp_path)
    rebuilt = mosaic.decode_part((tmp_path / split / "part_0.webp").read_bytes(), "rebuilt")
    assert np.array_equal(rebuilt, data.load("sample", split=split).images)
    assert np.array_equal(np.load(tmp_path / f"{split}_indices.npy"), samples.indices(split))
