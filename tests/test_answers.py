"""Weights know what their network answered: code that changed around them is noticed, in files and checkpoints."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from helpers import SmallConvNet
from scaleproof import Classifier, load, load_model
from scaleproof.cli.main import app
from scaleproof.defenses import AdversarialTraining, Inner, scale_invariant
from scaleproof.models import answers, save_model
from scaleproof.models.answers import check_answers
from scaleproof.threat import Threat
from scaleproof.training import Cyclic, TrainConfig, Trainer

SHAPE = (3, 8, 8)
NET = """
from torch import nn
def build():
    body = [nn.Conv2d(3, 8, 3, 2), nn.{activation}(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(8, 10))
"""
WORDS = (
    "train at --model changing_net:build --data sample-train --limit 40 --test-data sample --test-limit 10 "
    "--batch-size 16 --epochs 1 --steps 1 --attacks pgd --no-report --out run"
)


def write_net(activation: str) -> None:
    Path("changing_net.py").write_text(NET.format(activation=activation))
    sys.modules.pop("changing_net", None)
    importlib.invalidate_caches()


class Drawing(nn.Module):
    """Dropout that nobody can switch off."""

    def __init__(self) -> None:
        super().__init__()
        self.net = SmallConvNet()

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.net(x), 0.5, training=True)


def test_the_same_network_is_known_again_and_another_is_not() -> None:
    torch.manual_seed(0)
    net = Classifier(SmallConvNet())
    record = answers(net, SHAPE)
    check_answers(net, record, "x")
    check_answers(net.double(), record, "x")
    with pytest.raises(ValueError, match="x belongs to a network that answered otherwise"):
        check_answers(net.rescaled(1.5), record, "x")


def test_a_network_that_draws_leaves_no_record() -> None:
    assert answers(Classifier(Drawing()), SHAPE) == {}


def test_a_network_that_needs_the_statistics_of_a_batch_has_answers() -> None:
    norm = nn.BatchNorm1d(4, track_running_stats=False)
    net = nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten(), norm, nn.Linear(4, 10))
    record = answers(Classifier(net), SHAPE)
    check_answers(Classifier(net), record, "x")
    assert record


@pytest.mark.parametrize("place", [0, 1, 9])
def test_an_answer_that_is_no_number_is_another_answer(place: int) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
    record = answers(Classifier(net), SHAPE)
    with torch.no_grad():
        net[1].bias[place] = torch.nan
    with pytest.raises(ValueError, match="of 10 logits of a fixed image one is now off by nan"):
        check_answers(Classifier(net), record, "x")


def test_weights_of_a_network_whose_code_changed_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_net("ReLU")
    done = CliRunner().invoke(app, WORDS.split())
    assert done.exit_code == 0, done.output
    assert load_model("run").sha256 == load_model("run/model.safetensors").sha256
    write_net("GELU")
    with pytest.raises(ValueError, match="Its code has changed since: put it back, or train anew"):
        load_model("run")


def trainer(folder: Path, defense: AdversarialTraining, net: nn.Module, seed: int = 0) -> Trainer:
    config = TrainConfig(epochs=2, batch_size=16, rate=0.01, schedule=Cyclic(), guard="off", seed=seed)
    return Trainer(Classifier(net), load("sample-train").first(40), defense, config, folder=folder)


def test_a_folder_goes_on_with_its_own_training_only(tmp_path: Path) -> None:
    defense = AdversarialTraining(inner=Inner(threat=Threat(eps=8 / 255), steps=1))
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)
    )
    list(trainer(tmp_path, defense, net).run())
    again = trainer(tmp_path, defense, net)
    assert len(list(again.run())) == 0
    assert len(again.history) == 2
    for other, seed in ((scale_invariant(defense), 0), (replace(defense, label_margin=0.0), 1)):
        with pytest.raises(ValueError, match="holds a checkpoint of another training"):
            list(trainer(tmp_path, other, net, seed).run())
    net[1] = nn.Tanh()
    with pytest.raises(
        ValueError, match=r"the checkpoint in .* belongs to a network that answered otherwise"
    ):
        list(trainer(tmp_path, defense, net).run())


def test_a_network_without_a_linear_end_is_told_what_to_do(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(4), nn.Conv2d(4, 10, 4), nn.Flatten())
    with pytest.raises(ValueError, match=r"must end in one linear layer .* Classifier\(net, head=NAME\)"):
        trainer(tmp_path, AdversarialTraining(inner=Inner(threat=Threat(eps=8 / 255), steps=1)), net)


def test_a_file_without_a_record_is_loaded(tmp_path: Path) -> None:
    save_model(tmp_path / "a.safetensors", load_model("demo").classifier, "resnet-small")
    assert load_model(str(tmp_path / "a.safetensors")).sha256 == load_model("demo").sha256
