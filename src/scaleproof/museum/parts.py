"""What broken defenses are made of: parts that hide a network's gradient without making it robust."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Defended(nn.Module):
    """A network with something before it and something after it."""

    def __init__(
        self, net: nn.Module, before: nn.Module | None = None, after: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.before, self.net, self.after = before or nn.Identity(), net, after or nn.Identity()
        self.train(net.training)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.after(self.net(self.before(x)))
        return logits


class Quantise(nn.Module):
    """Pixels rounded to so many levels (Xu et al. 2018): no gradient anywhere."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.steps = levels - 1

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.steps).round() / self.steps


class Thermometer(nn.Module):
    """Each pixel as a row of bits, one for each level it exceeds, summed up again (Buckman et al. 2018)."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.levels = levels

    def forward(self, x: Tensor) -> Tensor:
        limits = (torch.arange(self.levels, device=x.device, dtype=x.dtype) + 0.5) / self.levels
        bits = (x[..., None] > limits).to(x.dtype)
        return bits.mean(-1)


class Jpeg(nn.Module):
    """The lossy half of JPEG: 8 x 8 blocks, cosine transform, higher coefficients rounded more coarsely."""

    def __init__(self, coarseness: float) -> None:
        super().__init__()
        place = torch.arange(8)
        basis = torch.cos(math.pi * (2 * place[None] + 1) * place[:, None] / 16) * math.sqrt(2 / 8)
        basis[0] /= math.sqrt(2)
        self.register_buffer("basis", basis, persistent=False)
        steps = coarseness * (1 + place[:, None] + place[None]) / 255
        self.register_buffer("steps", steps, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, channels, height, width = x.shape
        if height % 8 or width % 8:
            raise ValueError(f"images must have sides that are multiples of 8, got {height} x {width}")
        basis, steps = self.get_buffer("basis").to(x), self.get_buffer("steps").to(x)
        blocks = x.reshape(rows, channels, height // 8, 8, width // 8, 8).transpose(3, 4)
        coarse = ((basis @ blocks @ basis.T) / steps).round() * steps
        back = (basis.T @ coarse @ basis).transpose(3, 4)
        return back.reshape(x.shape).clamp(0, 1)


class Shatter(nn.Module):
    """A fine wave on every pixel: the image hardly changes, its gradient points anywhere (Athalye et al. 2018)."""

    def __init__(self, waves: float, height: float = 0.004) -> None:
        super().__init__()
        self.waves, self.height = waves, height

    def forward(self, x: Tensor) -> Tensor:
        return x + self.height * torch.sin(2 * math.pi * self.waves * x)


class Detach(nn.Module):
    """The image leaves the graph, as where a defense goes through numpy; blurred a little so that it does something."""

    def __init__(self, blur: float) -> None:
        super().__init__()
        self.blur = blur

    def forward(self, x: Tensor) -> Tensor:
        smooth = F.avg_pool2d(x.detach(), 3, 1, 1, count_include_pad=False)
        return (1 - self.blur) * x.detach() + self.blur * smooth


class NotANumber(nn.Module):
    """A square root at zero: the output is the image, the gradient is infinity times zero."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        nothing = (x - x.detach()).abs().sqrt()
        hit = torch.arange(x[0].numel(), device=x.device).reshape(x.shape[1:]) < self.share * x[0].numel()
        return x + torch.where(hit, nothing, torch.zeros_like(nothing))


class RandomResize(nn.Module):
    """The image shrunk to a random size and put at a random place (Xie et al. 2018), anew for each batch."""

    def __init__(self, smallest: int) -> None:
        super().__init__()
        self.smallest = smallest

    def forward(self, x: Tensor) -> Tensor:
        side = x.shape[-1]
        size = int(torch.randint(self.smallest, side + 1, ()))
        left, top = (int(torch.randint(0, side - size + 1, ())) for _ in range(2))
        small = F.interpolate(x, size=(size, size), mode="bilinear", align_corners=False)
        return F.pad(small, (left, side - size - left, top, side - size - top))


class Times(nn.Module):
    """Logits multiplied by a constant: no decision changes, the softmax saturates."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Probabilities(nn.Module):
    """A softmax at the end, of logits multiplied by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.factor).softmax(1)


class Constant(nn.Module):
    """The same class for every image: nothing can change it."""

    def __init__(self, chosen: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("logits", 5.0 * F.one_hot(torch.tensor(chosen), classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.get_buffer("logits").expand(len(x), -1)


class KeepWinners(nn.Module):
    """All but the largest activations of an image become zero (Xiao et al. 2020): which ones changes abruptly."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        kept = max(1, round(self.share * flat.shape[1]))
        limit = flat.topk(kept, dim=1).values[:, -1:]
        return torch.where(flat >= limit, flat, torch.zeros_like(flat)).reshape(x.shape)


class DropFeatures(nn.Module):
    """A network with dropout before its head, left on."""

    def __init__(self, net: nn.Module, share: float) -> None:
        super().__init__()
        self.net, self.dropout = net, nn.Dropout(share)
        self.train(net.training)
        self.dropout.train()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net.head(self.dropout(self.net.features(x)))  # type: ignore[operator]
        return logits
