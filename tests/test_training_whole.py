"""Whole trainings beside plain loops written from the papers alone, in float64: the same weights after an epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.data import Dataset
from scaleproof.defenses import scale_invariant
from scaleproof.models import build
from scaleproof.speed import Speed
from scaleproof.training import Cyclic, TrainConfig, Trainer, recipe
from scaleproof.training.step import Draws, Stepper

EPS, STEP = 8 / 255, 2 / 255
CONFIG = TrainConfig(epochs=1, batch_size=12, rate=0.1, schedule=Cyclic(0.5), validation=0, test_probe=0)
Gradient = Callable[[Tensor], Tensor]


def images() -> Dataset:
    random = np.random.default_rng(5)
    pixels = random.integers(0, 256, (90, 3, 32, 32), dtype=np.uint8)
    names = tuple(f"class {number}" for number in range(10))
    labels = np.arange(90) % 10
    return Dataset(
        name="noise", split="train", images=pixels, labels=labels, classes=names, source="drawn here"
    )


def ascended(x: Tensor, noise: Tensor, size: float, steps: int, gradient: Gradient) -> Tensor:
    """Steps of a size along the gradient's signs, from a uniform start, in the ball and the pixel range."""
    delta = ((x + EPS * (2 * noise - 1)).clamp(0, 1)) - x
    for _ in range(steps):
        delta = (delta + size * gradient(x + delta).sign()).clamp(-EPS, EPS)
        delta = (x + delta).clamp(0, 1) - x
    return x + delta


def slope(net: nn.Module, loss: Callable[[Tensor], Tensor]) -> Gradient:
    def gradient(x: Tensor) -> Tensor:
        point = x.detach().requires_grad_()
        (found,) = torch.autograd.grad(loss(net(point)), point)
        return found

    return gradient


