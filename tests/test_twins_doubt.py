"""Networks that look like their twins on the images that a twin is tried on, and are others elsewhere."""

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from odd_networks import Around
from scaleproof import losses
from scaleproof.models import Classifier
from scaleproof.oracle import Oracle
from scaleproof.speed import PLAIN, Speed
from speed_fixtures import trained_looking
from their_networks import TheirResNet

TRIED = 0.7 * torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(1))  # nothing near white


class Clamp(torch.autograd.Function):
    """A clamp whose gradient goes through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clamp(-0.5, 0.8)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class Small(TheirResNet):
    """Named as a network of ours; what comes before it is what each test is about."""

    def __init__(self) -> None:
        super().__init__((1, 1, 1, 1), width=8)
        self.calls = 0
        self.register_buffer("mask", torch.ones(3, 1, 1), persistent=False)
        self.prior = torch.zeros(10)

    def before(self, x: Tensor) -> Tensor:
        return x

    def after(self, logits: Tensor) -> Tensor:
        return logits

    def forward(self, x: Tensor) -> Tensor:
        return self.after(super().forward(self.before(x)))


class OwnClamp(Small):
    def before(self, x: Tensor) -> Tensor:
        found: Tensor = Clamp.apply(x)  # type: ignore[no-untyped-call]
        return found


class DetachedGlare(Small):
    def before(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            glare = F.relu(x - 0.8)
        return x + 5 * glare


class Capped(Small):
    def before(self, x: Tensor) -> Tensor:
        return x - F.relu(x - 0.9)


class OfBatches(Small):
    def before(self, x: Tensor) -> Tensor:
        return x - (x.shape[0] - 8)


class Floored(Small):
    def before(self, x: Tensor) -> Tensor:
        return x + torch.div(x, 0.9, rounding_mode="floor")


class OfGradMode(Small):
    def before(self, x: Tensor) -> Tensor:
        return x if torch.is_grad_enabled() else 1 - x


class OfKinds(Small):
    def before(self, x: Tensor) -> Tensor:
        return 1 - x if isinstance(x, Tensor) and x.shape[0] > 8 else x


class ClampOfKinds(OwnClamp):
    """Whoever follows the forward pass meets a clamp of torch."""

    def before(self, x: Tensor) -> Tensor:
        return super().before(x) if isinstance(x, Tensor) else x.clamp(-0.5, 0.8)


class NormLast(Small):
    """The parts of a network of ours, in another order."""

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn1(torch.relu(self.conv1(x)))
        for stage in range(1, 5):
            out = self.get_submodule(f"layer{stage}")(out)
        logits: Tensor = self.get_submodule("linear")(F.avg_pool2d(out, 4).flatten(1))
        return logits


class WithPrior(Small):
    """One class masked out, so that the largest logit hides all others; a prior that no state dict holds."""

    def __init__(self) -> None:
        super().__init__()
        self.prior = torch.arange(10.0)

    def after(self, logits: Tensor) -> Tensor:
        return logits - self.prior


class Seldom(Small):
    def before(self, x: Tensor) -> Tensor:
        return 1 - x if random.random() < 0.02 else x


class Counting(Small):
    def before(self, x: Tensor) -> Tensor:
        self.calls += 1
        return 1 - x if self.calls % 10 == 0 else x


class Masking(Small):
    def before(self, x: Tensor) -> Tensor:
        assert isinstance(self.mask, Tensor)
        self.mask.bernoulli_(0.9)
        return x * self.mask


class ReadsBias(Around):
    """The bias of a convolution is read a second time."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 2, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        features = F.relu(self.bn(self.conv(x))).mean((2, 3))
        glare = F.relu(x.mean((2, 3)).mean(1, keepdim=True) - 0.7)
        out: Tensor = self.fc(features + 3 * glare * self.conv.bias)
        return out


class Overwrites(Around):
    """A view is written over, and what it is a view of is used afterwards."""

    def forward(self, x: Tensor) -> Tensor:
        image = self.bn(self.conv(x))
        image.view(x.size(0), -1).relu_()
        out: Tensor = self.fc(image.mean((2, 3)))
        return out


ODD = (
    OwnClamp,
    DetachedGlare,
    Capped,
    OfBatches,
    Floored,
    OfGradMode,
    OfKinds,
    ClampOfKinds,
    NormLast,
    WithPrior,
    Seldom,
    Counting,
    Masking,
)
HIDDEN = (*ODD, ReadsBias, Overwrites)


