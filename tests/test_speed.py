"""Every fast way to a gradient against the plain float32 one."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof import losses
from scaleproof.data import load
from scaleproof.models import Classifier, build, load_model
from scaleproof.oracle import Oracle
from scaleproof.speed import PLAIN, Speed, exact_float32, tf32_float32
from scaleproof.speed.fold import can_fold, fold, is_own
from scaleproof.speed.precision import arithmetic_units
from speed_fixtures import NETWORKS, trained_looking

OBJECTIVES = [
    losses.cross_entropy,
    losses.cw_margin,
    losses.dlr,
    losses.cosine_cross_entropy(),
    losses.probability_margin,
    losses.standardised_cross_entropy(),
]


@pytest.fixture(scope="module")
def demo() -> tuple[Classifier, Tensor, Tensor]:

    x, y = load("sample").batch(0, 24)
    return load_model("demo").classifier, x, y


@pytest.mark.parametrize("name", NETWORKS)
def test_folding_keeps_the_function(name: str) -> None:
    torch.manual_seed(0)
    net = trained_looking(NETWORKS[name]()).double()
    x = torch.rand(3, 3, 16, 16, dtype=torch.float64)
    folded = fold(net)  # type: ignore[arg-type]
    torch.testing.assert_close(folded(x), net(x), rtol=1e-9, atol=1e-9)
    norms = [sum(isinstance(module, nn.BatchNorm2d) for module in each.modules()) for each in (net, folded)]
    assert norms[1] < norms[0]
    assert not any(parameter.requires_grad for parameter in folded.parameters())
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_what_cannot_be_folded() -> None:
    net = NETWORKS["resnet"]()
    assert not can_fold(net)  # train mode
    net.eval()
    assert can_fold(net)
    handle = net.conv1.register_forward_hook(lambda *_: None)
    assert not can_fold(net)
    handle.remove()
    assert not can_fold(nn.Linear(2, 2).eval())
    net.head = nn.Sequential(nn.Linear(32, 10)).eval()
    net.head.register_forward_pre_hook(lambda *_: None)
    assert not can_fold(net)

    class OtherLinear(nn.Linear):
        """Stands for any head of another kind."""

    net.head = OtherLinear(32, 10).eval()
    assert not can_fold(net)
    patched = NETWORKS["resnet"]().eval()
    patched.forward = lambda x: x  # type: ignore[method-assign, assignment]
    assert not can_fold(patched)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
@pytest.mark.parametrize(
    ("speed", "least"),
    [
        (Speed(precision="float32"), 0.99999),
        (Speed(precision="bf16"), 0.97),
        (Speed(precision="bf16", fold=False), 0.95),
    ],
    ids=["folded", "folded bf16", "autocast bf16"],
)
def test_fast_gradients_agree(
    demo: tuple[Classifier, Tensor, Tensor], objective: losses.Objective, speed: Speed, least: float
) -> None:
    classifier, x, y = demo
    plain = Oracle(classifier, speed=PLAIN).value_and_grad(objective, x, y)
    fast = Oracle(classifier, speed=speed).value_and_grad(objective, x, y)
    assert fast.gradient.dtype == fast.value.dtype == torch.float32
    cosines = F.cosine_similarity(fast.gradient.flatten(1), plain.gradient.flatten(1))
    assert float(cosines.median()) > least  # of DLR's, those of nearly tied classes may differ altogether
    torch.testing.assert_close(fast.logits, plain.logits, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("name", ["resnet", "bottleneck", "preact"])
@pytest.mark.usefixtures("spelled_out")
def test_the_hand_written_pass_differentiated_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from scaleproof.speed import training_body

    monkeypatch.setattr(training_body, "FORMAT", torch.float32)
    torch.manual_seed(0)
    plain = trained_looking(NETWORKS[name]()).train()
    fast = copy.deepcopy(plain)
    x, direction = torch.rand(8, 3, 16, 16, requires_grad=True), torch.randn(8, 3, 16, 16)
    bodies = partial(training_body.train_features, fast, convolved=training_body.twice), plain.features
    for body in bodies:
        value = body(x).square().sum()  # type: ignore[operator]
        (gradient,) = torch.autograd.grad(value, x, create_graph=True)
        (gradient * direction).sum().backward()
    for one, other in zip(fast.parameters(), plain.parameters(), strict=True):
        if other.grad is None:  # the head's
            assert one.grad is None
            continue
        scale = float(other.grad.abs().max())
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-3 * scale)


def test_exact_float32_restores_what_it_found() -> None:
    matmul = torch.backends.cuda.matmul
    saved = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        with torch.autocast("cpu", torch.bfloat16), exact_float32():
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = saved


def test_bad_precision() -> None:
    with pytest.raises(
        ValueError, match="precision must be one of auto, float32, tf32, fp16, bf16, got 'fp8'"
    ):
        Speed(precision="fp8")  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses what torch deprecates
def test_compiled_gradients_agree(demo: tuple[Classifier, Tensor, Tensor]) -> None:
    classifier, x, y = demo
    plain = Oracle(classifier, speed=PLAIN).value_and_grad(losses.cross_entropy, x, y)
    fast = Oracle(classifier, speed=Speed(precision="float32", compile=True))
    result = fast.value_and_grad(losses.cross_entropy, x, y)
    assert fast.describe()["compiled"]
    assert float(F.cosine_similarity(result.gradient.flatten(), plain.gradient.flatten(), dim=0)) > 0.9999


def test_tf32_is_set_for_gpu_convolutions_alone_and_restored() -> None:
    units = arithmetic_units()
    saved = [unit.fp32_precision for unit in units]
    with tf32_float32():
        assert [unit.fp32_precision for unit in units] == ["ieee", "tf32", "ieee", "ieee"]
    assert [unit.fp32_precision for unit in units] == saved


def test_tf32_is_float32_on_a_cpu() -> None:
    net = Classifier(trained_looking(NETWORKS["resnet"]()))
    x, y = torch.rand(4, 3, 16, 16), torch.arange(4)
    one, two = (
        Oracle(net, speed=Speed(precision=kind)).value_and_grad(losses.cross_entropy, x, y)  # type: ignore[arg-type]
        for kind in ("tf32", "float32")
    )
    assert torch.equal(one.gradient, two.gradient)
    assert Oracle(net, speed=Speed(precision="tf32")).describe()["precision"] == "tf32"


@pytest.mark.parametrize("name", ["resnet-tiny", "preact-resnet18"])
@pytest.mark.parametrize(
    "stem",
    [
        nn.Conv2d(1, 16, 3, 1, 1, bias=False),
        nn.Conv2d(3, 16, 3, 1, 1),
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.Conv2d(3, 16, 3, 1, 1, bias=False, padding_mode="reflect"),
    ],
)
def test_another_stem_makes_a_network_nobody_s_own(name: str, stem: nn.Conv2d) -> None:
    """What is written out by hand for our networks knows one stem."""
    net = build(name)
    assert is_own(net)
    net.conv1 = stem
    assert not is_own(net)


@pytest.mark.parametrize(
    ("place", "part"),
    [
        ("blocks.0.conv2", nn.Conv2d(8, 8, 3, 1, "same", bias=False)),
        ("blocks.1.shortcut.0", nn.Conv2d(8, 16, 3, 2, 1, bias=False)),
        ("blocks.0.bn1", nn.BatchNorm2d(8, affine=False)),
        ("blocks.0.bn1", nn.BatchNorm2d(8, track_running_stats=False)),
        ("conv1", nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False))),
        ("bn1", nn.Identity()),
        ("blocks.0.conv1", nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8))),
        ("blocks.2.bn2", nn.Identity()),
        ("blocks.0.bn1", nn.BatchNorm2d(8, momentum=None)),
        ("blocks.0.shortcut", nn.Sequential()),
        ("blocks.0.shortcut", nn.Conv2d(8, 8, 1, bias=False)),
        ("blocks.1.shortcut", nn.Sequential(nn.Conv2d(8, 16, 1, 2, bias=False))),
        ("blocks.1.shortcut.1", nn.Identity()),
        ("blocks.0", nn.Identity()),
        ("head", nn.Sequential(nn.Linear(32, 10))),
    ],
)
def test_other_parts_make_a_network_nobody_s_own(place: str, part: nn.Module) -> None:
    """It runs as it is: nothing can be folded into or written out for such parts."""
    net = build("resnet-tiny")
    parent, _, name = place.rpartition(".")
    setattr(net.get_submodule(parent), name, part)
    assert not is_own(net)
    found = Oracle(Classifier(net.eval())).judge(torch.rand(4, 3, 32, 32))
    assert found.shape == (4, 10)
