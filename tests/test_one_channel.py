"""Grey images: measured, trained on and shown where the network takes them, and refused in words where not."""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import networks
from scaleproof import Threat, evaluate, examine, load, suite
from scaleproof.attacks import PGD
from scaleproof.cli.main import app
from scaleproof.data import Dataset
from scaleproof.models import build
from test_train_command import TESTS


def digits(folder: Path, split: str, count: int = 40, size: int = 28) -> Path:
    """Folders of grey images, bright at the top or at the bottom, and then some noise."""
    random = np.random.default_rng([count, split == "test"])
    for number in range(count):
        pixels = random.integers(0, 120, (size, size), np.uint8)
        half = slice(0, size // 2) if number % 2 else slice(size // 2, size)
        pixels[half] += 60
        place = folder / split / ("high" if number % 2 else "low") / f"{number:03}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place)
    return folder


def invoke(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, str(result.exception) + result.output


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(TESTS)
    return digits(digits(tmp_path / "digits", "train"), "test", 20)


SMALL = [
    "--epochs",
    "1",
    "--batch-size",
    "12",
    "--attacks",
    "pgd",
    "--precision",
    "float32",
    "--device",
    "cpu",
]


def test_an_evaluation_from_the_folder_to_the_page(here: Path, tmp_path: Path) -> None:
    words = ["--attacks", "pgd", "--steps", "5", "--eps", "0.5", "--limit", "12", "--device", "cpu"]
    run = tmp_path / "run"
    code, output = invoke(
        "evaluate", "networks:grey", "--data", here, *words, "--keep-examples", "--out", run
    )
    assert code == 0, output
    data = json.loads((run / "evaluation.json").read_text())["data"]
    assert (data["classes"], data["sha256"]) == (["high", "low"], load(here).first(12).digest())
    assert np.load(run / "gallery.npz")["clean"].shape[1:] == (1, 28, 28)
    address = re.search(r"data:image/png;base64,([A-Za-z0-9+/=]+)", (run / "report.html").read_text())
    assert address is not None
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(address[1]))).convert("RGB"))
    assert shown.shape == (28, 28, 3)
    assert (shown == shown[..., :1]).all()
    code, output = invoke("verify", run, "--model", "networks:grey", "--data", here)
    assert code == 0, output


def test_a_training_on_folders(here: Path, tmp_path: Path) -> None:
    code, output = invoke(
        "train", "at", "--model", "networks:grey", "--data", here, *SMALL, "--out", tmp_path / "run"
    )
    assert code == 0, output
    found = json.loads((tmp_path / "run" / "training.json").read_text())
    assert (found["data"]["count"], found["test"]["count"]) == (40, 20)
    assert found["test"]["source"] == "The user's own images in 2 class folders of digits/test."


def test_test_images_may_lie_in_a_folder_of_their_own(here: Path, tmp_path: Path) -> None:
    words = ["--data", here / "train", "--model", "networks:grey", *SMALL, "--no-report"]
    code, output = invoke("train", "standard", *words, "--out", tmp_path / "run")
    assert code != 0
    assert "the test images are the training images" in output
    code, output = invoke(
        "train", "standard", *words, "--test-data", here / "test", "--out", tmp_path / "run"
    )
    assert code == 0, output


def test_every_attack_and_check_takes_one_channel(here: Path) -> None:
    images, steps = (
        load(here).first(6),
        {"pgd": 3, "si-pgd": 3, "apgd-ce": 5, "fab-t": 5, "square": 20, "spsa-128": 2},
    )
    for norm, eps in (("linf", 0.1), ("l2", 1.0)):
        found = suite(",".join(steps), Threat(norm=norm, eps=eps))
        short = [replace(attack, steps=steps[attack.name]) for attack in found]
        assert len(evaluate(networks.grey(), images, short).attacks) == len(steps)
    checks = examine(networks.grey(), images)
    assert not [check for check in checks if "raised" in check.meaning]


@pytest.mark.parametrize("model", ["resnet18", "resnet-small"])
def test_our_architectures_say_that_they_take_colour(here: Path, tmp_path: Path, model: str) -> None:
    code, output = invoke("train", "at", "--model", model, "--data", here, "--out", tmp_path / "run")
    assert code != 0
    assert f"{model} takes images of 3 channels" in output
    assert (
        "those of digits have 1: give a network of your own that takes them, as --model module:factory"
        in output
    )
    assert not (tmp_path / "run").exists()


def test_a_network_for_colour_is_told_apart_from_other_mistakes(here: Path, tmp_path: Path) -> None:
    code, output = invoke("evaluate", "demo", "--data", here, "--device", "cpu", "--out", tmp_path / "run")
    assert code != 0
    assert (
        "its first convolution takes 3 channels, the images have 1: give a network that takes them" in output
    )
    assert "its first convolution takes 3 channels" in invoke("museum", "--data", here, "--limit", "5")[1]
    words = ["--model", "networks:without_norm", "--data", here, *SMALL, "--out", tmp_path / "trained"]
    assert "its first convolution takes 3 channels, the images have 1" in invoke("train", "at", *words)[1]
    colour = load("sample").first(4)
    with pytest.raises(ValueError, match="takes 1 channels, the images have 3"):
        evaluate(networks.grey(), colour, [PGD(steps=1)])


class Repeated(nn.Module):
    """Makes colour of grey itself, and takes one size of images only."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 2, 3), nn.Linear(2 * 26 * 26, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x.repeat(1, 3, 1, 1)).flatten(1))


def test_the_network_s_own_words_are_told_too() -> None:
    grey, y = torch.rand(2, 1, 30, 30), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"own words: .*mat1 and mat2 shapes cannot be multiplied"):
        evaluate(Repeated().eval(), (grey, y), [PGD(steps=1)])
    last = np.random.default_rng(0).random((2, 28, 28, 1), np.float32)
    with pytest.raises(ValueError, match=r"their channels come last, use \.transpose\(0, 3, 1, 2\)"):
        evaluate(networks.grey(), (last, y), [PGD(steps=1)])


def test_a_grey_training_set_needs_a_grey_test_set(here: Path, tmp_path: Path) -> None:
    images = load(here)
    np.savez(tmp_path / "colour.npz", images=images.images.repeat(3, 1), labels=images.labels)
    words = ["--model", "networks:grey", "--data", here, "--test-data", tmp_path / "colour.npz", *SMALL]
    code, output = invoke("train", "at", *words, "--out", tmp_path / "run")
    assert code != 0
    assert "the training images have 1 channels, the test images 3" in output


def test_a_network_of_ours_with_a_grey_stem_is_measured_as_it_is() -> None:
    net = build("resnet-tiny", 2)
    net.conv1 = nn.Conv2d(1, net.conv1.out_channels, 3, 1, 1)  # with a bias, as people write it
    net.eval()
    images = np.random.default_rng(0).integers(0, 256, (6, 1, 16, 16), np.uint8)
    with torch.no_grad():
        labels = net(torch.from_numpy(images).float() / 255).argmax(1).numpy()
    data = Dataset(name="x", split="test", images=images, labels=labels, classes=("a", "b"), source="A test.")
    assert evaluate(net, data, [PGD(steps=2)]).clean.correct == 6
