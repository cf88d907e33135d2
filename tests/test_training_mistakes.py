"""What may go wrong in a training is told, and spoils nothing."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from defense_helpers import learner_of
from scaleproof.cli.main import app
from scaleproof.defenses import (
    AdversarialTraining,
    BatchNormPolicy,
    Free,
    GradientAlignment,
    Guidance,
    Guided,
    Margin,
    hypersphere,
    scale_invariant,
)
from scaleproof.defenses.base import Batch
from scaleproof.defenses.terms import squared_distance_rows
from scaleproof.models import Classifier
from scaleproof.models.output import Output
from scaleproof.parallel import Group
from scaleproof.speed import Speed
from scaleproof.training import TrainConfig, Trainer
from scaleproof.training.checkpoint import read_checkpoint
from test_train_command import ENVIRONMENT, QUICK, TESTS
from training_helpers import QUICK as CONFIG
from training_helpers import finished, network, small, trainer


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
        (["at", "--schedule", "cosine", "--decays", "3"], "--decays goes with --schedule steps"),
        (["trades-si"], "did you mean 'trades --si'?"),
        (["TRADES"], "did you mean 'trades'?"),
        (["at", "--si", "--margin", "5"], "must be at least 0 and below 2, for cosines differ by at most 2, got 5.0"),
        (["at", "--si", "--si-half", "inner", "--margin", "-1"], "must be at least 0 and below 2"),
        (["at", "--step-size", "0"], "must be finite and > 0, got 0.0: give one as 2/255"),
        (["at", "--step-size", "2"], "must be at most 1 under linf, pixels are in [0, 1], got 2: did you mean 2/255?"),
        (["at", "--rate", "0"], "rate must be finite and > 0, got 0.0"),
        (["at", "--checkpoint-seconds", "-1"], "--checkpoint-seconds must be >= 0, got -1: 0 writes one after"),
        (["at", "--checkpoint-seconds", "nan"], "--checkpoint-seconds must be >= 0, got nan"),
        (["at", "--model", "vgg"], "resnet-tiny, or module:factory, a function of your own, got 'vgg'"),
        (["at", "--he", "--model", "vgg"], "resnet-tiny, got 'vgg'"),
        (["at", "--he", "--model", "networks:plain"], "--model networks:plain: give one of them, or leave out --he"),
        (["at", "--he", "--model", "resnet18+he"], "got --model resnet18+he: leave out +he, --he gives it"),
        (["at", "--he", "--margin", "2"], "below 2, for cosines differ by at most 2, got 2.0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    code, error, _ = invoke(*arguments, "--limit", "300", "--out", str(tmp_path / "run"))
    assert code != 0
    assert message in error
    assert not (tmp_path / "run").exists()


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


def test_a_margin_on_cosines_needs_a_head_of_cosines() -> None:
    with pytest.raises(ValueError, match="needs a HypersphereHead, got Linear"):
        Trainer(network(), small(), hypersphere(AdversarialTraining()), CONFIG)


@pytest.mark.parametrize("margin", [-0.1, 2.0, math.nan])
def test_a_margin_that_no_cosine_could_keep_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match="a margin on cosines must be at least 0 and below 2"):
        Margin(margin=margin)
    assert Margin(margin=0.0).margin == 0


def test_freeat_si_without_its_margin_term_still_follows_the_cosines() -> None:
    assert scale_invariant(Free(), weight=0.0).separate_cosine == 15.0
    assert scale_invariant(Free(), weight=0.2).separate_cosine is None
    assert scale_invariant(Free(), weight=0.0, inner=False).separate_cosine is None


class Late(nn.Module):
    """Normalises one number an image and channel; not with the statistics of a batch where it is frozen."""

    def __init__(self, *, frozen: bool) -> None:
        super().__init__()
        self.frozen, self.norm, self.head = frozen, nn.BatchNorm1d(3), nn.Linear(3, 10)

    def train(self, mode: bool = True) -> Late:
        super().train(mode)
        self.norm.train(mode and not self.frozen)
        return self

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(input=x.mean((2, 3))))
        return logits


@pytest.mark.parametrize(("frozen", "batch"), [(False, 19), (True, 19), (False, 28)])
def test_statistics_of_one_number_are_refused_before_the_last_batch(frozen: bool, batch: int) -> None:
    """58 images are trained on: three batches of 19 leave one."""
    own, config = Classifier(Late(frozen=frozen)), replace(CONFIG, epochs=1, batch_size=batch)
    if frozen or batch == 28:
        finished(Trainer(own, small(), AdversarialTraining(), config))
        return
    with pytest.raises(
        ValueError, match="two images a process in every batch, the last one has 1: give another"
    ):
        Trainer(own, small(), AdversarialTraining(), config)
    with pytest.raises(ValueError, match="the last one has 10 for 6 processes"):
        Trainer(own, small(), AdversarialTraining(), CONFIG, group=Group(0, 6))
    assert not own.net.get_submodule("norm")._forward_pre_hooks
    finished(trainer("at", config))


def test_short_runs_keep_their_shape() -> None:
    """A warm-up of one epoch would be none."""
    assert TrainConfig(eps_warm_up=5).lasting(12).eps_warm_up == 2
    assert [TrainConfig(eps_warm_up=5).lasting(epochs).eps_warm_up for epochs in (1, 2, 3)] == [0, 0, 2]
    assert TrainConfig().lasting(12).eps_warm_up == 0


def test_who_is_refused_sees_nobody_elses_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished folder with other settings is not shown as if it were this command's."""
    monkeypatch.chdir(TESTS)
    monkeypatch.syspath_prepend(str(TESTS))
    settings = [*QUICK, "--epochs", "1", "--out", str(tmp_path / "run")]
    assert invoke("standard", *settings)[0] == 0
    code, error, output = invoke("standard", *settings, "--weight-decay", "0.1")
    assert code != 0
    assert "holds a run with other settings" in error
    assert "selected" not in output


