"""Parts of training: schedules, recipes, augmentation and checkpoints."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from scaleproof import files
from scaleproof.data import Dataset
from scaleproof.models.specs import import_timm
from scaleproof.training import Cosine, Cyclic, Steps, TrainConfig, recipe
from scaleproof.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from scaleproof.training.images import Resident, centred_places, generator, random_places

CPU = torch.device("cpu")
LONG = Steps((75, 90, 100))
PLACES = torch.cartesian_prod(torch.arange(9), torch.arange(9), torch.arange(2))  # all 162
HAND: list[tuple[Any, int, dict[float, float]]] = [  # a schedule, epochs, and the share at some moments
    # 74 epochs are over at the start of epoch 75, counted from 1
    (LONG, 120, {0: 1, 73.99: 1, 74: 0.1, 88.99: 0.1, 89: 0.01, 98.99: 0.01, 99: 1e-3, 119.99: 1e-3}),
    (Cyclic(0.4), 15, {0: 0, 3: 0.5, 6: 1, 10.5: 0.5, 15: 0}),  # up to epoch 6, down over the other 9
    (Cyclic(), 30, {7.5: 0.5, 15: 1, 24: 0.4}),
    (Cosine(), 60, {0: 1, 20: 0.75, 30: 0.5, 40: 0.25, 60: 0}),  # at 0, 60, 90, 120, 180 degrees
    (Cosine(10), 110, {0: 0, 5: 0.5, 10: 1, 60: 0.5, 110: 0}),
]


@pytest.mark.parametrize(("schedule", "epochs", "shares"), HAND)
def test_rates_are_those_worked_by_hand(schedule: Any, epochs: int, shares: dict[float, float]) -> None:
    config = TrainConfig(rate=0.3, epochs=epochs, schedule=schedule)
    found = {moment: config.rate_at(moment) for moment in shares}
    assert found == pytest.approx({moment: 0.3 * share for moment, share in shares.items()}, abs=1e-15)
    assert [schedule.share(moment, epochs) for moment in shares] == pytest.approx(
        [*shares.values()], abs=1e-15
    )


def test_schedules_move_with_the_length_of_the_run() -> None:
    assert TrainConfig().lasting(30).schedule == Steps((18, 22, 25))
    assert TrainConfig().lasting(120) == TrainConfig()
    assert Cosine(10).rescaled(100, 50) == Cosine(5)
    assert Cyclic(0.4).rescaled(15, 30) == Cyclic(0.4)
    assert TrainConfig(eps_warm_up=20).lasting(30).eps_warm_up == 5


def test_eps_warms_up_in_equal_parts() -> None:
    config = TrainConfig(eps_warm_up=5)
    assert [config.eps_share(epoch) for epoch in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1])
    assert TrainConfig().eps_share(0) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number >= 1, got 0"),
        ({"batch_size": 0}, "batch_size must be a whole number >= 1, got 0"),
        ({"validation": -1}, "validation must be a whole number >= 0, got -1"),
        ({"probe_every": 0}, "probe_every must be a whole number >= 1, got 0"),
        ({"seed": -3}, "seed must be a whole number >= 0, got -3"),
        ({"rate": -0.1}, "rate must be finite and > 0, got -0.1"),
        ({"rate": "a"}, "rate must be a number, got 'a'"),
        ({"rate": np.float32(-0.5)}, "rate must be finite and > 0, got -0.5"),
        ({"rate": 0.0}, "rate must be finite and > 0, got 0.0: a larger one, as 0.1"),
        ({"momentum": math.nan}, "momentum must be finite and >= 0, got nan"),
        ({"weight_decay": math.inf}, "weight_decay must be finite and >= 0, got inf"),
        ({"average": 1.0}, "average must be between 0 and 1, got 1.0"),
        ({"guard": "loud"}, "guard must be one of off, stop, rollback, got 'loud'"),
        (
            {"eps_warm_up": 121},
            "the warm-up of eps is longer than the run: 121 of 120 epochs; give 120 at most",
        ),
        ({"epochs": 99}, "longer than the run: decays at epochs (75, 90, 100), but 99 epochs"),
        ({"schedule": Steps((90, 75))}, "decays must come in order and from epoch 1 on, got (90, 75)"),
        ({"schedule": Steps((0, 75))}, "decays must come in order and from epoch 1 on, got (0, 75)"),
        ({"schedule": Cyclic(1.0)}, "the peak of a cyclic schedule must be in [0, 1), got 1.0"),
        ({"schedule": Cosine(120)}, "a warm-up of 120 epochs, but 120 epochs"),
    ],
)
def test_bad_training_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        TrainConfig(**settings)


Numbers = tuple[float, float, int, object, int]  # rate, weight decay, epochs, schedule, batch size
TABLE: list[tuple[str, str | None, str, Numbers]] = [
    *((name, None, "resnet18", (0.1, 5e-4, 120, LONG, 128)) for name in ("at", "trades", "alp", "mart")),
    *((name, "pang", "wrn-34-10", (0.1, 5e-4, 120, LONG, 128)) for name in ("at", "mart")),
    *((name, "paper-literal", "resnet18", (0.01, 5e-4, 120, LONG, 128)) for name in ("at", "rfgsm")),
    ("trades", "paper-literal", "wrn-34-10", (0.1, 7e-4, 90, Steps((75,)), 128)),
    *((name, "mart", "resnet18", (0.01, 3.5e-3, 120, LONG, 128)) for name in ("at", "mart")),
    ("mart", "mart", "wrn-34-10", (0.1, 7e-4, 90, Steps((75,)), 128)),
    ("mart", "original", "resnet18", (0.01, 3.5e-3, 120, LONG, 128)),
    ("mart", "original", "wrn-34-10", (0.1, 7e-4, 90, Steps((75,)), 128)),
    ("at", "original", "resnet18", (0.1, 5e-4, 200, Steps((101, 151)), 128)),  # after 100 and 150
    *((name, "original", "resnet18", (0.1, 2e-4, 76, Steps((75,)), 128)) for name in ("trades", "alp")),
    ("free", None, "resnet18", (0.04, 5e-4, 12, Cyclic(0.5), 128)),
    ("gat", None, "resnet18", (0.1, 5e-4, 100, Steps((72, 87)), 64)),  # after numbers 70 and 85 from 0
    ("rfgsm", None, "resnet18", (0.2, 5e-4, 15, Cyclic(0.5), 128)),
    ("gradalign", None, "resnet18", (0.3, 5e-4, 30, Cyclic(0.4), 128)),
]


@pytest.mark.parametrize(("method", "name", "architecture", "numbers"), TABLE)
def test_recipes_are_the_readings(method: str, name: str | None, architecture: str, numbers: Numbers) -> None:
    found = recipe(method, name=name, architecture=architecture)
    config = found.config
    assert (config.rate, config.weight_decay, config.epochs, config.schedule, config.batch_size) == numbers
    assert (config.momentum, config.augment) == (0.9, True)
    assert found.defense.name == method
    assert found.name == (name or ("original" if found.defense.single_step else "pang"))
    assert found.provenance


E, K = 8 / 255, 2 / 255
# eps, steps, step, start and its size, BatchNorm in the attack; then what is the method's own
INNER: list[tuple[str, str | None, str, tuple[object, ...], dict[str, object]]] = [
    ("at", None, "", (E, 10, K, "uniform", 0.0, "eval"), {}),
    ("trades", None, "", (E, 10, K, "uniform", 0.0, "eval"), {"weight": 6.0}),
    ("alp", None, "", (E, 10, K, "uniform", 0.0, "eval"), {"weight": 3.0, "share": 0.5}),
    ("mart", None, "", (E, 10, K, "uniform", 0.0, "eval"), {"weight": 6.0}),
    ("at", "original", "", (E, 10, K, "uniform", 0.0, "train"), {}),
    ("trades", "original", "", (0.031, 10, 0.007, "normal", 0.001, "eval"), {"weight": 6.0}),
    ("mart", "original", "resnet18", (0.031, 10, 0.007, "normal", 0.001, "eval"), {"weight": 5.0}),
    ("mart", "original", "wrn-34-10", (0.031, 10, 0.007, "normal", 0.001, "eval"), {"weight": 6.0}),
    ("gat", None, "", (E, 1, E, "signs", 4 / 255, "eval"), {"weight": 10.0, "late_factor": 4.0}),
    ("rfgsm", None, "", (E, 1, 10 / 255, "uniform", 0.0, "train"), {}),
    ("gradalign", None, "", (E, 1, E, "none", 0.0, "train"), {"weight": 0.2}),
]


@pytest.mark.parametrize(("method", "name", "architecture", "attack", "own"), INNER)
def test_recipes_attack_as_in_the_readings(
    method: str, name: str | None, architecture: str, attack: tuple[object, ...], own: dict[str, object]
) -> None:
    found = recipe(method, name=name, architecture=architecture or "resnet18").defense
    inner: Any = found.inner
    settings = (inner.threat.eps, inner.steps, inner.step_size, inner.start, inner.start_size)
    assert (*settings, found.batch_norm.attack) == attack
    assert (inner.objective.name == "divergence") == (method == "trades")
    assert {key: getattr(found, key) for key in own} == own


def test_unknown_recipes_are_refused() -> None:
    with pytest.raises(ValueError, match="one of pang, paper-literal, mart, svhn, original, got 'rice'"):
        recipe("at", name="rice")
    with pytest.raises(ValueError, match="no original recipe is known for standard"):
        recipe("standard", name="original")
    with pytest.raises(ValueError, match="got 'nothing'"):
        recipe("nothing")


# Augmentation and the split.


def dataset(kind: type = np.uint8, count: int = 3) -> Dataset:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, 6, 5))
    images = pixels.astype(np.uint8) if kind is np.uint8 else (pixels / 255).astype(np.float32)
    labels = np.arange(count, dtype=np.int64) % 2
    return Dataset(name="d", split="train", images=images, labels=labels, classes=("a", "b"), source="test")


def shifted(image: NDArray[Any], top: int, left: int, mirrored: bool) -> NDArray[Any]:
    """Four zeros all around, a window of the old size, its mirror image."""
    wide = np.zeros((3, 14, 13), dtype=image.dtype)
    wide[:, 4:10, 4:9] = image
    window = wide[:, top : top + 6, left : left + 5]
    return window[:, :, ::-1] if mirrored else window


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_crops_are_explicit_padding_slicing_and_mirroring(kind: type) -> None:
    data = dataset(kind)
    resident = Resident.of(data, np.array([2, 0]), CPU)  # row 1 there is image 0 here
    found = resident.cropped(torch.ones(162, dtype=torch.int64), PLACES)
    scale = np.float32(255) if kind is np.uint8 else np.float32(1)
    for image, (top, left, mirrored) in zip(found.numpy(), PLACES.tolist(), strict=True):
        wanted = shifted(data.images[0], top, left, bool(mirrored)).astype(np.float32) / scale
        np.testing.assert_array_equal(image, wanted)
    assert found.dtype == torch.float32
    assert (len(resident), resident.size, resident.labels.tolist()) == (2, (6, 5), [0, 0])


def test_no_augmentation_is_the_plain_image() -> None:
    data, rows = dataset(), torch.tensor([2, 0, 1])
    resident = Resident.of(data, np.arange(3), CPU)
    assert torch.equal(resident.cropped(rows, centred_places(3, CPU)), resident.plain(rows))
    assert torch.equal(resident.plain(), data.batch(0, 3)[0])


def test_crops_agree_with_torchvision() -> None:
    try:
        import_timm()
    except ValueError:
        pytest.skip("needs timm")
    functional = pytest.importorskip("torchvision.transforms.functional")
    data = dataset()
    found = Resident.of(data, np.arange(3), CPU).cropped(torch.ones(162, dtype=torch.int64), PLACES)
    padded = functional.pad(torch.from_numpy(data.images[1]), [4, 4, 4, 4])
    for image, (top, left, mirrored) in zip(found, PLACES.tolist(), strict=True):
        wanted = functional.crop(padded, top, left, 6, 5)
        wanted = functional.hflip(wanted) if mirrored else wanted
        assert torch.equal(image, wanted.float() / 255)


def test_places_are_uniform() -> None:
    places = random_places(162 * 200, generator(CPU, "places"))
    assert (places.min(0).values.tolist(), places.max(0).values.tolist()) == ([0, 0, 0], [8, 8, 1])
    counts = torch.bincount(places @ torch.tensor([18, 2, 1]), minlength=162)
    assert 1e-3 < stats.chisquare(counts.numpy()).pvalue < 1 - 1e-3


def test_random_numbers_depend_on_the_key_alone() -> None:
    def drawn(*key: object) -> list[float]:
        return torch.rand(4, generator=generator(CPU, *key)).tolist()

    torch.manual_seed(1)
    first = drawn("order", 0, 3)
    torch.manual_seed(2)
    assert drawn("order", 0, 3) == first
    others = [drawn("order", 0, 4), drawn("order", 1, 3), drawn("chance", 0, 3), first]
    assert len({tuple(values) for values in others}) == 4


# Checkpoints.


def checkpoint(epoch: int) -> Checkpoint:
    tensors = {
        "model/weight": torch.full((2, 3), float(epoch)).t(),  # not contiguous
        "model/half": torch.tensor([1.5, -2], dtype=torch.bfloat16),
        "model/count": torch.tensor(epoch),
        "shared": torch.arange(3.0),
    }
    return Checkpoint(
        epoch, {**tensors, "again": tensors["shared"]}, {"history": [{"loss": 0.1 + epoch}], "best": None}
    )


def assert_equal(found: Checkpoint | None, wanted: Checkpoint) -> None:
    assert found is not None
    assert (found.epoch, found.facts, set(found.tensors)) == (wanted.epoch, wanted.facts, set(wanted.tensors))
    for name, tensor in wanted.tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)


def test_checkpoints_come_back_whole_and_two_are_kept(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path) is None
    assert read_checkpoint(tmp_path / "nowhere") is None
    for epoch in (1, 2, 9, 10, 110):
        path = write_checkpoint(tmp_path / "run", checkpoint(epoch))
        assert path.is_file()
        assert_equal(read_checkpoint(tmp_path / "run"), checkpoint(epoch))
    kept = sorted(path.name[:17] for path in (tmp_path / "run").iterdir())
    assert kept == ["checkpoint-000010", "checkpoint-000110"]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_checkpoint_warns_and_the_one_before_is_used(tmp_path: Path, damage: str) -> None:
    write_checkpoint(tmp_path, checkpoint(1))
    last = write_checkpoint(tmp_path, checkpoint(2))
    data = bytearray(last.read_bytes())
    data[-1] ^= 1
    last.write_bytes({"cut": bytes(data[:-5]), "flip": bytes(data), "empty": b""}[damage])
    with pytest.warns(UserWarning, match=f"{last.name} is damaged"):
        assert_equal(read_checkpoint(tmp_path), checkpoint(1))


def test_a_write_that_dies_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_checkpoint(tmp_path, checkpoint(1))
    seen: list[list[str]] = []

    def dies(source: Path, target: Path) -> None:
        seen.append(sorted(path.name for path in tmp_path.glob("checkpoint-*")))
        raise OSError("the disk is full")

    monkeypatch.setattr(files.os, "replace", dies)
    with pytest.raises(OSError, match="the disk is full"):
        write_checkpoint(tmp_path, checkpoint(2))
    assert seen == [[first.name]]  # until the rename nobody sees the new file
    assert list(tmp_path.iterdir()) == [first]
    assert_equal(read_checkpoint(tmp_path), checkpoint(1))
