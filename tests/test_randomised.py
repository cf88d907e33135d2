"""Randomised models: expectation over their draws, in gradients and in verdicts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import LinearNet, decisions, images
from scaleproof import Threat, evaluate, losses, suite
from scaleproof.attacks import preset
from scaleproof.evaluation import Evaluation
from scaleproof.models import Classifier
from scaleproof.oracle import Oracle, mean_logits
from scaleproof.speed import PLAIN
from scaleproof.store import MemoryStore

THREAT = Threat(eps=0.01)


class Coin(nn.Module):
    """A linear model that turns its logits round with a probability: right with 1 - turned, whatever the image."""

    def __init__(self, turned: float = 0.3) -> None:
        super().__init__()
        self.net, self.turned = LinearNet(), turned

    def forward(self, x: Tensor) -> Tensor:
        signs = 1 - 2 * (torch.rand(len(x), 1) < self.turned).float()
        logits: Tensor = self.net(x) * signs
        return logits


def measured(draws: int, model: nn.Module | None = None, seed: int = 0, **settings: object) -> Evaluation:
    model = model or Coin().eval()
    x = images(30)
    net = model.net if isinstance(model, Coin) else model
    data = (x, decisions(net, x))
    return evaluate(model, data, suite("apgd-ce", THREAT), mode="cascade", draws=draws, seed=seed, **settings)  # type: ignore[arg-type]


def test_the_clean_accuracy_is_the_expected_one() -> None:
    found = measured(200)
    assert found.clean_chance is not None
    assert found.clean_chance.mean() == pytest.approx(0.7, abs=0.02)
    assert found.clean.accuracy == 1.0  # by the mean probabilities every image is right


def test_chance_alone_takes_nothing_off_the_expected_accuracy() -> None:
    """In a ball of size zero every example is the image itself: right in 0.7 of the draws, however many were tried."""
    model, x = Coin().eval(), images(100)
    attacks = suite("rand", Threat(eps=0))
    found = evaluate(model, (x, decisions(model.net, x)), attacks, mode="cascade", draws=20)
    assert found.expected() == pytest.approx(0.7, abs=0.04)
    assert found.expected("apgd-ce") == pytest.approx(0.7, abs=0.04)


def test_the_verdict_is_over_draws_not_of_one() -> None:
    found = measured(60)
    chance = found.attacks[0].verdicts["chance"][0]
    inside = chance[~np.isnan(chance)]
    assert ((inside > 0.05) & (inside < 0.95)).any()
    document = found.as_json()
    assert document["expected"]["draws"] == 60  # type: ignore[index]
    assert document["expected"]["worst_case"] == pytest.approx(found.expected())  # type: ignore[index]
    assert [finding.severity for finding in found.findings if finding.name == "randomised"] == ["note"]


def test_the_gradient_is_the_expectation() -> None:
    coin, x = Coin(turned=0.2), images(4)
    y = decisions(coin.net, x)
    torch.manual_seed(0)
    oracle = Oracle(Classifier(coin.eval()), speed=PLAIN, draws=3000)
    found = oracle.value_and_grad(losses.cw_margin, x, y).gradient.flatten(1)
    weight = coin.net.head.weight.detach()
    expected = 0.6 * (weight[1 - y] - weight[y])  # right in .8 of the draws, turned in .2
    torch.testing.assert_close(found, expected, rtol=0.15, atol=0.1)


def test_a_run_repeats_with_its_seed() -> None:
    torch.manual_seed(1)
    first = measured(10)
    torch.rand(5)
    second, other = measured(10), measured(10, seed=1)
    name = "chance"
    np.testing.assert_array_equal(first.attacks[0].verdicts[name], second.attacks[0].verdicts[name])
    assert not np.array_equal(
        first.attacks[0].verdicts[name], other.attacks[0].verdicts[name], equal_nan=True
    )


def test_the_global_random_numbers_are_left_alone() -> None:
    coin = Coin().eval()
    measured(2, coin)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    with torch.random.fork_rng():
        net = LinearNet().eval()
    measured(2, net)
    assert torch.equal(torch.rand(1), expected)


def test_draws_change_nothing_for_a_model_without_chance() -> None:
    net = LinearNet().eval()
    one, three = measured(1, net), measured(3, net)
    assert (one.survivors() == three.survivors()).all()
    assert three.expected() == pytest.approx(three.robust().accuracy)
    assert "expected" not in one.as_json()


def test_mean_probabilities() -> None:
    logits = [torch.tensor([[0.0, 0.0]]), torch.tensor([[torch.log(torch.tensor(3.0)), 0.0]])]
    torch.testing.assert_close(mean_logits(logits).exp(), torch.tensor([[0.625, 0.375]]))


def test_rand_is_a_suite() -> None:
    assert preset("rand").draws == 20
    assert [attack.name for attack in suite("rand")] == ["apgd-ce", "apgd-dlr"]
    with pytest.raises(ValueError, match="draws must be >= 1, got 0"):
        Oracle(Classifier(LinearNet()), draws=0)


def test_a_randomised_run_goes_on() -> None:
    store = MemoryStore()
    first = measured(5, store=store)
    torch.rand(7)
    again = measured(5, store=store)
    np.testing.assert_array_equal(first.attacks[0].verdicts["chance"], again.attacks[0].verdicts["chance"])


def test_a_suite_brings_its_mode_and_draws() -> None:
    model, x = Coin().eval(), images(6)
    data = x, decisions(model.net, x)
    found = evaluate(model, data, "rand")
    assert (found.mode, found.draws) == ("cascade", 20)
    assert evaluate(model.net, data, suite("fast")).mode == "cascade"
    assert evaluate(model.net, data, list(suite("standard", THREAT))[:1]).mode == "independent"
    assert evaluate(model, data, suite("rand"), draws=3, mode="independent").draws == 3