def test_the_same_norm_is_the_same_ball(tmp_path: Path) -> None:
    """With its own norm, `--norm` changes nothing: also a start of a given size follows eps."""
    from scaleproof.cli.training_request import TrainRequest
    from scaleproof.training import recipe

    base = recipe("trades", name="original").defense
    words = dict.fromkeys(TrainRequest.__dataclass_fields__) | {"method": "trades", "eps": "4/255"}
    found = [TrainRequest(**(words | {"norm": norm})).attacked(base) for norm in (None, "linf", "Linf")]  # type: ignore[arg-type]
    plain, *named = found
    assert named == [plain, plain]
    assert plain.inner is not None
    assert base.inner is not None
    assert base.ball is not None
    assert plain.inner.start_size == pytest.approx(base.inner.start_size * 4 / 255 / base.ball.eps)


@pytest.mark.parametrize(("step", "passes"), [(0, 1), (1, 2)])
def test_an_attack_without_guidance_takes_no_pass_for_it_and_ends_where_it_did(
    monkeypatch: pytest.MonkeyPatch, step: int, passes: int
) -> None:
    method, classifier, seen = Guidance().at(0, step), network(), list[int]()
    assert method.inner is not None
    x, y = small().batch(0, 16)
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(0))
    learner = learner_of(classifier.net.train(), method.batch_norm)
    learner.classifier.net.register_forward_hook(lambda *_: seen.append(1))
    found = method.adversarial(learner, Batch(x, y, (noise,)))
    assert len(seen) == passes

    def guided(self: Guided, output: Output, y: Tensor, reference: Output | None) -> Tensor:
        assert reference is not None
        return self.objective(output, y) + self.weight * squared_distance_rows(
            reference.logits, output.logits
        )

    monkeypatch.setattr(Guided, "needs_reference", True)
    monkeypatch.setattr(Guided, "__call__", guided)
    assert torch.equal(method.adversarial(learner, Batch(x, y, (noise,))), found)
    assert len(seen) == passes + 2


@pytest.mark.parametrize(("steps", "folded"), [(1, False), (2, True)])
def test_the_record_says_how_gradaligns_attack_ran(steps: int, folded: bool) -> None:
    method = GradientAlignment(batch_norm=BatchNormPolicy(attack="eval"))
    assert method.inner is not None
    method = replace(method, inner=replace(method.inner, steps=steps))
    assert method.folds == folded
    notes = Trainer(network(), small(), method, CONFIG).stepper.notes()
    assert notes["folded"] == folded


def test_a_cpu_says_float32_where_tf32_was_asked_for() -> None:
    notes = Trainer(
        network(), small(), AdversarialTraining(), CONFIG, speed=Speed(precision="tf32")
    ).stepper.notes()
    assert (notes["precision"], notes["attack_precision"]) == ("float32", "float32")


def test_one_weight_guides_the_attack_and_the_loss() -> None:
    method = Guidance(weight=5.0).at(0, 1)
    assert method.inner is not None
    assert isinstance(method.inner.objective, Guided)
    assert (method.weight, method.inner.objective.weight) == (5.0, 5.0)


def test_the_end_of_a_training_says_that_nobody_examined_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TESTS)
    monkeypatch.syspath_prepend(str(TESTS))
    code, _, output = invoke(
        "standard", *QUICK, "--epochs", "1", "--seeds", "0,1", "--out", str(tmp_path / "run")
    )
    assert code == 0
    assert "Not examined: is the number real? `scaleproof evaluate` on this folder tells." in output
    assert "seed-1 epoch 1/1" in output
    assert "…" not in output.split("2 seeds: mean and deviation")[1]
