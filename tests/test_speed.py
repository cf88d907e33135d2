"""Every fast way to a gradient against the plain float32 one."""

import copy
import sys
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plain_kernels
from scaleproof import losses
from scaleproof.data import load
from scaleproof.models import Classifier, load_model
from scaleproof.models.preact import PreActResNet
from scaleproof.models.resnet import BasicBlock, Bottleneck, ResNet
from scaleproof.oracle import Oracle
from scaleproof.speed import PLAIN, Speed, exact_float32, tf32_float32
from scaleproof.speed.fold import can_fold, fold
from scaleproof.speed.precision import arithmetic_units

OBJECTIVES = [
    losses.cross_entropy,
    losses.cw_margin,
    losses.dlr,
    losses.cosine_cross_entropy(),
    losses.probability_margin,
    losses.standardised_cross_entropy(),
]


def trained_looking(net: nn.Module, seed: int = 0) -> nn.Module:
    """Running statistics and affine parameters as a trained network has them, not zeros and ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.2, generator=generator)  # type: ignore[union-attr]
                module.running_var.uniform_(0.5, 2.0, generator=generator)  # type: ignore[union-attr]
                module.weight.uniform_(0.5, 1.5, generator=generator)
                module.bias.normal_(0, 0.2, generator=generator)
    return net.eval()


NETWORKS = {
    "resnet": lambda: ResNet(BasicBlock, (1, 2, 1), width=8),
    "bottleneck": lambda: ResNet(Bottleneck, (1, 2), width=8),
    "preact": lambda: PreActResNet((8, 16), 2, stem=8),
}


@pytest.fixture(scope="module")
def demo() -> tuple[Classifier, Tensor, Tensor]:
    from scaleproof.data import load

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
    cosine = F.cosine_similarity(fast.gradient.flatten(), plain.gradient.flatten(), dim=0)
    assert float(cosine) > least
    torch.testing.assert_close(fast.logits, plain.logits, rtol=0.05, atol=0.1)


@pytest.fixture
def spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CUDA body's kernels in plain torch, so that its own arithmetic can be checked on a CPU."""

    def relu(x: Tensor, w: Tensor, b: Tensor, stride: list[int], padding: list[int], *_: object) -> Tensor:
        return F.relu(F.conv2d(x, w, b, stride, padding))

    def add_relu(
        x: Tensor,
        w: Tensor,
        z: Tensor,
        alpha: float,
        b: Tensor,
        stride: list[int],
        padding: list[int],
        *_: object,
    ) -> Tensor:
        return F.relu(F.conv2d(x, w, b, stride, padding) + alpha * z)

    monkeypatch.setattr(torch, "cudnn_convolution_relu", relu)
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", add_relu)
    monkeypatch.setitem(sys.modules, "scaleproof.speed.kernels", plain_kernels)  # type: ignore[arg-type]
    monkeypatch.setattr("scaleproof.speed.kernels", plain_kernels, raising=False)
    monkeypatch.setitem(sys.modules, "scaleproof.speed.norm_kernels", plain_kernels)  # type: ignore[arg-type]
    monkeypatch.setattr("scaleproof.speed.norm_kernels", plain_kernels, raising=False)
    monkeypatch.delitem(sys.modules, "scaleproof.speed.fused", raising=False)
    monkeypatch.delitem(sys.modules, "scaleproof.speed.training_body", raising=False)


@pytest.mark.parametrize("name", ["resnet", "bottleneck"])
@pytest.mark.parametrize("size", [16, 14])  # 14, 7, 4: odd sizes on the way
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("height", [1.0, 1e-9, 1e6])  # of the gradient that arrives
@pytest.mark.usefixtures("spelled_out")
def test_the_hand_written_backward(name: str, size: int, dtype: torch.dtype, height: float) -> None:
    from scaleproof.speed.fused import FusedBody

    torch.manual_seed(0)
    net = trained_looking(NETWORKS[name]())
    body = FusedBody(net, dtype)  # type: ignore[arg-type]
    x = torch.rand(4, 3, size, size, requires_grad=True)
    fast, plain = body(x), net.features(x)
    torch.testing.assert_close(fast, plain, rtol=0.05, atol=0.05)
    weights = torch.randn_like(plain) * height
    gradients = [
        torch.autograd.grad((features * weights).sum(), x)[0].flatten() for features in (fast, plain)
    ]
    gradients = [gradient.double() / height for gradient in gradients]
    assert float(F.cosine_similarity(*gradients, dim=0)) > (0.98 if dtype == torch.bfloat16 else 0.9995)
    assert float(gradients[0].norm() / gradients[1].norm()) == pytest.approx(1, abs=0.05)


