"""Models with more outputs than the data has classes: a subset of them, or labels that mean other classes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from helpers import SmallConvNet, decisions, images
from scaleproof import Threat
from scaleproof.checks import examine, failed
from scaleproof.images import TensorImages

THREAT = Threat(eps=0.05)


class Wide(nn.Module):
    """Many outputs, of which the first ten, or the last ones, are those of a small network."""

    def __init__(self, outputs: int, right: bool) -> None:
        super().__init__()
        self.net, self.outputs, self.first = SmallConvNet(), outputs, 0 if right else outputs - 10

    def forward(self, x: Tensor) -> Tensor:
        logits = torch.full((len(x), self.outputs), -10.0)
        logits[:, self.first : self.first + 10] = self.net(x)
        return logits


@pytest.mark.parametrize("named", [False, True])
def test_labels_that_mean_other_classes_are_asked_about(named: bool) -> None:
    x = images(16, (3, 8, 8))
    y = decisions(SmallConvNet().eval(), x)
    data = TensorImages(x, y)
    if named:
        object.__setattr__(data, "classes", tuple("abcdefghij"))
    check = {one.name: one for one in examine(Wide(1000, right=False).eval(), data, THREAT)}["classes"]
    assert (check.passed, check.value) == (False, 1.0)
    known = 10 if named else int(y.max()) + 1
    assert f"The model has 1000 outputs, the data {known} classes." in check.meaning
    assert check.advice.startswith("Do the labels mean the model's classes?")


def test_more_outputs_than_classes_are_no_fault() -> None:
    """A subset of the classes is a data set like any other, also where a few answers lie outside of it."""
    x = images(16, (3, 8, 8))
    y = decisions(SmallConvNet().eval(), x)
    assert "classes" not in failed(examine(Wide(1000, right=True).eval(), (x, y), THREAT))
    few = (y < 2).nonzero().squeeze(1)[:2]
    assert "classes" not in failed(examine(Wide(1000, right=False).eval(), (x[few], y[few]), THREAT))


class Dim(nn.Module):
    """Class 0 for the darker three in ten images, another one for the rest."""

    def __init__(self, answer: int) -> None:
        super().__init__()
        self.answer, self.head = answer, nn.Linear(1, 10)
        with torch.no_grad():
            self.head.weight.zero_()
            self.head.bias.zero_()
            self.head.weight[answer], self.head.bias[answer] = 50.0, -15.0

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(x.mean((1, 2, 3))[:, None])
        return found


@pytest.mark.parametrize(("label", "lost"), [(0, False), (3, True)])
def test_images_of_one_class_are_lost_only_where_the_model_hardly_knows_it(label: int, lost: bool) -> None:
    """Three in ten right is far from chance for a model of ten classes, although the labels are of one alone."""
    x = torch.linspace(0, 1, 50)[:, None, None, None].expand(50, 3, 4, 4).contiguous()
    y = torch.full((50,), label)
    checked = {one.name: one for one in examine(Dim(7).eval(), (x, y), THREAT)}["classes"]
    assert checked.passed != lost
