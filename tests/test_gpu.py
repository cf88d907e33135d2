"""What only a CUDA device can show: fused kernels, captured graphs, the same verdicts twice.

python -m pytest -m gpu tests/test_gpu.py
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from scaleproof import Speed, evaluate, losses, suite
from scaleproof.attacks import APGD, Attack, Scouting, Scouts
from scaleproof.data import load
from scaleproof.models import Classifier, build, load_model
from scaleproof.models.swish import SwishNet
from scaleproof.oracle import Oracle
from scaleproof.speed import PLAIN
from speed_fixtures import trained_looking
from test_speed import OBJECTIVES
from test_twins import vgg
from their_networks import TheirResNet

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def demo() -> tuple[Classifier, torch.Tensor, torch.Tensor]:
    x, y = load("sample").batch(0, 200)
    return load_model("demo").classifier.cuda(), x.cuda(), y.cuda()


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
@pytest.mark.parametrize(
    "speed",
    [Speed(), Speed(graph=False), Speed(fold=False), Speed(precision="fp16"), Speed(precision="float32")],
)
def test_fast_gradients_agree(objective: losses.Objective, speed: Speed) -> None:
    classifier, x, y = demo()
    plain = Oracle(classifier, speed=PLAIN).value_and_grad(objective, x, y)
    oracle = Oracle(classifier, speed=speed)
    for _ in range(2):
        fast = oracle.value_and_grad(objective, x, y)
    notes = oracle.describe()
    assert notes["graph"] == speed.graph, notes
    least = 0.9 if objective is losses.dlr else 0.97  # its ratio amplifies rounding where logits nearly tie
    assert float(F.cosine_similarity(fast.gradient.flatten(), plain.gradient.flatten(), dim=0)) > least


@pytest.mark.parametrize("name", ["resnet50", "preact-resnet18", "wrn-28-10"])
def test_other_architectures(name: str) -> None:
    torch.manual_seed(0)
    net, x, y = Classifier(build(name).cuda().eval()), torch.rand(8, 3, 32, 32).cuda(), torch.arange(8).cuda()
    plain = Oracle(net, speed=PLAIN).value_and_grad(losses.cross_entropy, x, y)
    fast = Oracle(net).value_and_grad(losses.cross_entropy, x, y)
    assert float(F.cosine_similarity(fast.gradient.flatten(), plain.gradient.flatten(), dim=0)) > 0.95


@pytest.mark.parametrize(
    ("make", "note"),
    [
        (lambda: TheirResNet(width=16), "computed as our resnet-small"),
        (vgg, "traced and folded"),
        (lambda: SwishNet((16, 32, 64), (1, 1, 1), stem=16, wide=True), "traced and folded"),
    ],
    ids=["ours", "folded", "swish"],
)
def test_networks_that_are_not_ours(make: Callable[[], nn.Module], note: str) -> None:
    torch.manual_seed(0)
    net = Classifier(trained_looking(make()).cuda())
    x, y = torch.rand(64, 3, 32, 32).cuda(), torch.arange(64).cuda() % 10
    plain = Oracle(net, speed=PLAIN).value_and_grad(losses.cosine_cross_entropy(), x, y)
    oracle = Oracle(net, images=x)
    for _ in range(3):
        fast = oracle.value_and_grad(losses.cosine_cross_entropy(), x, y)
    assert oracle.describe()["graph"], oracle.notes
    assert oracle.format == "bf16"
    assert note in oracle.notes
    assert float(F.cosine_similarity(fast.gradient.flatten(), plain.gradient.flatten(), dim=0)) > 0.95


def test_a_graph_gives_what_eager_gives() -> None:
    classifier, x, y = demo()
    graph, eager = (Oracle(classifier, speed=Speed(graph=flag)) for flag in (True, False))
    for start in (0, 50):  # a second replay with other images
        part = slice(start, start + 50)
        one, two = (o.value_and_grad(losses.cross_entropy, x[part], y[part]) for o in (graph, eager))
        torch.testing.assert_close(one.gradient, two.gradient, rtol=0.02, atol=1e-5)


@pytest.mark.parametrize("mode", ["independent", "cascade"])
def test_two_runs_are_the_same_bit_for_bit(mode: str) -> None:
    classifier, x, y = demo()
    runs = [evaluate(classifier, (x, y), suite("paper"), mode=mode, batch_size=64) for _ in range(2)]  # type: ignore[arg-type]
    for first, second in zip(runs[0].attacks, runs[1].attacks, strict=True):
        assert (first.verdicts["digest"] == second.verdicts["digest"]).all()


def test_scaling_leaves_si_pgd_untouched() -> None:
    classifier, x, y = demo()
    digests = [
        evaluate(classifier.rescaled(alpha), (x, y), suite("si-pgd")).attacks[0].verdicts["digest"].tobytes()
        for alpha in (1e-3, 1.0, 1e3)
    ]
    assert len(set(digests)) == 1


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("size", [32, 7])
def test_kernels_against_plain_torch(width: int, halved: bool, size: int) -> None:
    import plain_kernels
    from scaleproof.speed import kernels, stem_kernels

    torch.manual_seed(0)

    def random(size: int) -> torch.Tensor:
        tensor = torch.randn(5, width, size, size, device="cuda", dtype=torch.bfloat16)
        return tensor.contiguous(memory_format=torch.channels_last)

    main, shortcut, activation = random(size), random((size + 1) // 2 if halved else size), random(size)
    expected = plain_kernels.add_and_mask(main, shortcut, activation)
    torch.testing.assert_close(kernels.add_and_mask(main, shortcut, activation), expected)
    bias = torch.randn(width, device="cuda").to(torch.bfloat16)
    if halved:
        return
    weight = torch.randn(width, 3, 3, 3, device="cuda").to(torch.bfloat16)
    x = torch.rand(5, 3, size, size, device="cuda")
    rows = stem_kernels.stem_rows(weight)
    exact = F.relu(F.conv2d(x.to(torch.bfloat16).double(), weight.double(), bias.double(), padding=1))
    torch.testing.assert_close(stem_kernels.stem_forward(x, rows, bias).double(), exact, rtol=0.01, atol=0.01)
    found = stem_kernels.stem_backward(main, shortcut, activation, rows)
    plain = plain_kernels.stem_backward(main, shortcut, activation, weight)
    assert float(F.cosine_similarity(found.flatten(), plain.flatten(), dim=0)) > 0.9999
    torch.testing.assert_close(found, plain, rtol=0.02, atol=0.2)  # nine products, each rounded to bf16


SCOUTED = APGD(
    objective=losses.cw_margin, targets=2, ranking=Scouts(), steps=20, name="scouted", label="scouted"
)


@pytest.mark.parametrize(
    "name", ["pgd", "apgd-ce", "apgd-t", "scouted", "scouting", "fab-t", "square", "rays"]
)
def test_a_captured_step_is_the_step(name: str) -> None:
    """Attacks whose whole step is one graph find what they find without graphs, at the same counted cost."""
    classifier, x, y = demo()
    own: dict[str, Attack] = {"scouted": SCOUTED, "scouting": Scouting()}
    attacks = [own[name]] if name in own else [shortened(attack) for attack in suite(name)]
    results = []
    for graph in (True, False):
        speed = Speed(precision="float32", graph=graph)
        for mode in ("independent", "cascade"):
            found = evaluate(classifier, (x, y), attacks, mode=mode, batch_size=96, speed=speed)  # type: ignore[arg-type]
            assert found.speed["graph"] == graph, found.speed
            results.append(found)
    for one, two in zip(results[:2], results[2:], strict=True):
        agree = one.attacks[0].broken() == two.attacks[0].broken()
        assert agree.mean() > 0.98
        assert abs(one.attacks[0].stuck - two.attacks[0].stuck) <= 0.05 * one.attacks[0].forwards
    captured, eager = results[0].attacks[0], results[2].attacks[0]
    assert eager.forwards <= captured.forwards <= 1.2 * eager.forwards, "padding is all that is added"


def shortened(attack: Attack) -> Attack:
    return replace(attack, steps=min(attack.steps, 60))  # type: ignore[type-var]


def test_an_audit_looks_at_all_chunks_together() -> None:
    classifier, x, y = demo()
    attacks = suite("pgd,fab-t-audit")
    found = evaluate(classifier, (x, y), attacks, mode="cascade", batch_size=32)
    again = evaluate(classifier, (x, y), attacks, mode="cascade", batch_size=200)
    seen = [run.attacks[1].verdicts["attacked"].any(0) for run in (found, again)]
    assert (seen[0] == seen[1]).mean() > 0.98


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("width", [16, 64])
def test_pairs_against_plain_torch(width: int, joins: bool) -> None:
    import plain_kernels
    from scaleproof.speed import kernels, stem_kernels

    torch.manual_seed(0)
    sums, shortcut = (
        torch.randn(6, width, 7, 7, device="cuda", dtype=torch.float16).contiguous(
            memory_format=torch.channels_last
        )
        for _ in range(2)
    )
    bias = torch.randn(width, device="cuda", dtype=torch.float16)
    for difference in (1e-3, 0.3):
        given = (sums, bias, shortcut if joins else None, difference)
        torch.testing.assert_close(kernels.pair_relu(*given), plain_kernels.pair_relu(*given))
    weight, x = torch.randn(width, 3, 3, 3, device="cuda").half(), torch.rand(5, 3, 9, 9, device="cuda")
    exact = F.conv2d(x.half().double(), weight.double(), padding=1)
    found = stem_kernels.stem_sums(x, stem_kernels.stem_rows(weight))
    torch.testing.assert_close(found.double(), exact, rtol=2e-3, atol=2e-3)


def test_differences_in_half_precision() -> None:
    """What SPSA asks for, over a thousandth: float16 in pairs against two passes in float32."""
    classifier, x, _ = demo()
    torch.manual_seed(0)
    signs = torch.randn(20, 8, 3, 32, 32, device="cuda").sign()
    found = []
    for speed in (Speed(), PLAIN):
        ahead, behind = Oracle(classifier, speed=speed).both_sides(x[:20], signs, 1e-3)
        found.append((ahead - behind) / 2e-3)
    assert float((found[0] - found[1]).norm() / found[1].norm()) < 0.05


def test_spsa_takes_pairs() -> None:
    classifier, x, y = demo()
    attack = [replace(attack, steps=5) for attack in suite("spsa-128")]  # type: ignore[type-var]
    found = evaluate(classifier, (x[:20], y[:20]), attack, mode="cascade")
    assert "differences in fp16, held apart from their middle" in found.speed["notes"]
    plain = evaluate(classifier, (x[:20], y[:20]), attack, mode="cascade", speed=PLAIN)
    assert abs(found.robust().correct - plain.robust().correct) <= 2


def test_a_graph_is_made_for_what_comes_again() -> None:
    classifier, x, _ = demo()
    oracle = Oracle(classifier)
    assert oracle.graphs is not None
    for times in range(1, 4):
        oracle.logits(x[:10])
        assert len(oracle.graphs.graphs) == (times > 1)


@pytest.mark.parametrize("width", [16, 160])
@pytest.mark.parametrize("size", [8, 7])
def test_kernels_of_pre_activation_networks(width: int, size: int) -> None:
    import plain_kernels
    from scaleproof.speed import kernels, stem_kernels

    torch.manual_seed(0)

    def random(size: int) -> torch.Tensor:
        tensor = torch.randn(3, width, size, size, device="cuda", dtype=torch.float16)
        return tensor.contiguous(memory_format=torch.channels_last)

    sums, same, half, activation = random(size), random(size), random((size + 1) // 2), random(size)
    scale, bias = torch.randn(2, width, device="cuda")
    close = {"rtol": 2e-3, "atol": 2e-3}
    for beside in (None, same):
        given = (sums, beside, scale, bias)
        torch.testing.assert_close(kernels.activated(*given), plain_kernels.activated(*given), **close)
    for other, flag in ((None, False), (same, True), (same, False), (half, False)):
        found, plain = (
            module.through_activation(sums, other, activation, scale, beside=flag)
            for module in (kernels, plain_kernels)
        )
        torch.testing.assert_close(found, plain, **close)
    weight = torch.randn(width, 3, 3, 3, device="cuda").half()
    if width == 16:
        found = stem_kernels.stem_transposed(sums, stem_kernels.stem_rows(weight))
        torch.testing.assert_close(found, plain_kernels.stem_transposed(sums, weight), rtol=0.02, atol=0.1)
