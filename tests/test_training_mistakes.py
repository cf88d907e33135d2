"""What may go wrong in a training is told, and spoils nothing."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from defense_helpers import learner_of
from networks import Dropping
from scaleproof import load
from scaleproof.cli.main import app
from scaleproof.defenses import (
    AdversarialTraining,
    BatchNormPolicy,
    Free,
    GradientAlignment,
    Guidance,
    hypersphere,
    scale_invariant,
)
from scaleproof.defenses.base import Batch
from scaleproof.models import as_classifier
from scaleproof.parallel import Group
from scaleproof.training import TrainConfig, Trainer
from scaleproof.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from test_train_command import ENVIRONMENT, QUICK, TESTS
from training_helpers import QUICK as CONFIG
from training_helpers import finished, network, same, small, trainer


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["train", *arguments])
    return result.exit_code, str(result.exception), result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["standard", "--attack-mode", "train"], "--attack-mode is for methods whose attack has passes of its own"),
        (["free", "--attack-mode", "eval"], "passes of its own, free has none"),
        (["at", "--eps", "0"], "--eps of a training must be > 0, got 0"),
        (["gat", "--eps", "0"], "--eps of a training must be > 0, got 0"),
        (["at", "--norm", "l2", "--eps", "0"], "--eps of a training must be > 0, got 0"),
        (["at", "--schedule", "steps"], "--schedule steps needs --decays"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    code, error, _ = invoke(*arguments, "--limit", "300", "--out", str(tmp_path / "run"))
    assert code != 0
    assert message in error
    assert not (tmp_path / "run").exists()


def test_a_part_of_the_test_images_is_no_training_set(tmp_path: Path) -> None:
    images, mine = load("sample").first(60), tmp_path / "mine.npz"
    np.savez(mine, images=images.images, labels=images.labels)
    settings = ["--data", str(mine), "--limit", "40", "--batch-size", "20", "--out", str(tmp_path / "run")]
    assert "the test images are the training images" in invoke("at", *settings)[1]


@pytest.mark.parametrize(("method", "relative"), [("at", 1 / 4), ("rfgsm", 5 / 4), ("gradalign", 1.0)])
def test_another_ball_keeps_the_steps_relative_to_it(method: str, relative: float, tmp_path: Path) -> None:
    settings = [*QUICK, "--epochs", "1", "--norm", "l2", "--eps", "0.5", "--no-report"]
    command = [sys.executable, "-m", "scaleproof", "train", method, *settings, "--out", str(tmp_path / "run")]
    subprocess.run(command, cwd=TESTS, env=ENVIRONMENT, check=True, capture_output=True, timeout=200)
    inner = json.loads((tmp_path / "run" / "training.json").read_text())["defense"]["inner"]
    assert inner["step_size"] == pytest.approx(relative * 0.5)


def test_outputs_that_are_not_numbers_stop_a_run_before_its_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The loss may stay a number while features do not; nothing that cannot be resumed is written."""
    running, found = trainer(folder=tmp_path), trainer("standard").probes["validation"].standing()
    for probe in running.probes.values():
        monkeypatch.setattr(probe, "standing", lambda: replace(found, feature_norm=math.inf))
    with pytest.raises(
        ValueError, match="outputs are NaN or infinite after epoch 1: lower the learning rate"
    ):
        finished(running)
    assert read_checkpoint(tmp_path) is None


def test_a_seed_that_diverges_is_named_and_the_others_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TESTS)
    monkeypatch.syspath_prepend(str(TESTS))
    settings = [*QUICK, "--model", "networks:seeded", "--epochs", "1", "--seeds", "0,1"]
    code, error, output = invoke("standard", *settings, "--out", str(tmp_path / "run"))
    assert code != 0
    assert f"{tmp_path / 'run' / 'seed-1'}: the loss is NaN or infinite in epoch 1" in error
    assert "selected on held-out images" in output
    assert (tmp_path / "run" / "seed-0" / "report.html").exists()


def test_the_policy_of_freeat_cannot_be_another() -> None:
    with pytest.raises(ValueError, match="FreeAT's attack is its outer pass: batch_norm must be"):
        Free(batch_norm=BatchNormPolicy(attack="eval"))


@pytest.mark.parametrize("attack", ["eval", "train"])
def test_gradalign_aligns_what_its_attack_follows(attack: str) -> None:
    """The gradient at x is the attack's own, in either mode."""
    policy = BatchNormPolicy(attack=attack)  # type: ignore[arg-type]
    method = GradientAlignment(batch_norm=policy)
    assert method.inner is not None
    classifier = network()
    images = small()
    x, y = images.batch(0, 16)
    learner = learner_of(classifier.net.train(), policy)
    aligned = learner.gradient_graph(method.inner, x, y, keep=True)
    with learner.attacking() as view:
        followed = view.gradient(lambda output: method.inner.objective(output, y, None), x, features=False)  # type: ignore[union-attr]
    torch.testing.assert_close(aligned, followed, rtol=1e-4, atol=1e-6)
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(0))
    wanted, examples = method.adversarial(learner, Batch(x, y, (noise,))), list[Tensor]()
    outputs = learner.outputs

    def seen(at: Tensor, role: str) -> object:
        examples.append(at)
        return outputs(at, role)  # type: ignore[arg-type]

    learner.outputs = seen  # type: ignore[method-assign, assignment]
    method.outcome(learner, Batch(x, y, (noise,)), {})
    torch.testing.assert_close(examples, [wanted])