def standard(net: nn.Module, x: Tensor, y: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
    return F.cross_entropy(net(x), y)


def at(net: nn.Module, x: Tensor, y: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
    """Madry et al. 2018: ten steps in eval mode, then cross entropy of what was found."""
    net.eval()
    found = ascended(x, noise[0], STEP, 10, slope(net, lambda z: F.cross_entropy(z, y, reduction="sum")))
    net.train()
    return F.cross_entropy(net(found), y)


def trades(net: nn.Module, x: Tensor, y: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
    """Zhang et al. 2019: the attack maximises the divergence from the clean probabilities; weight 6."""
    net.eval()
    clean = net(x).detach().softmax(1)
    gradient = slope(net, lambda z: F.kl_div(z.log_softmax(1), clean, reduction="sum"))
    found = ascended(x, noise[0], STEP, 10, gradient)
    net.train()
    logits = net(x)
    apart = F.kl_div(net(found).log_softmax(1), logits.softmax(1), reduction="batchmean")
    return F.cross_entropy(logits, y) + 6 * apart


def alp(net: nn.Module, x: Tensor, y: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
    """Kannan et al. 2018 in the form of the SI paper: half of each cross entropy, and 3 squared distances."""
    net.eval()
    found = ascended(x, noise[0], STEP, 10, slope(net, lambda z: F.cross_entropy(z, y, reduction="sum")))
    net.train()
    clean, adversarial = net(x), net(found)
    pairing = ((clean - adversarial) ** 2).mean()
    loss: Tensor = 0.5 * F.cross_entropy(clean, y) + 0.5 * F.cross_entropy(adversarial, y) + 3 * pairing
    return loss


def mart(net: nn.Module, x: Tensor, y: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
    """Wang et al. 2020, with the constants of their code; weight 6."""
    net.eval()
    found = ascended(x, noise[0], STEP, 10, slope(net, lambda z: F.cross_entropy(z, y, reduction="sum")))
    net.train()
    clean, adversarial = net(x).softmax(1), net(found).softmax(1)
    own = F.one_hot(y, 10).bool()
    boosted = -adversarial[own].log() - (1.0001 - adversarial.masked_fill(own, 0).amax(1) + 1e-12).log()
    apart = (clean * (clean.log() - (adversarial + 1e-12).log())).sum(1)
    loss: Tensor = (boosted + 6 * apart * (1.0000001 - clean[own])).mean()
    return loss


def cosines(net: nn.Module, features: Tensor) -> Tensor:
    """Between features and the rows of the last layer's weights."""
    weight: Tensor = net.head.weight  # type: ignore[union-attr, assignment]
    found: Tensor = (features @ weight.T) / features.norm(dim=1, keepdim=True) / weight.norm(dim=1)
    return found


def at_si(net: nn.Module, x: Tensor, y: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
    """The SI paper: the attack follows 15 cos, and .2 CE^m joins the loss, the true class's cosine less .2."""

    def gradient(x: Tensor) -> Tensor:
        point = x.detach().requires_grad_()
        angles = cosines(net, net.features(point))  # type: ignore[operator]
        (found,) = torch.autograd.grad(F.cross_entropy(15 * angles, y, reduction="sum"), point)
        return found

    net.eval()
    found = ascended(x, noise[0], STEP, 10, gradient)
    net.train()
    features = net.features(found)  # type: ignore[operator]
    behind = cosines(net, features) - 0.2 * F.one_hot(y, 10)
    return F.cross_entropy(net.head(features), y) + 0.2 * F.cross_entropy(15 * behind, y)  # type: ignore[operator]


def rfgsm(net: nn.Module, x: Tensor, y: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
    """Wong et al. 2020: one step of 1.25 eps, all in train mode."""
    gradient = slope(net, lambda z: F.cross_entropy(z, y, reduction="sum"))
    return F.cross_entropy(net(ascended(x, noise[0], 1.25 * EPS, 1, gradient)), y)


class Gat:
    """Sriramanan et al. 2020: from random signs of half the ball, every second attack of an epoch guided; weight 10."""

    attacks = 0

    def __call__(self, net: nn.Module, x: Tensor, y: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
        guidance = 10 if self.attacks % 2 else 0
        self.attacks += 1
        net.eval()
        reference = net(x).detach().softmax(1)
        start = (x + EPS / 2 * torch.where(noise[0] < 0.5, 1.0, -1.0)).clamp(0, 1)

        def loss(z: Tensor) -> Tensor:
            apart: Tensor = ((z.softmax(1) - reference) ** 2).sum()
            return F.cross_entropy(z, y, reduction="sum") + guidance * apart

        found = (x + (start + EPS * slope(net, loss)(start).sign() - x).clamp(-EPS, EPS)).clamp(0, 1)
        net.train()
        clean = net(x)
        apart: Tensor = ((clean.softmax(1) - net(found).softmax(1)) ** 2).sum(1).mean()
        return F.cross_entropy(clean, y) + 10 * apart


class Free:
    """Shafahi et al. 2019: the gradient that moves the weights moves delta, too, which stays for the next batch."""

    def __init__(self) -> None:
        self.delta = torch.zeros(12, 3, 32, 32, dtype=torch.float64)

    def __call__(self, net: nn.Module, x: Tensor, y: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
        delta = self.delta[: len(x)].clone().requires_grad_()
        moved = x + delta
        inside = (moved >= 0) & (moved <= 1)
        loss = F.cross_entropy(net(moved * inside + (moved > 1)), y)
        (gradient,) = torch.autograd.grad(loss, delta, retain_graph=True)
        self.delta[: len(x)] = (delta.detach() + EPS * gradient.sign()).clamp(-EPS, EPS)
        return loss


def cropped(pixels: Tensor, draws: Draws) -> Tensor:
    """Padded by four zeros, cut out at its place, mirrored where that was drawn; one image at a time."""
    found = []
    for row, (top, left, mirrored) in zip(draws.rows.tolist(), draws.places.tolist(), strict=True):
        image = F.pad(pixels[row], (4, 4, 4, 4))[:, top : top + 32, left : left + 32]
        found.append(image.flip(2) if mirrored else image)
    return torch.stack(found)


def check_draws(drawn: list[Draws]) -> None:
    """Every image once, in another order, in many places; noise that fills the ball."""
    rows, places = torch.cat([one.rows for one in drawn]), torch.cat([one.places for one in drawn])
    assert sorted(rows.tolist()) == list(range(90))
    assert rows.tolist() != list(range(90))
    assert all(len(set(column.tolist())) == count for column, count in zip(places.T, (9, 9, 2), strict=True))
    for noise in (noise for one in drawn for noise in one.noise):
        assert abs(float(noise.std()) - 12**-0.5) < 0.01
        assert abs(float(noise.mean()) - 0.5) < 0.01


METHODS = [standard, at, at_si, trades, alp, mart, rfgsm, Gat, Free]


@pytest.mark.parametrize("method", METHODS, ids=lambda one: one.__name__.lower())
def test_a_training_is_the_plain_loop(method: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    net, data, drawn = build("resnet-tiny"), images(), []
    other = copy.deepcopy(net).double().train()
    real = Stepper.step

    def step(self: Stepper, defense: object, draws: Draws, rate: float) -> None:
        exact = Draws(draws.rows, draws.places, tuple(noise.double() for noise in draws.noise))
        drawn.append((exact, rate))
        real(self, defense, exact, rate)  # type: ignore[arg-type]

    monkeypatch.setattr(Stepper, "step", step)
    defense = recipe(method.__name__.lower().removesuffix("_si"), name="pang").defense
    defense = scale_invariant(defense) if method is at_si else defense
    plain = method() if isinstance(method, type) else method
    training = Trainer(net, data, defense, CONFIG, speed=Speed(precision="float32", fold=False))
    torch.testing.assert_close(training.images.plain(), torch.from_numpy(data.images) / 255, rtol=0, atol=0)
    net.double()  # and all else that is made for float32
    training.stepper.optimizer.momenta = [tensor.double() for tensor in training.stepper.optimizer.momenta]
    training.stepper.memory = {name: tensor.double() for name, tensor in training.stepper.memory.items()}
    exact = replace(training.images, padded=training.images.padded.double() / 255)
    training.images = training.stepper.images = exact
    for _ in training.run():
        pass
    rates = [0, 0.025, 0.05, 0.075, 0.1, 0.075, 0.05, 0.025]
    times = 8 if method is Free else 1  # each batch
    check_draws([draws for draws, _ in drawn[::times]])
    assert [rate for _, rate in drawn] == pytest.approx([rate for rate in rates for _ in range(times)])

    optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    pixels, labels = torch.from_numpy(data.images).double() / 255, torch.from_numpy(data.labels)
    for draws, rate in drawn:
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        plain(other, cropped(pixels, draws), labels[draws.rows], draws.noise).backward()
        optimizer.step()
    found, wanted = net.state_dict(), other.state_dict()
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-6, atol=1e-8)  # rounding grows by steps
