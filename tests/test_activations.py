"""Activations under other names: what is a known one is found, what only looks like one is not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.models import Classifier
from scaleproof.oracle import Oracle
from scaleproof.speed import Speed
from scaleproof.speed.activations import is_strange, known_activation, with_known_activations
from speed_fixtures import trained_looking
from their_networks import OwnActivation, OwnSwish


class Hiding(OwnSwish):
    """The same values, and a gradient that is smaller where x is large."""

    @staticmethod
    def backward(context: Any, *given: Tensor) -> Tensor:
        return OwnSwish.backward(context, *given) * torch.where(context.saved_tensors[0] > 6, 0.5, 1.0)


class Rectified(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * (x > 0)


class Lying(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = Hiding.apply(x)  # type: ignore[no-untyped-call]
        return found


class Quick(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class Counting(nn.Module):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return F.silu(x)


class OnImages(nn.Module):
    """Another function where there are four dimensions."""

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x) if x.dim() == 2 else F.relu(x)


class OfBatches(nn.Module):
    """Another function where there are many images, or few."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) if len(x) in self.sizes else F.silu(x)


class OfGradMode(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x) if torch.is_grad_enabled() else F.relu(x)


class InItsClass(nn.Module):
    """Counts where its class is kept."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        type(self).calls += 1
        return F.silu(x)


class Scaled(nn.Module):
    """Prints as one of another scale does: the number stands in the middle of many."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scales = torch.ones(2001)
        self.scales[1000] = scale

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x * self.scales[1000])


class Best(nn.Module):
    """Only the largest tenth of an image's numbers stays: no number knows by itself what becomes of it."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (x >= x.flatten(1).quantile(0.9, dim=1).reshape(-1, *[1] * (x.dim() - 1)))


class Waiting(nn.Module):
    """Counts where nobody looks, and is another function later."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(1)
        return F.silu(x) if len(self.seen) < 1000 else F.relu(x)


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return F.silu(x)


class Capped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) * (x < 400) + 400 * (x >= 400)


class Half(nn.Module):
    """A rectifier with half a slope at zero."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.maximum(x, torch.zeros_like(x))


class Guided(torch.autograd.Function):
    """A rectifier that lets positive gradients pass alone."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(context: Any, *given: Tensor) -> Tensor:
        return given[0].clamp(min=0) * (context.saved_tensors[0] > 0)


class Deaf(Guided):
    """A rectifier that small gradients do not pass."""

    @staticmethod
    def backward(context: Any, *given: Tensor) -> Tensor:
        return given[0] * (given[0].abs() > 1e-4) * (context.saved_tensors[0] > 0)


class ByFunction(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.function.apply(x)
        return found


class Learned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.slope * x)


def test_what_is_known_under_another_name() -> None:
    assert isinstance(known_activation(OwnActivation()), nn.SiLU)
    assert isinstance(known_activation(Rectified()), nn.ReLU)


ALMOST = [Lying(), Quick(), Counting(), OnImages(), Best(), Waiting(), Capped(), Half()]
ALMOST += [OfGradMode(), OfBatches(1), OfBatches(*range(50, 2000)), ByFunction(Guided), ByFunction(Deaf)]


@pytest.mark.parametrize("module", ALMOST, ids=lambda module: str(module))
def test_what_only_looks_like_one(module: nn.Module) -> None:
    assert is_strange(module)
    assert known_activation(module) is None


def test_what_counts_in_its_class_is_called_once() -> None:
    InItsClass.calls = 0
    assert known_activation(InItsClass()) is None
    assert InItsClass.calls == 1


def test_what_prints_alike_is_not_taken_for_alike() -> None:
    net = nn.Sequential(Scaled(1), Scaled(2), Scaled(1)).eval()
    assert len({str(vars(module)) for module in net}) == 1
    assert [isinstance(module, nn.SiLU) for module in with_known_activations(net)] == [True, False, True]


def test_what_is_alike_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[nn.Module] = []
    monkeypatch.setattr("scaleproof.speed.activations.known_activation", looked.append)
    with_known_activations(
        nn.Sequential(OwnActivation(), OfBatches(1), OwnActivation(), OfBatches(2), OfBatches(1)).eval()
    )
    assert [getattr(module, "sizes", None) for module in looked] == [None, (1,), (2,)]


HOOKS = ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"]


@pytest.mark.parametrize("kind", HOOKS)
def test_parts_with_hooks_are_left_alone(kind: str) -> None:
    watched = OwnActivation()
    getattr(watched, f"register_{kind}")(lambda *_: None)
    assert not is_strange(watched)


def test_parts_with_weights_or_another_forward_or_of_torch_are_left_alone() -> None:
    replaced = OwnActivation()
    replaced.forward = F.relu  # type: ignore[method-assign]
    assert not any(map(is_strange, (Learned(), Buffered(), replaced, nn.SiLU(), nn.Mish())))
    net = nn.Sequential(nn.Linear(3, 3), nn.SiLU())
    assert with_known_activations(net) is net


def network(activation: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return trained_looking(
        nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), activation(), nn.Conv2d(8, 8, 3, stride=2)),
            *(nn.BatchNorm2d(8), activation(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)),
        )
    )


def test_a_network_with_its_own_swish_is_folded_and_stays_as_it_was() -> None:
    net, x = network(OwnActivation), torch.rand(8, 3, 16, 16)
    oracle = Oracle(Classifier(net), speed=Speed(precision="float32"), images=x)
    assert oracle.choice.folded
    assert "traced and folded" in oracle.notes
    assert sum(isinstance(module, OwnActivation) for module in net.modules()) == 2
    torch.testing.assert_close(oracle.logits(x), net(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", [Lying, Counting, partial(OfBatches, 17)])
def test_a_network_with_an_unknown_activation_runs_as_it_is(activation: Callable[[], nn.Module]) -> None:
    oracle = Oracle(
        Classifier(network(activation)), speed=Speed(precision="float32"), images=torch.rand(8, 3, 16, 16)
    )
    assert not oracle.choice.folded
    assert "runs as it is" in " ".join(oracle.notes)


def test_an_activation_that_several_places_share() -> None:
    torch.manual_seed(0)
    shared = OwnActivation()
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), shared, nn.Conv2d(4, 4, 3), shared, nn.Flatten(), nn.Linear(576, 5)
    )
    found = with_known_activations(net.eval())
    assert [isinstance(module, nn.SiLU) for module in found] == [False, True, False, True, False, False]


def test_a_network_that_does_not_let_itself_be_copied_stays_as_it_is() -> None:
    class Single(nn.Sequential):
        def __deepcopy__(self, memo: object) -> Single:
            return self

    net = Single(nn.Flatten(), nn.Linear(12, 4), OwnActivation(), nn.Linear(4, 3)).eval()
    oracle = Oracle(Classifier(net), speed=Speed(precision="float32"), images=torch.rand(4, 3, 2, 2))
    assert isinstance(net[2], OwnActivation)
    assert not oracle.choice.folded
