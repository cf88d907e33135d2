"""Training on a CUDA device: captured steps do what plain ones do, and a resumed run is the same run.

python -m pytest -m gpu tests/test_gpu_training.py
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from scaleproof import load, suite
from scaleproof.models import Classifier, build
from scaleproof.speed import PLAIN, Speed
from scaleproof.speed.steps import ascend
from scaleproof.threat import Threat
from scaleproof.train import Plan, train
from scaleproof.training import Trainer
from scaleproof.training.weights import weights_of
from training_helpers import COMBINATIONS, QUICK, chosen, finished, network, same, small

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CONFIG = replace(QUICK, rate=0.01)


def training(combination: str, speed: Speed, folder: Path | None = None, width: int = 16) -> Trainer:
    net = network(sphere=combination.endswith("-he"), width=width).cuda()
    options = {"test": small(8, "test"), "speed": speed, "folder": folder, "checkpoint_seconds": 0.0}
    return Trainer(net, small(), chosen(combination), CONFIG, **options)  # type: ignore[arg-type]


def floats(trainer: Trainer) -> torch.Tensor:
    return torch.cat([t.flatten() for t in weights_of(trainer.classifier).values() if t.is_floating_point()])


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_a_captured_step_does_what_a_plain_one_does(combination: str) -> None:
    start = floats(training(combination, PLAIN))
    found = {}
    for name, speed in {"graph": Speed(), "eager": Speed(graph=False), "plain": PLAIN}.items():
        run = training(combination, speed)
        finished(run)
        found[name] = floats(run)
        assert run.stepper.notes()["graph"] == (name == "graph"), run.stepper.notes()
    moved = float((found["plain"] - start).norm())
    assert float((found["graph"] - found["eager"]).norm()) < 0.05 * moved
    assert (
        float((found["graph"] - found["plain"]).norm()) < 0.5 * moved
    )  # bf16 flips signs of small gradients


@pytest.mark.parametrize("combination", ["at", "trades-si", "free", "gradalign"])
def test_two_runs_and_a_resumed_one_are_the_same_bit_for_bit(combination: str, tmp_path: Path) -> None:
    expected = finished(training(combination, Speed()))
    assert same(expected, finished(training(combination, Speed())))
    for progress in training(combination, Speed(), tmp_path).run():
        if progress.epoch == 2 and progress.step == 2:
            break
    assert same(expected, finished(training(combination, Speed(), tmp_path)))


def test_seeds_side_by_side_are_the_seeds_alone(tmp_path: Path) -> None:
    def plan(seed: int, folder: str) -> Plan:
        return Plan(
            name="AT", architecture="resnet-small", defense=chosen("at"), recipe="test", provenance="test",
            config=replace(CONFIG, seed=seed, epochs=3), dataset=load("sample-train").first(200),
            test=load("sample").first(50), attacks=suite("pgd", steps=2), speed=Speed(),
            device=torch.device("cuda"), folder=tmp_path / folder,
        )  # fmt: skip

    train([plan(seed, f"beside-{seed}") for seed in (0, 1, 2)])
    for seed in (0, 1, 2):
        train([plan(seed, f"alone-{seed}")])
        one, two = (load_file(tmp_path / f"{kind}-{seed}/last.safetensors") for kind in ("beside", "alone"))
        assert same(one, two)


@pytest.mark.parametrize("name", ["preact-resnet18", "resnet50"])
def test_other_architectures_train(name: str) -> None:
    run = Trainer(Classifier(build(name).cuda()), small(), chosen("at"), replace(CONFIG, epochs=1))
    finished(run)
    assert run.stepper.notes()["graph"]


@pytest.mark.parametrize("eps", [0.0, 8 / 255, 0.3])
def test_a_step_in_one_kernel_is_the_same_step(eps: float) -> None:
    torch.manual_seed(0)
    clean, gradient = torch.rand(5, 3, 9, 9).cuda(), torch.randn(5, 3, 9, 9).cuda()
    gradient[gradient.abs() < 0.1] = 0
    gradient[0, 0, 0, 0] = torch.nan
    threat = Threat(eps=eps)
    current = threat.spread(clean, torch.rand_like(clean))
    for stride in (2 / 255, 0.5):
        plain = threat.ascend(current, gradient, clean, stride)
        assert torch.equal(ascend(threat, current, gradient, clean, stride), plain)
