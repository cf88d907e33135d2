"""What an examination costs, in passes through the network."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from helpers import SmallConvNet, decisions, images
from scaleproof import Classifier, Threat
from scaleproof.checks import MOST_GRADIENTS, examine
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


def test_no_examination_takes_more_gradients_than_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    backwards, one = [], Oracle.one_gradient
    net, x = Sturdy().eval(), images(8, (3, 8, 8))
    given, other = (x, decisions(net, x)), Classifier(SmallConvNet())

    def counted(oracle: Oracle, objective: Objective, x: Tensor, y: Tensor) -> Gradient:
        backwards.append(len(x))
        return one(oracle, objective, x, y)

    monkeypatch.setattr(Oracle, "one_gradient", counted)
    examine(net, given, Threat(eps=0.05), surrogate=other)
    thirds = (net.forwards + 2 * sum(backwards)) / 3  # a way back costs twice a way forth
    assert 0.8 * MOST_GRADIENTS < thirds / len(x) <= MOST_GRADIENTS
