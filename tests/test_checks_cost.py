"""What an examination costs, in passes through the network."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from helpers import SmallConvNet, decisions, images
from scaleproof import Classifier, Threat
from scaleproof.checks import MOST_GRADIENTS, examine
from scaleproof.checks.gradients import seen
from scaleproof.checks.subject import Subject
from scaleproof.losses import Objective
from scaleproof.oracle import Gradient, Oracle


class Sturdy(nn.Module):
    """It hardly looks at the image, so that every attack takes all of its steps; passes are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.forwards = SmallConvNet(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += len(x)
        logits: Tensor = self.net(1e-4 * x + 0.5)
        return logits


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each gradient from now on is of."""
    found, one = [], Oracle.one_gradient

    def counting(oracle: Oracle, objective: Objective, x: Tensor, y: Tensor) -> Gradient:
        found.append(len(x))
        return one(oracle, objective, x, y)

    monkeypatch.setattr(Oracle, "one_gradient", counting)
    return found


def test_no_examination_takes_more_gradients_than_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    backwards = counted(monkeypatch)
    net, x = Sturdy().eval(), images(8, (3, 8, 8))
    given, other = (x, decisions(net, x)), Classifier(SmallConvNet())
    examine(net, given, Threat(eps=0.05), surrogate=other)
    thirds = (net.forwards + 2 * sum(backwards)) / 3  # a way back costs twice a way forth
    assert 0.8 * MOST_GRADIENTS < thirds / len(x) <= MOST_GRADIENTS


def test_broken_images_take_no_further_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = SmallConvNet().eval(), images(16, (3, 8, 8))
    gradients = counted(monkeypatch)
    examine(net, (x, decisions(net, x)), Threat(eps=0.3))
    assert sum(gradients) / len(x) < 40, "two short attacks and four radii would be 80"


def test_gradients_of_all_objectives_share_their_way_forth() -> None:
    net, x = Sturdy().eval(), images(8, (3, 8, 8))
    subject = Subject(Classifier(net), x, decisions(net, x), Threat(eps=0.05))
    assert len(subject.right) == 8
    net.forwards = 0
    assert len(seen(subject)) == 6
    assert net.forwards <= 3 * 8, "for the logits, for the features, and to find the head"


def test_short_attacks_take_gradients_as_an_evaluation_does() -> None:
    net, x = SmallConvNet().eval(), images(8, (3, 8, 8))
    subject = Subject(Classifier(net), x, decisions(net, x), Threat(eps=0.05))
    assert "traced and folded" in subject.oracle.notes
    assert subject.exact.notes == []
