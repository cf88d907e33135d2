"""Networks that are not ours: traced, folded or computed as one of ours, and only where that is surely the same."""

import copy
import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from odd_networks import (
    Around,
    Curved,
    Detached,
    Halved,
    Looking,
    Noisy,
    Normalised,
    OwnGradient,
    OwnTensor,
    PythonChance,
    Rounded,
    TwoAnswers,
    WithoutGradient,
)
from scaleproof import PGD, attack_batch, evaluate, losses
from scaleproof.models import Classifier
from scaleproof.oracle import Gradient, Oracle
from scaleproof.speed import PLAIN, Speed
from speed_fixtures import trained_looking
from their_networks import TheirPreAct, TheirResNet, TheirWide

EXACT, COARSE = Speed(precision="float32"), Speed(precision="bf16")


def vgg() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1, groups=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding="same"), nn.SiLU(), nn.BatchNorm2d(16), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 10)),
    )


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 16), nn.ReLU(), nn.Linear(16, 10))


OURS = {
    "resnet": (lambda: TheirResNet(width=8), "resnet18-8"),
    "bottleneck": (lambda: TheirResNet((1, 2, 1, 1), width=8, wide=True), "resnet17-8"),
    "torchvision's names": (lambda: TheirResNet(width=8, head="fc", shortcut="downsample"), "resnet18-8"),
    "preact": (lambda: TheirPreAct(width=8), "preact-resnet18-8"),
    "wide": (lambda: TheirWide(10, 2), "wrn-10-2"),
    "normalised": (lambda: nn.Sequential(Normalised(), TheirResNet(width=8)), "resnet18-8"),
    "wrapped": (lambda: nn.Sequential(nn.Sequential(TheirWide(10, 1))), "wrn-10-1"),
}
FOLDED = {
    "vgg": vgg,
    "perceptron": perceptron,
    "curved": lambda: Curved(width=8),
    "halved": lambda: Halved(width=8),
    "normalised": lambda: nn.Sequential(Normalised(), vgg()),
    "around": Around,
}
AS_IT_IS = {
    Rounded: "its forward calls round",
    Detached: r"its forward calls \.detach\(\)",
    WithoutGradient: "a part of its forward takes no gradients",
    Noisy: "its forward calls randn_like",
    OwnTensor: "its forward makes a tensor of its own",
    PythonChance: "its forward pass is another one each time",
    Looking: "TraceError while its forward was traced",
    TwoAnswers: "it does not return one tensor",
    OwnGradient: "a part of its forward takes no gradients",
}


def batch(count: int = 8) -> tuple[Tensor, Tensor]:
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(1)), torch.arange(count) % 4


def gradients(net: nn.Module, speed: Speed) -> tuple[Oracle, Gradient, Gradient]:
    """Through what was chosen for this speed, and in the plain way; with features, so that the head takes part."""
    classifier, (x, y) = Classifier(net), batch()
    objective = losses.cosine_cross_entropy()
    oracle = Oracle(classifier, speed=speed, images=x)
    plain = Oracle(classifier, speed=PLAIN, images=x)
    assert not plain.choice.folded
    return oracle, oracle.value_and_grad(objective, x, y), plain.value_and_grad(objective, x, y)


