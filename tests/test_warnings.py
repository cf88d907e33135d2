"""Models that only look robust: none of them gets a number without a warning in the result."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from helpers import LinearNet, SmallConvNet, decisions, images
from scaleproof import PGD, Classifier, Threat, evaluate, suite
from scaleproof.attacks import APGD
from scaleproof.evaluation import Evaluation

THREAT = Threat(eps=0.02)


class Quantised(nn.Module):
    """Rounds its input to eight levels: no gradient anywhere."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net((x * 8).round() / 8)
        return logits


class Noisy(nn.Module):
    """Adds noise to its input, each time another."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x + 0.05 * torch.randn_like(x))
        return logits


def names(evaluation: Evaluation) -> set[str]:
    return {finding.name for finding in evaluation.findings if finding.severity == "warning"}


def case() -> tuple[SmallConvNet, Tensor, Tensor]:
    net, x = SmallConvNet().eval(), images(12, (3, 8, 8))
    return net, x, decisions(net, x)


def test_a_healthy_model_is_not_accused() -> None:
    net, x, y = case()
    assert names(evaluate(net, (x, y), suite("apgd-ce,apgd-t", THREAT), mode="cascade")) == set()


def test_a_model_without_gradients() -> None:
    net, x, _ = case()
    model = Quantised(net).eval()
    y = decisions(model, x)
    assert "gradient-zero" in names(evaluate(model, (x, y), [APGD(threat=THREAT, steps=20)], mode="cascade"))


def test_logits_ten_thousand_times_as_large() -> None:
    net, x, y = case()
    large = Classifier(net).rescaled(1e4)
    evaluation = evaluate(large, (x, y), [APGD(threat=Threat(eps=0.002), steps=20)], mode="cascade")
    assert "gradient-zero" in names(evaluation)


def test_a_randomised_model() -> None:
    net, x, y = case()
    torch.manual_seed(0)
    evaluation = evaluate(Noisy(net).eval(), (x, y), suite("pgd", THREAT, steps=2))
    assert "randomised" in names(evaluation)
    assert any("each time" in finding.meaning for finding in evaluation.findings)


@pytest.mark.parametrize("mode", ["independent", "cascade"])
def test_the_warning_is_in_the_json(mode: str) -> None:
    net, x, y = case()
    document = evaluate(Noisy(net).eval(), (x, y), suite("pgd", THREAT, steps=1), mode=mode).as_json()  # type: ignore[arg-type]
    assert "randomised" in str(document["findings"])


@pytest.mark.parametrize(
    ("labels", "warned"),
    [
        ([0, 0, 0, 1, 1, 1, 2, 2], True),
        ([0] * 8, True),
        ([0, 0, 0, 1, 1, 2, 3, 3], False),  # to the last class
        ([0, 1, 0, 1, 1, 1, 2, 2], False),  # in no order
        ([0, 0, 1, 1], False),  # by chance
        ([2] * 8, False),  # one class that was chosen, or several: no beginning
        ([0, 0, 0, 0, 0, 2, 2, 2], False),
        ([1, 1, 1, 1, 1, 2, 2, 2], False),
    ],
)
def test_the_beginning_of_a_sorted_set_is_no_sample(labels: list[int], warned: bool) -> None:
    model, x = LinearNet(classes=4).eval(), images(len(labels))
    found = evaluate(model, (x, labels), [PGD(threat=THREAT, steps=1)])
    assert ("sorted-images" in names(found)) == warned
    if warned:
        meaning = next(one.meaning for one in found.findings if one.name == "sorted-images")
        assert f"these {len(labels)} images come in order and end at {max(labels)}, of 4 classes" in meaning
