"""Whole networks of the annex: not a part before or after, but another way to come to an answer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Choose(nn.Module):
    """One of several answers to each image."""

    def forward(self, answers: Tensor, chosen: Tensor) -> Tensor:
        return answers[torch.arange(len(answers), device=answers.device), chosen]


class Hashed(nn.Module):
    """An ensemble (the image moved, or in a mirror) in which a hash of the image says who answers."""

    def __init__(self, net: nn.Module, members: int) -> None:
        super().__init__()
        self.net, self.choose, self.members = net, Choose(), members
        self.train(net.training)

    def forward(self, x: Tensor) -> Tensor:
        mirrored = x.flip(3)
        views = (x, mirrored, x.roll(2, 3), mirrored.roll(2, 2))[: self.members]
        chosen = (1e4 * x.detach().double().flatten(1).sum(1)).floor().long() % self.members
        logits: Tensor = self.choose(torch.stack([self.net(view) for view in views], 1), chosen)
        return logits


class AdaptiveNorm(nn.Module):
    """BatchNorm in eval mode that mixes in the statistics of the test batch (Schneider et al. 2020)."""

    def __init__(self, norm: nn.BatchNorm2d, share: float) -> None:
        super().__init__()
        self.norm, self.share = norm, share
        self.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = self.norm.running_mean, self.norm.running_var
        assert mean is not None
        assert variance is not None
        shape, seen = (1, -1, 1, 1), x.var((0, 2, 3), correction=0)
        center = torch.lerp(mean, x.mean((0, 2, 3)), self.share).reshape(shape)
        spread = (torch.lerp(variance, seen, self.share) + self.norm.eps).sqrt().reshape(shape)
        return (x - center) / spread * self.norm.weight.reshape(shape) + self.norm.bias.reshape(shape)


class Remember(nn.Module):
    """A network that gives its first answer again to whatever looks like an image it has seen (Chen et al. 2020)."""

    def __init__(self, net: nn.Module, radius: float, most: int = 2048) -> None:
        super().__init__()
        self.net, self.radius, self.most = net, radius, most
        self.thumbnails, self.answers = torch.empty(0), torch.empty(0)
        self.train(net.training)

    def forward(self, x: Tensor) -> Tensor:
        small, logits = F.adaptive_avg_pool2d(x.detach(), 4).flatten(1), self.net(x)
        if len(self.thumbnails) == 0:
            self.store(small[:1], logits[:1])
        distance, nearest = torch.cdist(small, self.thumbnails, p=torch.inf).min(1)
        known = distance <= self.radius
        answer = torch.where(known[:, None], self.answers[nearest], logits)
        self.store(small[~known], logits[~known])
        return answer

    def store(self, small: Tensor, logits: Tensor) -> None:
        free = self.most - len(self.thumbnails)
        self.thumbnails = torch.cat([self.thumbnails.to(small).reshape(-1, small.shape[1]), small[:free]])
        self.answers = torch.cat(
            [self.answers.to(logits).reshape(-1, logits.shape[1]), logits.detach()[:free]]
        )


class Reassured(nn.Module):
    """A network that first moves each image towards its own decision (the anti-adversary of Alfarra et al. 2022)."""

    def __init__(self, net: nn.Module, radius: float, steps: int = 2) -> None:
        super().__init__()
        self.net, self.radius, self.steps = net, radius, steps
        self.train(net.training)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x + self.shift(x.detach()))
        return logits

    @torch.enable_grad()
    def shift(self, x: Tensor) -> Tensor:
        moved, decision = x, self.net(x).argmax(1)
        for _ in range(self.steps):
            point = moved.detach().requires_grad_()
            doubt = F.cross_entropy(self.net(point), decision, reduction="sum")
            moved = moved - self.radius / self.steps * torch.autograd.grad(doubt, point)[0].sign()
        return (moved - x).detach()
