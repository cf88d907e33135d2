"""Threat: how far an adversary may move an image, and the geometry of that ball.

The only file that tells one norm from another.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from scaleproof.rng import Rng

Norm = Literal["linf", "l2"]
UNSET = float("nan")
LINF_EPS = 8 / 255

ROUNDING = 2.0**-22  # what float32 arithmetic on pixels in [0, 1] may add to a perturbation's size
SHRINK = 1 - 2.0**-21  # l2 projections aim this far inside the sphere, so that rounding never leaves it


@dataclass(frozen=True, kw_only=True)
class Threat:
    """All images within `eps` of the clean one in `norm`, with pixels in [0, 1]."""

    norm: Norm = "linf"
    eps: float = UNSET  # 8/255 under linf; l2 has no default

    def __post_init__(self) -> None:
        norms, asked = get_args(Norm), str(self.norm).lower()  # others write Linf
        if asked not in norms:
            near = difflib.get_close_matches(asked, norms, n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"norm must be one of {', '.join(norms)}, got {self.norm!r}{hint}")
        object.__setattr__(self, "norm", asked)
        if self.eps is UNSET and self.norm == "l2":
            raise ValueError("eps must be given for l2, for example --eps 0.5 or Threat(norm='l2', eps=0.5)")
        if self.eps is UNSET:
            object.__setattr__(self, "eps", LINF_EPS)
        if not (math.isfinite(self.eps) and self.eps >= 0):
            raise ValueError(f"eps must be finite and >= 0, got {self.eps}")
        if self.norm == "linf" and self.eps > 1:
            raise ValueError(
                f"eps must be at most 1 under linf, pixels are in [0, 1], got {self.eps:g}: {self.eps:g}/255?"
            )

    def size(self, delta: Tensor) -> Tensor:
        """The norm of each perturbation, in float64 (B,)."""
        flat = delta.flatten(1).double()
        return flat.abs().amax(1) if self.norm == "linf" else flat.norm(dim=1)

    def project(self, perturbed: Tensor, clean: Tensor) -> Tensor:
        """The nearest image inside the ball (the ball first, then the pixel range)."""
        if self.norm == "linf":
            inside = torch.clamp(perturbed, clean - self.eps, clean + self.eps)
        else:
            delta = perturbed - clean
            factor = (self.eps * SHRINK / self.size(delta).clamp_min(1e-30)).clamp(max=1)
            inside = clean + delta * rows_like(factor, delta)
        return inside.clamp(0, 1)

    def steepest(self, gradient: Tensor) -> Tensor:
        """The direction of length one along which a linear function with this gradient grows fastest.

        Zero where the gradient is zero, or not a number.
        """
        if self.norm == "linf":
            return gradient.sign()
        gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
        peak = gradient.flatten(1).abs().amax(1)
        scaled = gradient / rows_like(
            torch.where(peak > 0, peak, 1), gradient
        )  # squares of 1e-25 would vanish
        return scaled / rows_like(scaled.flatten(1).norm(dim=1).clamp_min(1), gradient)

    def sample(self, clean: Tensor, index: Tensor, rng: Rng) -> Tensor:
        """An image drawn uniformly from the ball around each clean one, clipped to the pixel range."""
        shape = tuple(clean.shape[1:])
        if self.norm == "linf":
            delta = (2 * rng.uniform(index, shape) - 1) * self.eps
        else:
            normal = rng.normal(index, shape)
            radius = rng.uniform(index, (1,), draw=1)[:, 0] ** (1 / math.prod(shape))
            delta = self.steepest(normal) * rows_like(radius * self.eps, normal)
        return self.project(clean + delta.to(clean.dtype), clean)

    def reach(self, entries: int) -> float:
        """The eps from which on the ball around any image of so many entries holds every image."""
        return 1.0 if self.norm == "linf" else math.sqrt(entries)

    @property
    def is_box(self) -> bool:
        """Whether every pixel may move by eps whatever the others do."""
        return self.norm == "linf"

    @property
    def draws(self) -> tuple[Literal["uniform", "normal"], ...]:
        """The random numbers from which `spread` makes a start."""
        return ("uniform",) if self.norm == "linf" else ("normal",)

    def spread(self, clean: Tensor, noise: Tensor) -> Tensor:
        """A random image of the ball from the numbers of `draws`: uniform under linf, on the sphere under l2.

        (A uniform draw from an l2 ball of thousands of dimensions lies next to the sphere.)
        """
        delta = (2 * noise - 1) if self.norm == "linf" else self.steepest(noise)
        return self.project(clean + self.eps * delta, clean)

    def ascend(self, current: Tensor, gradient: Tensor, clean: Tensor, stride: float) -> Tensor:
        """One step of length `stride` along the steepest direction, projected into the ball."""
        return self.project(torch.add(current, self.steepest(gradient), alpha=stride), clean)

    def within(self, delta: Tensor) -> Tensor:
        """The nearest perturbation of at most eps, whatever the pixels."""
        if self.norm == "linf":
            return delta.clamp(-self.eps, self.eps)
        factor = (self.eps / self.size(delta).clamp_min(1e-30)).clamp(max=1)
        return delta * rows_like(factor, delta)

    def far_sample(self, clean: Tensor, index: Tensor, rng: Rng) -> Tensor:
        """A random image whose perturbation has the size eps before it is clipped to the pixel range (Auto-PGD)."""
        shape = tuple(clean.shape[1:])
        if self.norm == "linf":
            noise = 2 * rng.uniform(index, shape) - 1
            direction = noise / rows_like(noise.flatten(1).abs().amax(1), noise)
        else:
            direction = self.steepest(rng.normal(index, shape))
        return self.project(clean + self.eps * direction.to(clean.dtype), clean)

    def dual_size(self, gradient: Tensor) -> Tensor:
        """How much a linear function with this gradient grows along a step of length one (B,)."""
        flat = gradient.flatten(1)
        return flat.abs().sum(1) if self.norm == "linf" else flat.norm(dim=1)

    def nearest_on_plane(self, point: Tensor, normal: Tensor, offset: Tensor) -> Tensor:
        """The smallest movement that brings <normal, x> to `offset` with all pixels in [0, 1] (rows of flat images).

        Every pixel moves towards the plane until it meets its bound: under linf all by the same amount, under l2 in
        proportion to the normal. The amount solves a monotone piecewise linear equation, by sorting. Where the plane
        does not cross the box, every pixel goes to its bound.
        """
        gap = (normal * point).sum(1) - offset  # (B,)
        towards = -torch.sign(gap)[:, None] * torch.sign(normal)
        room = torch.where(towards > 0, 1 - point, point) * (towards != 0)
        pace = torch.ones_like(normal) if self.norm == "linf" else normal.abs()
        amount = solve_amount(normal.abs(), pace, room, gap.abs())
        moved = torch.where(amount.isinf()[:, None], room, amount.nan_to_num(posinf=0.0)[:, None] * pace)
        return towards * torch.minimum(moved, room)

    def violation(self, perturbed: Tensor, clean: Tensor) -> str | None:
        """What is wrong with these images under this threat, or None."""
        if not bool(torch.isfinite(perturbed).all()):
            return "a pixel is NaN or infinite"
        low, high = float(perturbed.min()), float(perturbed.max())
        if low < 0 or high > 1:
            return f"pixels must be in [0, 1], got {low:.9g} to {high:.9g}"
        size = float(self.size(perturbed.double() - clean.double()).max())
        if size > self.eps + ROUNDING:
            return f"the {self.norm} size of a perturbation must be at most {self.eps:.9g}, got {size:.9g}"
        return None


def solve_amount(weight: Tensor, pace: Tensor, room: Tensor, total: Tensor) -> Tensor:
    """The amount a of each row with sum(weight min(a pace, room)) = total; infinite where that cannot be reached."""
    limits = torch.where(pace > 0, room / pace.clamp_min(torch.finfo(pace.dtype).tiny), torch.inf)
    limits, order = limits.sort(dim=1)
    slope = (weight * pace).gather(1, order)
    stopped = (weight * room).gather(1, order)
    slopes_left = slope.flip(1).cumsum(1).flip(1)  # of those that still move before this one stops
    stopped_before = stopped.cumsum(1) - stopped
    finite = torch.where(limits.isfinite(), limits, torch.zeros_like(limits))
    reached = stopped_before + finite * slopes_left  # the sum at the moment when this one stops
    first = (reached < total[:, None]).sum(1, keepdim=True)  # reached grows along a row
    inside = first < limits.shape[1]
    chosen = first.clamp(max=limits.shape[1] - 1)
    slope_there = slopes_left.gather(1, chosen).clamp_min(torch.finfo(weight.dtype).tiny)
    amount = (total[:, None] - stopped_before.gather(1, chosen)) / slope_there
    return torch.where(inside, amount, torch.full_like(amount, torch.inf)).squeeze(1)


def rows_like(values: Tensor, like: Tensor) -> Tensor:
    """One value a sample (B,), shaped to multiply a batch (B, ...)."""
    return values.reshape(-1, *[1] * (like.dim() - 1)).to(like.dtype)


DEFAULT_THREAT = Threat()