def quotients(
    net: nn.Module, x: Tensor, directions: Tensor, difference: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Difference quotients of the features (B S, D) by the paired body, and by two passes in float64."""
    from scaleproof.speed.fused import FusedBody
    from scaleproof.speed.pairs import PairedBody

    ahead, behind = PairedBody(FusedBody(net, dtype))(x, directions, difference)  # type: ignore[arg-type]
    exact = copy.deepcopy(net).double()
    sides = [(x[:, None] + side * difference * directions).flatten(0, 1).double() for side in (1, -1)]
    with torch.no_grad():
        features = [exact.features(side) for side in sides]  # type: ignore[operator]
    return (ahead - behind) / (2 * difference), (features[0] - features[1]) / (2 * difference)


def random_signs(count: int, samples: int, size: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.rand(count, 3, size, size), torch.randn(count, samples, 3, size, size).sign()


@pytest.mark.parametrize("name", ["resnet", "bottleneck"])
@pytest.mark.parametrize("size", [16, 14])
@pytest.mark.parametrize("difference", [1e-3, 0.3])  # 0.3: many a ReLU is open on one side only
@pytest.mark.usefixtures("spelled_out")
def test_two_sides_in_one_pass(name: str, size: int, difference: float) -> None:
    """In float64 a pair is exactly the two points it stands for."""
    torch.manual_seed(0)
    net = trained_looking(NETWORKS[name]()).double()
    x, directions = (one.double() for one in random_signs(3, 4, size))
    found, exact = quotients(net, x, directions, difference, torch.float64)
    torch.testing.assert_close(found.double(), exact, rtol=2e-3, atol=2e-3)  # the features leave in float32


@pytest.mark.usefixtures("spelled_out")
def test_half_precision_keeps_a_small_difference() -> None:
    """Held apart, a difference over a thousandth survives float16; between two passes in float16 much is noise."""
    from scaleproof.speed.fused import FusedBody

    net = load_model("demo").classifier.net
    _, directions = random_signs(6, 16, 32)
    x = load("sample").batch(0, 6)[0]
    found, exact = quotients(net, x, directions, 1e-3, torch.float16)
    body = FusedBody(net, torch.float16)  # type: ignore[arg-type]
    sides = [body((x[:, None] + side * 1e-3 * directions).flatten(0, 1)) for side in (1, -1)]
    plain = (sides[0] - sides[1]) / 2e-3
    errors = [float((one.double() - exact).norm() / exact.norm()) for one in (found, plain)]
    assert errors[0] < 0.05 < errors[1], errors


@pytest.mark.parametrize("name", ["resnet", "bottleneck", "preact"])
@pytest.mark.parametrize("tracks", [True, False])
@pytest.mark.usefixtures("spelled_out")
def test_the_hand_written_pass_of_training(name: str, tracks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from scaleproof.speed import training_body

    monkeypatch.setattr(training_body, "FORMAT", torch.float32)  # bf16 would hide a wrong term
    torch.manual_seed(0)
    plain = trained_looking(NETWORKS[name]()).train()
    for module in plain.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.track_running_stats = tracks
    fast = copy.deepcopy(plain)
    x = torch.rand(16, 3, 16, 16)
    images = x.clone().requires_grad_(), x.clone().requires_grad_()
    features = training_body.train_features(fast, images[0]), plain.features(images[1])  # type: ignore[arg-type, operator]
    torch.testing.assert_close(*features, rtol=1e-4, atol=1e-4)
    weights = torch.randn_like(features[0])
    for found in features:
        (found * weights).sum().backward()
    pairs = [images, *zip(fast.parameters(), plain.parameters(), strict=True)]
    for one, other in pairs:
        if other.grad is None:  # the head's
            assert one.grad is None
            continue
        assert one.grad is not None
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-3)
    for one, other in zip(fast.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


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


def test_tf32_is_set_for_gpu_products_alone_and_restored() -> None:
    units = arithmetic_units()
    saved = [unit.fp32_precision for unit in units]
    with tf32_float32():
        assert [unit.fp32_precision for unit in units] == ["tf32", "tf32", "ieee", "ieee"]
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
