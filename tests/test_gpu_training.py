"""Training on a CUDA device: captured steps do what plain ones do, and a resumed run is the same run.

python -m pytest -m gpu tests/test_gpu_training.py
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from networks import Dropping
from scaleproof import load, suite
from scaleproof.defenses import BatchNormPolicy
from scaleproof.models import Classifier, as_classifier, build
from scaleproof.speed import PLAIN, Speed, exact_float32
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
        assert run.stepper.notes()["graph"] == (name == "graph"), run.stepper.notes()["notes"]
    moved = float((found["plain"] - start).norm())
    assert float((found["graph"] - found["eager"]).norm()) < 0.05 * moved
    assert (
        float((found["graph"] - found["plain"]).norm()) < 0.5 * moved
    )  # bf16 flips signs of small gradients


def test_float32_in_a_graph_is_float32() -> None:
    found = {}
    for captured in (True, False):
        run = training("at", Speed(precision="float32", fold=False, graph=captured))
        finished(run)
        assert run.stepper.notes()["graph"] == captured
        found[captured] = floats(run)
    torch.testing.assert_close(found[True], found[False], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("combination", ["at", "trades-si", "free", "gradalign"])
def test_two_runs_and_a_resumed_one_are_the_same_bit_for_bit(combination: str, tmp_path: Path) -> None:
    expected = finished(training(combination, Speed()))
    assert same(expected, finished(training(combination, Speed())))
    for progress in training(combination, Speed(), tmp_path).run():
        if progress.epoch == 2 and progress.step == 2:
            break
    assert same(expected, finished(training(combination, Speed(), tmp_path)))


def test_a_network_that_draws_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    """Also where a graph is captured in the middle of a run: what its warm-up drew is put back."""

    def made(folder: Path | None) -> Trainer:
        torch.manual_seed(3)
        net, data = as_classifier(Dropping().cuda()), load("sample-train").first(64)
        return Trainer(net, data, chosen("at"), CONFIG, folder=folder, checkpoint_seconds=0)

    whole = made(None)
    expected = finished(whole)
    assert whole.stepper.notes()["graph"], whole.stepper.notes()
    cut = made(tmp_path)
    for progress in cut.run():
        if progress.epoch == 2:
            break
    torch.manual_seed(99)
    assert same(finished(made(tmp_path)), expected)


def test_gradalign_in_eval_mode_is_captured() -> None:
    method = replace(chosen("gradalign"), batch_norm=BatchNormPolicy(attack="eval"))
    found = {}
    for graph in (True, False):
        run = Trainer(network(width=16).cuda(), small(), method, CONFIG, speed=Speed(graph=graph))
        start = floats(run)
        finished(run)
        found[graph] = floats(run)
        assert run.stepper.notes()["graph"] == graph, run.stepper.notes()
    assert float((found[True] - found[False]).norm()) < 0.05 * float((found[False] - start).norm())


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
        for kind, others in (("beside", True), ("alone", False)):
            speed = json.loads((tmp_path / f"{kind}-{seed}" / "training.json").read_text())["speed"]
            assert any("side by side with 2 more" in note for note in speed["notes"]) == others


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


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(("rows", "channels", "size"), [(128, 64, 32), (7, 48, 5), (2, 640, 8)])
def test_batch_norm_kernels(rows: int, channels: int, size: int, joins: bool, relu: bool) -> None:
    import plain_kernels
    from scaleproof.speed import norm_kernels

    torch.manual_seed(0)
    shape = (rows, channels, size, size)
    x, residual, flow = (
        torch.randn(shape, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)
        for _ in range(3)
    )
    x = x * 2 + 1
    weight, bias = torch.rand(channels, device="cuda") + 0.5, torch.randn(channels, device="cuda")
    running = torch.randn(channels, device="cuda"), torch.rand(channels, device="cuda") + 0.5
    mine, theirs = [t.clone() for t in running], [t.clone() for t in running]
    found = norm_kernels.moments(x, mine[0], mine[1], 0.1, 1e-5, True)
    torch.testing.assert_close(
        found, plain_kernels.moments(x, theirs[0], theirs[1], 0.1, 1e-5, True), rtol=1e-3, atol=1e-3
    )
    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)
    arguments = (x, residual if joins else None, found, weight, bias, relu)
    y = norm_kernels.normalised(*arguments)
    torch.testing.assert_close(y, plain_kernels.normalised(*arguments), rtol=0.02, atol=0.02)
    fast = norm_kernels.backward(flow, x, y, found, weight, relu, joins)
    plain = plain_kernels.backward(flow, x, y, found, weight, relu, joins)
    torch.testing.assert_close(fast[0], plain[0], rtol=0.02, atol=0.02)
    if joins:
        torch.testing.assert_close(fast[1], plain[1])
    torch.testing.assert_close(fast[2], plain[2], rtol=1e-3, atol=0.3)
    other = residual if joins else None
    second = torch.randn_like(flow)  # not x: the projection takes x to zero, and zeros compare badly
    fast = norm_kernels.second_backward(second, other, flow, x, y, found, weight, relu)
    plain = plain_kernels.second_backward(second, other, flow, x, y, found, weight, relu)
    for one, two in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, two, rtol=0.02, atol=0.02 * float(two.abs().max()))


@pytest.mark.parametrize("name", ["resnet18", "preact-resnet18"])
def test_the_pass_of_training_beside_autocast(name: str) -> None:
    from scaleproof.speed.training_body import train_features

    torch.manual_seed(0)
    fast, plain, exact = (build(name).cuda().train() for _ in range(3))
    for net in (plain, exact):
        net.load_state_dict(fast.state_dict())
    x = torch.rand(128, 3, 32, 32, device="cuda")
    weights = torch.randn(128, 512, device="cuda")
    (train_features(fast, x) * weights).sum().backward()  # type: ignore[arg-type]
    with torch.autocast("cuda", torch.bfloat16):
        features = plain.features(x)  # type: ignore[operator]
    (features * weights).sum().backward()
    with exact_float32():
        (exact.features(x) * weights).sum().backward()  # type: ignore[operator]
    closeness = []
    for mine, theirs, right in zip(*(net.parameters() for net in (fast, plain, exact)), strict=True):
        if right.grad is not None:
            assert mine.grad is not None
            assert theirs.grad is not None
            closeness.append([cosine(mine.grad, right.grad), cosine(theirs.grad, right.grad)])
    ours, autocast = torch.tensor(closeness).unbind(1)
    assert float(ours.min()) > 0.8
    assert float(ours.mean()) > float(autocast.mean()) - 0.01, "no further from float32 than autocast is"
    for one, other in zip(fast.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("combination", ["at", "trades-si"])
def test_parts_side_by_side_find_what_the_batch_finds(combination: str) -> None:
    config = replace(QUICK, batch_size=64, epochs=1)
    runs = []
    for streams in (1, 2):
        torch.manual_seed(0)
        net = network(width=16).cuda()
        training = Trainer(net, small(256), chosen(combination), config, speed=Speed(streams=streams))
        finished(training)
        assert training.stepper.notes()["graph"], training.stepper.notes()
        runs.append(torch.cat([p.detach().flatten() for p in net.parameters()]))
    assert cosine(runs[0], runs[1]) > 0.999
    assert not torch.equal(runs[0], torch.zeros_like(runs[0]))


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0))