def test_a_network_that_draws_in_a_function_is_resumed_too(tmp_path: Path) -> None:
    def made(folder: Path | None) -> Trainer:
        torch.manual_seed(3)
        own, data = as_classifier(Dropping()), load("sample-train").first(64)
        return Trainer(own, data, AdversarialTraining(), CONFIG, folder=folder, checkpoint_seconds=0)

    whole = finished(made(None))
    cut = made(tmp_path)
    for progress in cut.run():
        if progress.epoch == 2:
            break
    torch.manual_seed(99)
    torch.rand(7)
    assert same(finished(made(tmp_path)), whole)


def test_a_mean_of_tied_weights_is_moved_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (nn.Conv2d(3, 3, 1, bias=False) for _ in range(2))
            self.second.weight = self.first.weight
            self.head = nn.Linear(3, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.second(self.first(x)).mean((2, 3)))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    running = Trainer(
        as_classifier(Tied()), small(), AdversarialTraining(), replace(CONFIG, average=0.5), folder=None
    )
    assert running.averaged is not None
    before = running.averaged.net.state_dict()["first.weight"].clone()
    with torch.no_grad():
        running.classifier.net.get_parameter("first.weight").add_(1)
    running.keep_average()
    decay = min(0.5, 2 / 11)
    moved = running.averaged.net.state_dict()["first.weight"]
    torch.testing.assert_close(moved, before + (1 - decay))


def test_the_norm_of_the_head_is_that_of_the_averaged_weights() -> None:
    running = trainer(config=replace(CONFIG, average=0.9))
    finished(running)
    own = running.averaged
    assert own is not None
    assert running.history[-1]["weight_norm"] == pytest.approx(
        float(own.net.state_dict()["head.weight"].norm(dim=1).mean())
    )


def test_one_process_that_has_no_number_stops_them_all() -> None:
    class Beside(Group):
        def add_up(self, tensors: object) -> None:
            for tensor in tensors:  # type: ignore[attr-defined]
                tensor.add_(math.nan)  # what another rank has

    stepper = trainer().stepper
    assert stepper.is_finite()
    stepper.group = Beside(0, 2)
    assert not stepper.is_finite()


def test_a_batch_has_a_row_for_each_process() -> None:
    with pytest.raises(ValueError, match="a row for each of 3 processes, got 2"):
        Trainer(network(), small(), AdversarialTraining(), replace(CONFIG, batch_size=2), group=Group(0, 3))


def test_processes_begin_with_the_same_weights(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-port", "29621", "group_work.py", str(tmp_path)]
    done = subprocess.run(command, cwd=TESTS, env=ENVIRONMENT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second


def test_a_margin_on_cosines_needs_a_head_of_cosines() -> None:
    with pytest.raises(ValueError, match="needs a HypersphereHead, got Linear"):
        Trainer(network(), small(), hypersphere(AdversarialTraining()), CONFIG)


def test_freeat_si_without_its_margin_term_still_follows_the_cosines() -> None:
    assert scale_invariant(Free(), weight=0.0).separate_cosine == 15.0
    assert scale_invariant(Free(), weight=0.2).separate_cosine is None
    assert scale_invariant(Free(), weight=0.0, inner=False).separate_cosine is None


def test_short_runs_keep_their_shape() -> None:
    """A warm-up of one epoch would be none; a late epoch at the first would be the whole run."""
    assert TrainConfig(eps_warm_up=5).lasting(12).eps_warm_up == 2
    assert TrainConfig(eps_warm_up=5).lasting(1).eps_warm_up == 0
    assert TrainConfig().lasting(12).eps_warm_up == 0
    assert [Guidance().stretched(100, epochs).late_epoch for epochs in (1, 2, 10)] == [2, 3, 8]


def test_when_no_checkpoint_is_whole_the_run_says_that_it_starts_over(tmp_path: Path) -> None:
    for epoch in (1, 2):
        path = write_checkpoint(tmp_path, Checkpoint(epoch, {"model/x": torch.zeros(2)}, {}))
    for path in tmp_path.glob("checkpoint-*"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="damaged") as told:
        assert read_checkpoint(tmp_path) is None
    assert "the checkpoint before it is used" in str(told[0].message)
    assert "none is left, the run starts over" in str(told[1].message)