def others() -> dict[str, Tensor]:
    noise = torch.rand(17, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    return {
        "white": torch.ones(4, 3, 32, 32) - 0.01 * noise[:4],
        "two tones": torch.where(noise < 0.5, 0.05, 0.95),
        "one": noise[:1],
    }


def assert_never_another(net: nn.Module) -> None:
    """Logits and gradients of whatever was chosen are the network's own, also where nothing was tried."""
    classifier = Classifier(net)
    oracle, plain = (
        Oracle(classifier, speed=Speed(precision="float32"), images=TRIED),
        Oracle(classifier, speed=PLAIN),
    )
    if not oracle.choice.folded:
        return
    for name, x in others().items():
        y = torch.arange(len(x)) % 4
        found, wanted = (one.value_and_grad(losses.cw_margin, x, y) for one in (oracle, plain))
        torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-3, atol=1e-3, msg=name)
        error = (found.gradient - wanted.gradient).norm() / wanted.gradient.norm().clamp_min(1e-12)
        assert float(error) < 0.02, name
        torch.testing.assert_close(oracle.logits(x), plain.logits(x), rtol=1e-3, atol=1e-3, msg=name)


@pytest.mark.parametrize("kind", HIDDEN, ids=lambda kind: kind.__name__)
def test_no_twin_is_another_network(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    random.seed(0)
    net = trained_looking(kind())
    if kind is WithPrior:
        with torch.no_grad():
            net.get_submodule("linear").bias[9] = -1e6  # type: ignore[index, operator]
    assert_never_another(net)


def test_another_eps_of_a_norm_is_another_network() -> None:
    torch.manual_seed(0)
    net = trained_looking(Small())
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-3
            assert module.running_var is not None
            module.running_var *= 10
    oracle = Oracle(Classifier(net), speed=Speed(precision="float32"), images=TRIED)
    assert "traced and folded" in oracle.notes
    assert_never_another(net)


def test_images_of_another_size_are_the_network_s_own() -> None:
    """It pools by a window of four pixels, our own over all of them."""
    torch.manual_seed(0)
    classifier, x = Classifier(trained_looking(Small())), torch.rand(4, 3, 36, 36)
    oracle = Oracle(classifier, images=TRIED)
    assert oracle.choice.folded
    assert torch.equal(oracle.logits(x), classifier(x))


def test_a_caller_without_gradients_gets_the_same_twin() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        oracle = Oracle(Classifier(trained_looking(Small())), images=TRIED)
    assert "computed as our resnet10-8" in oracle.notes


def test_hooks_on_the_way_back_are_seen() -> None:
    net = trained_looking(Small())
    net.get_submodule("layer2").register_full_backward_pre_hook(lambda module, gradient: (-gradient[0],))
    oracle = Oracle(Classifier(net), images=TRIED)
    assert "runs as it is: layer2 has hooks" in oracle.notes


def test_chance_is_left_alone_and_copies_are_real() -> None:
    class Same(Small):
        def __deepcopy__(self, memo: Any) -> "Same":
            return self

    torch.manual_seed(0)
    networks = [trained_looking(kind()) for kind in (Same, Seldom, Masking)]
    states = random.getstate(), torch.get_rng_state()
    for net in networks:
        Oracle(Classifier(net), images=TRIED)
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert all(parameter.requires_grad for parameter in networks[0].parameters())


def test_names_alone_do_not_cost_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight stages of ours would be gigabytes; theirs are of constant width."""
    made: list[int] = []
    from scaleproof.speed import twins

    real = twins.recognised

    def counted(*args: Any) -> Any:
        found = real(*args)
        if next(found[0].parameters()).device.type != "meta":
            made.append(1)
        return found

    monkeypatch.setattr(twins, "recognised", counted)
    net = nn.Module()
    net.conv1, net.bn1, net.linear = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.Linear(8, 10)
    for stage in range(1, 9):
        block = nn.Module()
        block.conv1, block.bn1 = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        block.conv2, block.bn2 = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        net.add_module(f"layer{stage}", nn.Sequential(block))
    assert twins.ours(Classifier(net.eval()), torch.fx.symbolic_trace(nn.Identity())) is None
    assert not made
