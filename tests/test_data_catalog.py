"""Loading by name, keeping as mosaics, the packaged samples and the commands."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import data_files
from data_server import Behaviour, serving
from scaleproof import data
from scaleproof.cli.data import app
from scaleproof.data import catalog, known, mosaic, store


@pytest.fixture
def batches(monkeypatch, tmp_path):
    monkeypatch.setenv("SCALEPROOF_DATA", str(tmp_path / "home"))
    return data_files.pretend_published(monkeypatch)


def python_files():
    small = data_files.small_cifar10()
    return {file: data_files.python2_batch(images, labels) for file, (images, labels) in small.items()}


@pytest.mark.parametrize("place", ["", "cifar-10-batches-bin", "cifar10", "cifar10/cifar-10-batches-bin"])
def test_cifar10_is_found_wherever_it_may_be(batches, tmp_path, place):
    data_files.write_all(tmp_path / "home" / place, data_files.binary_files())
    train, test = data.load("cifar10", split="train"), data.load("cifar10")
    assert np.array_equal(test.images, batches["test_batch"][0])
    assert np.array_equal(train.images[20:40], batches["data_batch_2"][0])
    assert test.classes[3] == "cat"
    assert data.load("cifar10", folder=tmp_path / "home").digest() == test.digest()


def test_every_format_of_cifar10_gives_the_same(batches, tmp_path):
    home = tmp_path / "home"
    data_files.write_all(tmp_path / "a", data_files.binary_files())
    data_files.write_all(tmp_path / "b" / "cifar-10-batches-py", python_files())
    data_files.write_all(tmp_path / "c", {})
    data_files.archive(
        tmp_path / "c" / "cifar-10-python.tar.gz", {f"x/{k}": v for k, v in python_files().items()}
    )
    data.import_folder(tmp_path / "a", "cifar10", home)
    for split in ("test", "train"):
        seen = {
            data.load("cifar10", split=split, folder=tmp_path / x).digest() for x in ("a", "b", "c", "home")
        }
        seen |= {data.load(tmp_path / x, split=split).digest() for x in ("a", "b", "c")}
        seen.add(data.load(home / "cifar10", split=split).digest())
        assert len(seen) == 1


def test_altered_or_short_batch_is_named(batches, tmp_path):
    files = data_files.binary_files()
    changed = bytearray(files["test_batch.bin"])
    changed[1] ^= 1
    folder = data_files.write_all(tmp_path / "x", {"test_batch.bin": bytes(changed)})
    with pytest.raises(
        ValueError, match=r"x/test_batch\.bin is not the published batch of CIFAR-10: the sha256"
    ):
        data.load("cifar10", folder=folder)
    data_files.write_all(folder, {"test_batch.bin": files["test_batch.bin"][:-3073]})
    with pytest.raises(ValueError, match=r"x/test_batch\.bin must hold 20 images; this has 19"):
        data.load("cifar10", folder=folder)
    data_files.write_all(folder, {"data_batch_1.bin": files["data_batch_1.bin"]})
    with pytest.raises(ValueError, match=r"data_batch_2\.bin is missing"):
        data.load("cifar10", split="train", folder=folder)


def test_mosaics_of_cifar10_in_another_order_are_refused(batches, tmp_path):
    data_files.write_all(tmp_path / "a", data_files.binary_files())
    dataset = data.load("cifar10", folder=tmp_path / "a")
    store.keep(replace(dataset, images=dataset.images[::-1]), tmp_path / "home" / "cifar10")
    with pytest.raises(ValueError, match="cifar10, test_batch, is not the published batch"):
        data.load("cifar10")


@pytest.mark.parametrize("form", ["binary", "python"])
def test_cifar100_in_both_formats(batches, tmp_path, form):
    images, fine = data_files.some_images(100), list(range(100))
    binary = {"test.bin": data_files.binary_batch(images, [1] * 100, fine)}
    python = {"test": data_files.python2_batch(images, fine, "fine_labels")}
    data_files.write_all(tmp_path / "home" / f"cifar-100-{form}", binary if form == "binary" else python)
    dataset = data.load("cifar100")
    assert np.array_equal(dataset.images, images)
    assert (dataset.labels.tolist(), dataset.classes[99]) == (fine, "worm")


def test_svhn_from_mat_import_and_file(batches, tmp_path, monkeypatch):
    images = data_files.some_images(20)
    (tmp_path / "home").mkdir()
    path = data_files.publish_mat(monkeypatch, tmp_path / "home/test_32x32.mat", images, [*range(1, 11)] * 2)
    assert data.load("svhn").labels.tolist() == [*range(1, 10), 0] * 2
    data.import_folder(path, "svhn", tmp_path / "other")
    kept = data.load("svhn", folder=tmp_path / "other")
    assert np.array_equal(kept.images, images)
    assert kept.source == data.load("svhn").source
    data_files.write_mat(path, images, [1] * 20)
    with pytest.raises(ValueError, match=r"test_32x32\.mat is not the published test file of SVHN: its md5"):
        data.load("svhn")
    data_files.publish_mat(monkeypatch, path, images, [1] * 20)
    with pytest.raises(
        ValueError, match="svhn test must have 20 images, 2 a class; this has 20, 0 to 20 a class"
    ):
        data.load("svhn")


def test_copy_known_to_differ_says_so(batches, tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    path, labels = tmp_path / "home" / "test_32x32.mat", [*range(1, 11)] * 2
    data_files.publish_mat(monkeypatch, path, data_files.some_images(20), labels)
    monkeypatch.setattr(known, "REBUILT", {data.load("svhn").digest(): "Rebuilt."})
    data.compact("svhn")
    assert data.load("svhn").source == "Rebuilt."


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar11", "'cifar11' is not a known set. Did you mean cifar10?"),
        ("SVNH", "Did you mean svhn?"),
        ("zzzz", "'zzzz' is not a known set. Known: cifar10, cifar100, svhn, sample, sample-train"),
        ("no/where", "no/where is not there"),
        (
            "cifar10",
            "is not there: looked in .*home/cifar10 and .*home for.*data get cifar10, or, .*import FOLDER",
        ),
    ],
)
def test_absent_data_says_what_to_do(batches, name, message):
    with pytest.raises(ValueError, match=message):
        data.load(name)


def test_wrong_split_and_folder_of_nothing_or_of_two(batches, tmp_path):
    with pytest.raises(ValueError, match="one of test, train; it is 'val'"):
        data.load("sample", split="val")
    with pytest.raises(ValueError, match=r"must hold one set .* found: none"):
        data.load(tmp_path)
    data_files.write_all(tmp_path, {"test_batch.bin": b"x", "test.bin": b"x"})
    with pytest.raises(ValueError, match="found: cifar10, cifar100"):
        data.load(tmp_path)


def test_a_file_of_another_kind_is_no_absent_one(tmp_path):
    (tmp_path / "mine.h5").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"mine\.h5 must be an \.npz file or a folder; it is another file"):
        data.load(tmp_path / "mine.h5")


def test_own_mosaics_and_arrays_by_path(batches, tmp_path):
    mosaic.write_parts(data_files.some_images(3), tmp_path / "walks" / "test")
    np.save(tmp_path / "walks" / "test_labels.npy", np.array([2, 0, 1]))
    assert data.load(tmp_path / "walks").name == "walks"
    np.savez(tmp_path / "own.npz", images=data_files.some_images(3), labels=np.array([2, 0, 1]))
    assert data.load(str(tmp_path / "own.npz")).digest() == data.load(tmp_path / "walks").digest()


def test_import_twice_is_calm_and_never_overwrites(batches, tmp_path, monkeypatch):
    folder = data_files.write_all(tmp_path / "a", data_files.binary_files())
    target = data.import_folder(folder, "cifar10", tmp_path / "home")
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    data.import_folder(folder, "cifar10", tmp_path / "home")
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before
    assert not [path for path in target.rglob("*") if "partial" in path.name]
    other = replace(data.load("cifar10"), images=data_files.some_images(20, 99))
    with pytest.raises(ValueError, match=r"holds another cifar10 .* Nothing was overwritten"):
        store.keep(other, target)
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before


def test_altered_mosaic_is_noticed(batches, tmp_path):
    images = data_files.some_images(100)
    data_files.write_all(tmp_path / "a", {"test.bin": data_files.binary_batch(images, [1] * 100, range(100))})
    target = data.import_folder(tmp_path / "a", "cifar100")
    images[7, 0, 0, 0] ^= 1
    mosaic.write_parts(images, target / "test")
    with pytest.raises(ValueError, match=r"test_sha256\.txt must state .* altered or damaged"):
        data.load("cifar100")


def test_import_from_an_archive_of_any_name(batches, tmp_path):
    for form, files in (("python", python_files()), ("bin", data_files.binary_files())):
        packed = data_files.archive(tmp_path / f"my-{form}.tgz", {f"x/{k}": v for k, v in files.items()})
        target = data.import_folder(packed, "cifar10")
    assert mosaic.is_there(target, "test")
    assert mosaic.is_there(target, "train")


def test_import_looks_one_folder_further(batches, tmp_path):
    data_files.write_all(tmp_path / "package" / "some-batches", data_files.binary_files())
    target = data.import_folder(tmp_path / "package", "cifar10")
    assert mosaic.is_there(target, "test")
    assert mosaic.is_there(target, "train")


def test_import_takes_each_split_from_where_it_is(batches, tmp_path):
    files = data_files.binary_files()
    data_files.write_all(tmp_path / "box" / "a", {"test_batch.bin": files.pop("test_batch.bin")})
    data_files.write_all(tmp_path / "box" / "b", files)
    target = data.import_folder(tmp_path / "box", "cifar10")
    assert mosaic.is_there(target, "test")
    assert mosaic.is_there(target, "train")


def test_import_takes_no_mosaics_of_another_set(batches, tmp_path):
    """The data folder of this package holds other sets as mosaics: they are passed over."""
    images = data_files.some_images(100)
    data_files.write_all(tmp_path / "a", {"test.bin": data_files.binary_batch(images, [1] * 100, range(100))})
    data.import_folder(tmp_path / "a", "cifar100", tmp_path / "box")
    with pytest.raises(ValueError, match=r"must hold cifar10 as .* none of them is there"):
        data.import_folder(tmp_path / "box", "cifar10")
    data_files.write_all(tmp_path / "box" / "some-batches", data_files.binary_files())
    assert mosaic.is_there(data.import_folder(tmp_path / "box", "cifar10"), "test")


def test_import_refuses_names_places_and_files_in_the_way(batches, tmp_path):
    with pytest.raises(ValueError, match=r"must hold svhn as .* none of them is there"):
        data.import_folder(tmp_path, "svhn", tmp_path)
    with pytest.raises(ValueError, match="sample comes with scaleproof"):
        data.import_folder(tmp_path, "sample", tmp_path)
    with pytest.raises(ValueError, match="Did you mean cifar100"):
        data.compact("cifar-100")
    data_files.write_all(tmp_path / "a", data_files.binary_files())
    data_files.write_all(tmp_path / "home" / "cifar10", {"test": b"mine"})
    with pytest.raises(ValueError, match="cifar10/test is in the way"):
        data.import_folder(tmp_path / "a", "cifar10", tmp_path / "home")


def test_failed_import_leaves_nothing_half_done(batches, tmp_path, monkeypatch):
    def full(images, folder, **_rest):
        folder.mkdir(parents=True)
        (folder / "part_0.webp").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    data_files.write_all(tmp_path / "a", data_files.binary_files())
    monkeypatch.setattr(mosaic, "write_parts", full)
    with pytest.raises(OSError, match="No space left"):
        data.import_folder(tmp_path / "a", "cifar10", tmp_path / "home")
    assert [path.name for path in (tmp_path / "home").rglob("*")] == ["cifar10"]


def publish(monkeypatch, tmp_path):
    members = {f"cifar-10-batches-bin/{name}": content for name, content in data_files.binary_files().items()}
    packed = data_files.archive(tmp_path / "packed.tar.gz", members).read_bytes()
    remote = replace(catalog.REMOTES["cifar10"][0], md5=hashlib.md5(packed).hexdigest())
    monkeypatch.setitem(catalog.REMOTES, "cifar10", (remote,))
    return Behaviour(content=packed)


def test_get_then_load_then_compact(batches, tmp_path, monkeypatch):
    behaviour = publish(monkeypatch, tmp_path)
    with serving(behaviour) as base:
        paths = data.get("cifar10", tmp_path / "home", base=base)
        assert data.get("cifar10", tmp_path / "home", base=base) == []
    assert [path.name for path in paths] == ["cifar-10-binary.tar.gz"]
    assert len(behaviour.asked) == 1
    before = data.load("cifar10").digest()
    data.compact("cifar10")
    paths[0].unlink()
    assert data.load("cifar10").digest() == before


def test_commands_list_get_compact_and_import(batches, tmp_path, monkeypatch):
    behaviour = publish(monkeypatch, tmp_path)
    run = lambda *words: CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "300"})  # noqa: E731
    with serving(behaviour) as base:
        monkeypatch.setitem(catalog.REMOTES, "cifar10", catalog.remotes("cifar10", base))
        assert "not there: scaleproof data get cifar10" in run("list").stdout
        first = run("get", "cifar10")
        assert (first.exit_code, first.stderr) == (0, "")
        assert "is there and checked" in first.stdout
        assert "is there already" in run("get", "cifar10").stdout
    assert "binary archive, test and train" in run("list").stdout
    assert "verified" in run("compact", "cifar10").stdout
    assert "mosaic, test and train" in run("list").stdout
    assert (
        "verified" in run("import", str(tmp_path / "home"), "cifar10", "--folder", str(tmp_path / "b")).stdout
    )
    with pytest.raises(ValueError, match="Did you mean svhn"):
        run("get", "svn")


def test_home_pages_and_default_folder(monkeypatch):
    monkeypatch.delenv("SCALEPROOF_DATA", raising=False)
    assert catalog.data_folder().parts[-3:] == (".cache", "scaleproof", "data")
    assert catalog.remotes("cifar100")[0].url == "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
    assert [remote.file for remote in catalog.remotes("svhn")] == ["train_32x32.mat", "test_32x32.mat"]
    assert data.names() == ("cifar10", "cifar100", "svhn", "sample", "sample-train")
