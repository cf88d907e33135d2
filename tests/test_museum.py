"""The museum: every broken defense is caught by the check whose business it is, and opened by its key."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from networks import WithoutNorm
from scaleproof import Classifier, Threat, load, load_model
from scaleproof.checks import examine, failed
from scaleproof.models.preact import PreActResNet
from scaleproof.models.resnet import Bottleneck, ResNet
from scaleproof.models.specs import OWN
from scaleproof.museum import ANNEX, HELD_BACK, ROOMS, SETTING, Room, room, visit

COUNT = 40
CASES = [
    pytest.param(
        found, strength, id=f"{found.name}-{strength:g}", marks=() if number == 0 else pytest.mark.long
    )
    for found in ROOMS
    for number, strength in enumerate(found.strengths)
]


def test_fourteen_rooms_in_two_halves() -> None:
    assert len(ROOMS) >= 14
    assert len({found.name for found in ROOMS}) == len(ROOMS)
    assert abs(len(SETTING) - len(HELD_BACK)) <= 1
    assert all(len(found.strengths) >= 2 for found in ROOMS)
    with pytest.raises(ValueError, match="no room of the museum is called 'cellar'; there are quantisation"):
        room("cellar")


@pytest.mark.parametrize(("found", "strength"), CASES)
def test_caught_and_opened(found: Room, strength: float) -> None:
    net, images = load_model("undefended").classifier.net, load("sample").first(COUNT)
    seen = visit(found, strength, net, images, Threat())
    assert seen.caught, (
        failed(seen.checks),
        [(c.name, c.value) for c in seen.checks if c.name == found.caught_by],
    )
    if found.key is not None:
        assert seen.after is not None
        assert seen.after < 0.1, seen
        assert seen.clean is None or seen.clean > 0.2  # it is a classifier at all


QUICK = ("half-precision", "adaptive-norm", "shifted-classes")
OTHERWISE = {"noise-detector", "anti-adversary"}  # another check than expected catches them
IN_THE_ANNEX = [
    pytest.param(found, id=found.name, marks=() if found.name in QUICK else pytest.mark.long)
    for found in ANNEX
]


def test_an_annex_of_other_rooms() -> None:
    names = [found.name for found in (*ROOMS, *ANNEX)]
    assert len(set(names)) == len(names)
    assert len(ANNEX) == 20  # as the documents say
    assert all(len(set(found.strengths)) == 2 for found in ANNEX)
    assert room("tanh", ANNEX).caught_by == "gradient-zero"
    with pytest.raises(ValueError, match="no room of the museum is called 'tanh'"):
        room("tanh")


@pytest.mark.parametrize("found", IN_THE_ANNEX)
def test_rooms_of_the_annex_are_caught_and_opened(found: Room) -> None:
    net, images = load_model("undefended").classifier.net, load("sample").first(COUNT)
    seen = visit(found, found.strengths[-1], net, images, Threat(), surrogate=Classifier(net))
    assert failed(seen.checks)
    assert seen.caught or found.name in OTHERWISE, failed(seen.checks)
    assert (seen.after is None) == (found.key is None)
    assert seen.after is None or seen.after < 0.1, seen


class Attentive(nn.Module):
    """Patches, one layer of attention, a head: no convolution, no BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Linear(3 * 8 * 8, 32)
        self.places = nn.Parameter(0.1 * torch.randn(16, 32))
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        cut = x.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        tokens = self.patches(cut) + self.places
        mixed, _ = self.attention(tokens, tokens, tokens)
        logits: Tensor = self.head(self.norm(tokens + mixed).mean(1))
        return logits


HEALTHY = {
    "without BatchNorm": WithoutNorm,
    "pre-activation": lambda: PreActResNet((8, 16), 1, stem=8),
    "bottlenecks": lambda: ResNet(Bottleneck, (1, 1), width=8),
    "perceptron": lambda: nn.Sequential(nn.Flatten(), nn.Linear(3072, 64), nn.Tanh(), nn.Linear(64, 10)),
    "attention": Attentive,
}


def trained(name: str) -> nn.Module:
    """A network of some architecture after a short training on the sample."""
    torch.manual_seed(0)
    net: nn.Module = HEALTHY[name]()  # type: ignore[operator]
    x, y = load("sample-train").select(np.arange(512))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(48):
        rows = torch.arange(64) + 64 * (step % 8)
        loss = F.cross_entropy(net(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.eval()


@pytest.mark.parametrize("name", [*OWN, *HEALTHY])
def test_healthy_networks_are_not_accused(name: str) -> None:
    net = load_model(name).classifier if name in OWN else trained(name)
    images = load("sample-train").first(256) if name in HEALTHY else load("sample")
    checks = examine(net, images, surrogate=load_model("undefended").classifier)
    assert failed(checks) == (), [(check.name, check.value) for check in checks if not check.passed]
    assert all(check.passed for check in checks)  # every question could be asked
