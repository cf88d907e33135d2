"""The passes written out for a GPU, checked on a CPU with their kernels in plain torch."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.data import load
from scaleproof.models import Classifier, load_model
from scaleproof.models.preact import PreActResNet
from scaleproof.models.resnet import ResNet
from speed_fixtures import NETWORKS, trained_looking


@pytest.mark.parametrize("name", ["resnet", "bottleneck", "preact"])
@pytest.mark.parametrize("size", [16, 14])  # 14, 7, 4: odd sizes on the way
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("height", [1.0, 1e-9, 1e6])  # of the gradient that arrives
@pytest.mark.usefixtures("spelled_out")
def test_the_hand_written_backward(name: str, size: int, dtype: torch.dtype, height: float) -> None:
    from scaleproof.speed.fused import FusedBody
    from scaleproof.speed.fused_preact import FusedPreAct

    torch.manual_seed(0)
    net = trained_looking(NETWORKS[name]())
    body = FusedPreAct(net, dtype) if isinstance(net, PreActResNet) else FusedBody(net, dtype)  # type: ignore[arg-type]
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
def test_pairs_know_normalisation_and_scale() -> None:
    """Logits on both sides are those of the classifier there, whatever stands before and behind its network."""
    from scaleproof.speed.backends import FoldedBackend, Paired

    torch.manual_seed(0)
    net = trained_looking(NETWORKS["resnet"]())
    classifier = Classifier(net, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25)).rescaled(7.0)
    assert isinstance(net, ResNet)
    paired = Paired(classifier, FoldedBackend(classifier, net.head, net.features))
    x, directions = random_signs(3, 4, 16)
    sides = paired(x, directions, 0.05)
    for side, logits in zip((1, -1), sides, strict=True):
        points = (x[:, None] + side * 0.05 * directions).flatten(0, 1)
        with torch.no_grad():
            torch.testing.assert_close(logits, classifier(points), rtol=0.02, atol=0.02)


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
