"""Logits that are not numbers decide for no class: searches and verdicts agree on that, whatever the true class."""

import pytest
import torch
from torch import Tensor, nn

from scaleproof import PGD, Speed, Threat, evaluate
from scaleproof.attacks import APGD, FAB, Square
from scaleproof.attacks.base import Attack
from scaleproof.losses import misclassified
from scaleproof.models import Classifier
from scaleproof.oracle import Oracle
from scaleproof.speed import PLAIN

THREAT = Threat(eps=8 / 255)
X = torch.full((6, 1, 8, 8), 0.5)


class Shell(nn.Module):
    """Class `true` everywhere, but no numbers where the mean of the pixels has grown by a little and not by more."""

    def __init__(self, true: int, *, noise: float = 0.0, end: float = 0.013) -> None:
        super().__init__()
        self.true, self.noise, self.end = true, noise, end
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        moved = (x - 0.5).flatten(1).mean(1)
        other = -self.weight * 5 - 2000 * (moved - 0.012) ** 2
        logits = torch.stack([5 * torch.ones_like(moved), other], 1)
        logits = logits.flip(1) if self.true == 1 else logits
        logits = logits + self.noise * torch.randn_like(logits)
        return logits.masked_fill(((moved > 0.011) & (moved < self.end))[:, None], torch.nan)


ATTACKS: list[Attack] = [
    APGD(threat=THREAT, steps=30),
    FAB(threat=THREAT, steps=20),
    PGD(threat=THREAT, steps=20, step_size=0.001, start="none", keep="best", name="pgd-best"),
    Square(threat=THREAT, steps=60),
]


def test_what_is_misclassified() -> None:
    logits = torch.tensor(
        [[1.0, 0.0], [0.0, 1.0], [torch.nan, 0.0], [0.0, torch.nan], [torch.nan, torch.nan]]
    )
    assert misclassified(logits, torch.zeros(5).long()).tolist() == [False, True, True, True, True]
    assert misclassified(logits, torch.ones(5).long()).tolist() == [True, False, True, True, True]


@pytest.mark.parametrize("mode", ["independent", "cascade"])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_search_finds_the_same_for_every_true_class(attack: Attack, mode: str) -> None:
    broken = [
        evaluate(
            Shell(true).eval(),
            (X, torch.full((6,), true)),
            [attack],
            mode=mode,
            speed=Speed(precision="float32"),
        )
        .attacks[0]
        .broken()
        .tolist()
        for true in (0, 1)
    ]
    assert broken[0] == broken[1]
    if attack.name in ("apgd-ce", "pgd-best"):
        assert all(broken[0])


@pytest.mark.parametrize("true", [0, 1])
def test_the_chance_of_no_numbers_is_none(true: int) -> None:
    oracle = Oracle(Classifier(Shell(true).eval()), speed=PLAIN, draws=2)
    _, chance = oracle.judge_chance(X + 0.012, torch.full((6,), true))
    assert chance.tolist() == [0.0] * 6


@pytest.mark.parametrize("true", [0, 1])
def test_the_expected_accuracy_counts_them_as_broken(true: int) -> None:
    net = Shell(true, noise=0.1, end=1.0).eval()
    attack = APGD(threat=THREAT, steps=20)
    found = evaluate(net, (X, torch.full((6,), true)), [attack], mode="cascade", draws=4)
    assert found.robust().correct == 0
    assert found.expected() == 0
    assert found.as_json()["expected"]["clean"] == 1  # type: ignore[index]