def assert_same(found: Gradient, wanted: Gradient, least: float) -> None:
    cosines = F.cosine_similarity(found.gradient.flatten(1), wanted.gradient.flatten(1))
    assert float(cosines.min()) > least, cosines
    assert found.gradient.dtype == found.value.dtype == found.logits.dtype == torch.float32
    tolerance = 1e-4 if least > 0.999 else 0.05
    torch.testing.assert_close(found.logits, wanted.logits, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", OURS)
def test_networks_like_ours_are_computed_as_ours(name: str) -> None:
    torch.manual_seed(0)
    make, ours = OURS[name]
    net = trained_looking(make())
    oracle, found, wanted = gradients(net, EXACT)
    assert f"computed as our {ours}" in oracle.notes
    assert oracle.choice.folded
    assert_same(found, wanted, 0.9999)
    oracle, found, wanted = gradients(net, COARSE)
    assert oracle.format == "bf16"
    assert_same(found, wanted, 0.9)


@pytest.mark.parametrize("name", FOLDED)
def test_other_plain_networks_are_traced_and_folded(name: str) -> None:
    torch.manual_seed(0)
    net = trained_looking(FOLDED[name]())
    oracle, found, wanted = gradients(net, EXACT)
    assert "traced and folded" in oracle.notes
    assert_same(found, wanted, 0.9999)
    oracle, found, wanted = gradients(net, COARSE)
    assert oracle.format == "bf16"
    assert_same(found, wanted, 0.9)


@pytest.mark.parametrize("kind", AS_IT_IS, ids=lambda kind: kind.__name__)
def test_what_might_be_another_function_runs_as_it_is(kind: type[Around]) -> None:
    torch.manual_seed(0)
    oracle = Oracle(Classifier(trained_looking(kind())), speed=EXACT, images=batch()[0])
    assert not oracle.choice.folded
    assert re.search(AS_IT_IS[kind], oracle.notes[-1]), oracle.notes


def hooked(net: Around) -> None:
    net.bn.register_forward_hook(lambda module, args, output: 2 * output)


def patched(net: Around) -> None:
    net.bn.forward = lambda x: 2 * x  # type: ignore[method-assign]


def trains(net: Around) -> None:
    net.bn.train()


def doubled(net: Around) -> None:
    net.fc.double()


def not_copied(net: Around) -> None:
    """Weights that are computed anew before each pass, and a part that is not torch's."""
    net.bn.register_forward_pre_hook(lambda module, args: None)
    net.table.append(net.fc.weight * 2)  # type: ignore[arg-type]
    net.add_module("own", type("Own", (nn.Module,), {})().eval())


def without_statistics(net: Around) -> None:
    net.bn = nn.BatchNorm2d(8, track_running_stats=False).eval()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (hooked, "bn has hooks"),
        (patched, "the forward of bn was replaced"),
        (trains, "bn is in train mode"),
        (doubled, "its weights are not float32"),
        (not_copied, "bn has hooks"),
        (without_statistics, "bn has no running statistics"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_parts_that_do_more_than_they_say(change: object, reason: str) -> None:
    net = Around().eval()
    change(net)  # type: ignore[operator]
    oracle = Oracle(Classifier(net), speed=EXACT, images=batch()[0])
    assert not oracle.choice.folded
    assert f"runs as it is: {reason}" in oracle.notes


def test_a_network_that_bf16_would_blind_stays_in_float32() -> None:
    """Convolutions that see a small difference beside a large number."""
    torch.manual_seed(0)

    class Lifted(Around):
        def before(self, x: Tensor) -> Tensor:
            return x + 300

    net = trained_looking(Lifted())
    with torch.no_grad():
        net.conv.weight -= net.conv.weight.mean((1, 2, 3), keepdim=True)
    oracle, found, wanted = gradients(net, COARSE)
    assert oracle.format == "float32"
    assert "bf16 loses too much of its gradients: float32" in oracle.notes
    assert float(F.cosine_similarity(found.gradient.flatten(), wanted.gradient.flatten(), dim=0)) > 0.98


def test_the_network_and_the_global_chance_stay_as_they_were() -> None:
    for net in (TheirResNet(width=8), vgg(), OwnTensor()):
        trained_looking(net)
        before, state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
        oracle = Oracle(Classifier(net), images=batch()[0])
        if oracle.choice.folded:
            oracle.value_and_grad(losses.cross_entropy, *batch())
        assert torch.equal(torch.get_rng_state(), state)
        assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
        assert all(parameter.requires_grad and parameter.grad is None for parameter in net.parameters())
        assert not any(module._forward_hooks for module in net.modules())


def test_a_network_keeps_its_head_and_its_scale() -> None:
    torch.manual_seed(0)
    net = trained_looking(vgg())
    x, _ = batch()
    for classifier in (Classifier(net, head="12"), Classifier(net, logit_scale=1000.0)):
        found = Oracle(classifier, speed=EXACT, images=x).outputs(x, features=True)
        wanted = classifier.outputs(x)
        torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-4, atol=1e-2)
        torch.testing.assert_close(found.cosines, wanted.cosines, rtol=1e-4, atol=1e-5)


def test_verdicts_are_the_network_s_own_and_the_record_says_how_gradients_came() -> None:
    torch.manual_seed(0)
    net = trained_looking(TheirResNet(width=8))
    x, _ = batch(16)
    y = net(x).argmax(1)
    pgd = PGD(steps=3)
    fast, plain = (evaluate(net, (x, y), pgd, speed=speed) for speed in (EXACT, PLAIN))
    assert fast.clean.accuracy == plain.clean.accuracy == 1
    assert "computed as our resnet18-8" in fast.speed["notes"]  # type: ignore[operator]
    assert plain.speed["notes"] == []
    assert (fast.survivors() == plain.survivors()).mean() > 0.8
    found = attack_batch(pgd, net, x, y)
    assert float((found - x).abs().max()) <= 8 / 255 + 1e-6
