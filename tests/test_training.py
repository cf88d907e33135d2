"""The training loop: every defense trains and resumes, a cut run ends as an uncut one, mistakes are told."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from scaleproof.models import Classifier
from scaleproof.models.resnet import BasicBlock, ResNet
from scaleproof.speed import PLAIN, Speed
from scaleproof.training import Cyclic, Steps, TrainConfig, Trainer
from scaleproof.training.checkpoint import files
from scaleproof.training.guard import current_defense
from scaleproof.training.probe import Standing
from scaleproof.training.weights import weights_of
from training_helpers import COMBINATIONS, QUICK, chosen, finished, network, same, small, trainer


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_every_combination_trains_and_resumes_bit_for_bit(combination: str, tmp_path: Path) -> None:
    whole = trainer(combination)
    before = {name: tensor.clone() for name, tensor in weights_of(whole.classifier).items()}
    expected = finished(whole)
    assert all(torch.isfinite(tensor).all() for tensor in expected.values())
    assert any(not torch.equal(before[name], tensor) for name, tensor in weights_of(whole.classifier).items())
    cut = trainer(combination, folder=tmp_path)
    for progress in cut.run():
        if progress.epoch == 2 and progress.step == 2:  # in the middle of the second epoch
            break
    assert same(expected, finished(trainer(combination, folder=tmp_path)))


def test_a_run_learns() -> None:
    training = trainer("at", replace(QUICK, epochs=20, rate=0.1, augment=False))
    finished(training)
    first, last = training.history[0], training.history[-1]
    assert last["loss"] < 0.9 * first["loss"]
    assert last["train_accuracy"] > first["train_accuracy"] + 0.1


def test_seeds_differ_and_repeat() -> None:
    runs = [finished(trainer("at", replace(QUICK, seed=seed, epochs=1))) for seed in (0, 0, 1)]
    assert same(runs[0], runs[1])
    assert not same(runs[0], runs[2])


class Cut(BaseException):
    """A kill at a chosen moment."""


@pytest.mark.parametrize("replacement", range(3))
def test_a_kill_during_a_checkpoint_write_loses_nothing(
    replacement: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(QUICK, epochs=3)
    expected = finished(trainer("free", config))
    real, calls = os.replace, iter(range(100))

    def replace_or_die(source: str, target: str) -> None:
        if next(calls) == replacement:
            raise Cut
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace_or_die)
        with pytest.raises(Cut):
            finished(trainer("free", config, tmp_path))
    assert same(expected, finished(trainer("free", config, tmp_path)))


def test_a_damaged_checkpoint_is_told_and_the_one_before_it_used(tmp_path: Path) -> None:
    config = replace(QUICK, epochs=3)
    expected = finished(trainer("at", config, tmp_path))
    latest = files(tmp_path)[0]
    data = bytearray(latest.read_bytes())
    data[len(data) // 2] ^= 1
    latest.write_bytes(data)
    resumed = trainer("at", config, tmp_path)
    with pytest.warns(UserWarning, match="damaged: the checkpoint before it is used"):
        again = finished(resumed)
    assert same(expected, again)


def test_fast_arithmetic_stays_near_the_plain_loop() -> None:
    config = replace(QUICK, epochs=1, rate=0.01, schedule=Steps(()))
    plain, fast = trainer("at", config), trainer("at", config, speed=Speed(precision="bf16"))
    for training in (plain, fast):
        finished(training)
    moved = torch.cat([t.flatten() for t in weights_of(plain.classifier).values() if t.is_floating_point()])
    other = torch.cat([t.flatten() for t in weights_of(fast.classifier).values() if t.is_floating_point()])
    start = torch.cat([t.flatten() for t in weights_of(network()).values() if t.is_floating_point()])
    assert float((moved - other).norm()) < 0.2 * float((moved - start).norm())
    assert abs(plain.history[-1]["loss"] - fast.history[-1]["loss"]) < 0.02


def test_an_epoch_tells_what_is_worth_knowing() -> None:
    training = trainer("trades-si")
    finished(training)
    record = training.history[-1]
    assert {"epoch", "rate", "loss", "clean", "divergence", "margin", "train_accuracy", "weight_norm"} <= set(
        record
    )
    assert record["loss"] == pytest.approx(record["clean"] + record["divergence"] + record["margin"])
    assert set(record["validation"]) == {"clean", "pgd", "feature_norm", "true_cosine", "zero_gradients"}
    assert record["weight_norm"] == pytest.approx(
        float(weights_of(training.classifier)["head.weight"].norm(dim=1).mean())
    )


def fake_standings(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> None:
    """Held-out PGD accuracies by epoch, in place of what the probe would find."""
    left = iter(values)
    monkeypatch.setattr(
        "scaleproof.training.probe.Probe.standing", lambda self: Standing(90.0, next(left), 1.0, 0.5, 0.0)
    )


def test_the_best_epoch_on_held_out_images_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_standings(monkeypatch, [10, 40, 30, 40])
    training = trainer("at", replace(QUICK, epochs=4, test_probe=0))
    finished(training)
    results = training.results()
    assert (results["selected"][0], results["last"][0]) == (2, 4)
    assert "leaking" not in results


def test_the_guard_stops_a_collapse(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_standings(monkeypatch, [30, 40, 5, 50, 50])
    training = trainer("rfgsm", replace(QUICK, epochs=5, test_probe=0, guard="stop"))
    finished(training)
    assert len(training.history) == 3
    assert training.stopped == "stopped in epoch 3: PGD accuracy fell from 40.0 (epoch 2) to 5.0"
    assert training.results()["selected"][0] == 2


def test_the_guard_takes_no_chance_fall_of_few_images_for_a_collapse(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_standings(monkeypatch, [12, 14, 0.5, 14])
    training = trainer("rfgsm", replace(QUICK, epochs=4, validation=1000, test_probe=0, guard="stop"))
    finished(training)
    assert training.stopped is None, "a tenth of the images were held out"


def test_the_guard_rolls_back_and_takes_smaller_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_standings(monkeypatch, [30, 40, 5, 41, 42])
    training = trainer("rfgsm", replace(QUICK, epochs=5, test_probe=0, guard="rollback"))
    kept = None
    for progress in training.run():
        if progress.epoch == 3 and progress.step == training.steps and training.rollbacks:
            kept = {name: tensor.clone() for name, tensor in weights_of(training.classifier).items()}
            assert same(kept, training.best["validation"].weights)
            assert all(not momentum.any() for momentum in training.stepper.optimizer.momenta)
    assert kept is not None
    assert len(training.history) == 5
    defense = current_defense(training.defense, training.config, 4, training.rollbacks)
    assert defense.inner is not None
    assert defense.inner.step_size == pytest.approx(0.8 * 10 / 255)


def test_the_average_follows_the_weights() -> None:
    config = replace(QUICK, average=0.5, epochs=1)
    training = trainer("standard", config)
    expected = weights_of(network())["head.weight"].clone()
    for step, _ in enumerate(training.epoch(0)):
        decay = min(0.5, (2 + step) / (11 + step))
        expected = decay * expected + (1 - decay) * weights_of(training.classifier)["head.weight"]
    assert training.averaged is not None
    torch.testing.assert_close(weights_of(training.averaged)["head.weight"], expected)
    assert training.measured is training.averaged


def test_eps_grows_while_warming_up() -> None:
    config = replace(QUICK, epochs=5, eps_warm_up=4)
    sizes = [current_defense(chosen("at"), config, epoch, 0).ball.eps * 255 for epoch in range(5)]  # type: ignore[union-attr]
    assert sizes == pytest.approx([2, 4, 6, 8, 8])
    assert [replace(config, epochs=4).eps_share(epoch) for epoch in range(4)] == [0.25, 0.5, 0.75, 1]


def test_a_loss_that_is_not_a_number_is_an_error_and_keeps_the_checkpoints(tmp_path: Path) -> None:
    finished(trainer("at", replace(QUICK, epochs=2), tmp_path))
    wild = trainer("at", replace(QUICK, epochs=2), tmp_path)
    wild.config = replace(QUICK, epochs=4, rate=1e30, schedule=Cyclic(0.0))
    with (
        warnings.catch_warnings(),
        pytest.raises(ValueError, match=r"NaN or infinite in epoch 3.*is kept in"),
    ):
        finished(wild)
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            replace(QUICK, batch_size=70),
            "batch must not be larger than the training set, got 70 for the 58 images",
        ),
        (replace(QUICK, batch_size=59), "got 59 for the 58 images"),
    ],
)
def test_a_batch_larger_than_the_data_is_refused(config: TrainConfig, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer("at", config)


def test_as_many_outputs_as_classes_are_asked_for() -> None:
    with pytest.raises(ValueError, match="5 for 10"):
        Trainer(ResNet(BasicBlock, (1, 1, 1), width=4, classes=5), small(), chosen("at"), QUICK)


def test_layers_that_draw_by_themselves_are_resumed_too(tmp_path: Path) -> None:
    def dropping(folder: Path | None) -> Trainer:
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout()]
        net = nn.Sequential(*layers, nn.Linear(8, 10))
        return Trainer(net, small(), chosen("at"), QUICK, folder=folder, speed=PLAIN)

    whole = dropping(None)
    before = torch.random.get_rng_state()
    expected = finished(whole)
    assert torch.equal(before, torch.random.get_rng_state())
    for progress in dropping(tmp_path).run():
        if progress.epoch == 2:
            break
    torch.rand(7)  # somebody else draws in between
    assert same(expected, finished(dropping(tmp_path)))


def test_a_rollback_never_comes_after_the_last_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_standings(monkeypatch, [40, 5])
    training = trainer("rfgsm", replace(QUICK, test_probe=0, guard="rollback"))
    finished(training)
    assert training.rollbacks == 0


def test_a_users_own_network_trains() -> None:
    layers = [nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)]
    net = nn.Sequential(*layers)
    training = Trainer(Classifier(net), small(), chosen("mart-si"), QUICK, speed=Speed(precision="bf16"))
    finished(training)
    assert training.history[-1]["margin"] > 0
