"""What the annex is made of: more parts that hide a gradient, or break what an evaluation takes for granted."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TotalVariation(nn.Module):
    """A smoother image close to the given one (Guo et al. 2018), searched for outside the graph."""

    def __init__(self, weight: float, steps: int = 20, rate: float = 0.1) -> None:
        super().__init__()
        self.weight, self.steps, self.rate = weight, steps, rate

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        smooth = x.clone()
        for _ in range(self.steps):
            smooth -= self.rate * (smooth - x + self.weight * variation_gradient(smooth))
        return smooth.clamp(0, 1)


def variation_gradient(x: Tensor) -> Tensor:
    """The gradient of the total variation, rounded a little where neighbours are equal."""
    found = torch.zeros_like(x)
    for dim in (2, 3):
        difference = x.diff(dim=dim)
        slope = difference / (difference**2 + 1e-4).sqrt()
        low, high = (0, 0, 0, 1) if dim == 2 else (0, 1), (0, 0, 1, 0) if dim == 2 else (1, 0)
        found += F.pad(slope, high) - F.pad(slope, low)
    return found


class Deflect(nn.Module):
    """Some pixels take the colour of a neighbour, drawn anew each time (Prakash et al. 2018)."""

    def __init__(self, share: float, reach: int = 3) -> None:
        super().__init__()
        self.share, self.reach = share, reach

    def forward(self, x: Tensor) -> Tensor:
        rows, channels, height, width = x.shape
        moved = torch.rand(rows, height, width, device=x.device) < self.share
        steps = torch.randint(-self.reach, self.reach + 1, (2, rows, height, width), device=x.device) * moved
        down = (torch.arange(height, device=x.device)[:, None] + steps[0]).clamp(0, height - 1)
        right = (torch.arange(width, device=x.device) + steps[1]).clamp(0, width - 1)
        source = (down * width + right).flatten(1)[:, None].expand(-1, channels, -1)
        return x.flatten(2).gather(2, source).reshape(x.shape)


class Copies(nn.Module):
    """Every image several times, each with its own noise."""

    def __init__(self, count: int, noise: float) -> None:
        super().__init__()
        self.count, self.noise = count, noise

    def forward(self, x: Tensor) -> Tensor:
        every = x.repeat_interleave(self.count, 0)
        return every + self.noise * torch.randn_like(every)


class Votes(nn.Module):
    """How many copies of an image were given to each class: randomised smoothing (Cohen et al. 2019) with few draws."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, logits: Tensor) -> Tensor:
        votes = F.one_hot(logits.argmax(1), logits.shape[1]).to(logits.dtype)
        return votes.reshape(-1, self.count, votes.shape[1]).sum(1)


class Prune(nn.Module):
    """Small activations are dropped at random and the others enlarged to make up for it (Dhillon et al. 2018)."""

    def __init__(self, draws: float) -> None:
        super().__init__()
        self.draws = draws  # per activation

    def forward(self, x: Tensor) -> Tensor:
        size = x.detach().abs().flatten(1)
        chance = size / size.sum(1, keepdim=True).clamp_min(1e-12)
        kept = (1 - (1 - chance) ** (self.draws * size.shape[1])).reshape(x.shape)
        return torch.where(torch.rand_like(x) < kept, x / kept.clamp_min(1e-12), torch.zeros_like(x))


class Tanh(nn.Module):
    """Logits squeezed between -1 and 1, around the middle of the two largest: most arrive at an end."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.gain = gain

    def forward(self, logits: Tensor) -> Tensor:
        middle = logits.topk(2, dim=1).values.mean(1, keepdim=True)
        return (self.gain * (logits - middle)).tanh()


class Power(nn.Module):
    """Each logit to a power, its sign kept: no decision changes, the sure become far surer than the unsure."""

    def __init__(self, exponent: float) -> None:
        super().__init__()
        self.exponent = exponent

    def forward(self, logits: Tensor) -> Tensor:
        return logits.sign() * logits.abs() ** self.exponent


class Half(nn.Module):
    """Large logits on their way through float16: what is small on the way back becomes zero."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, logits: Tensor) -> Tensor:
        return (logits * self.factor).half().to(logits.dtype)


class Code(nn.Module):
    """Logits become bits, and the class whose code word agrees with most of them wins (Verma and Swami 2019)."""

    def __init__(self, bits: int, classes: int = 10) -> None:
        super().__init__()
        words = torch.rand(classes, bits, generator=torch.Generator().manual_seed(0)).sub(0.5).sign()
        self.register_buffer("words", words)

    def forward(self, logits: Tensor) -> Tensor:
        words = self.get_buffer("words").to(logits)
        bits = ((logits - logits.mean(1, keepdim=True)) @ words).sign()
        return 10 * (bits @ words.T) / words.shape[1]


class Hook(nn.Module):
    """The image as it is, with a hook that gives the gradient another shape on its way back."""

    def __init__(self, changed: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.changed = changed

    def forward(self, x: Tensor) -> Tensor:
        same = x.clone()
        if same.requires_grad:
            same.register_hook(self.changed)  # type: ignore[no-untyped-call]
        return same


def drowned(gradient: Tensor, noise: float) -> Tensor:
    """A gradient under noise so many times its own size."""
    size = gradient.flatten(1).square().mean(1).sqrt().reshape(-1, *(1,) * (gradient.dim() - 1))
    return gradient + noise * size * torch.randn_like(gradient)


class FewPixels(nn.Module):
    """One pixel in so many stays in the graph, the others leave it."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = every

    def forward(self, x: Tensor) -> Tensor:
        place = torch.arange(x[0, 0].numel(), device=x.device).reshape(x.shape[2:])
        return torch.where(place % self.every == 0, x, x.detach())


class Steps(nn.Module):
    """Activations in steps of one size (Lin et al. 2019)."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return (x / self.size).round() * self.size


class Denormalise(nn.Module):
    """Turns images that were normalised into images in [0, 1]: before it, a network expects normalised ones."""

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, x: Tensor) -> Tensor:
        return x * self.std + self.mean


class Roll(nn.Module):
    """Classes counted from another place, as where one data set begins at 1 and another at 0."""

    def __init__(self, places: int) -> None:
        super().__init__()
        self.places = places

    def forward(self, logits: Tensor) -> Tensor:
        return logits.roll(self.places, 1)


class Chaos(nn.Module):
    """A chaotic map, iterated, a little of it on every pixel: gradients grow with each turn."""

    def __init__(self, turns: int, height: float = 0.004) -> None:
        super().__init__()
        self.turns, self.height = turns, height

    def forward(self, x: Tensor) -> Tensor:
        orbit = x
        for _ in range(self.turns):
            orbit = 3.9 * orbit * (1 - orbit)
        return x + self.height * (orbit - 0.5)


class Detector(nn.Module):
    """An image whose smoothest places are noisy is taken for an attack and smoothed outside the graph."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(self.suspected(x), smoothed(x.detach()), x)

    def inside(self, x: Tensor) -> Tensor:
        """The same, inside the graph."""
        return torch.where(self.suspected(x), smoothed(x), x)

    @torch.no_grad()
    def suspected(self, x: Tensor) -> Tensor:
        noise = (x - smoothed(x)).abs().flatten(1).quantile(0.1, dim=1)
        return (noise > self.limit)[:, None, None, None]


def smoothed(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
