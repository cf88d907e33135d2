"""SGD with momentum and weight decay, on a GPU in one kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter


class SGD:
    """What torch.optim.SGD does, with momenta from the start and a rate on the device.

    torch.optim imports torch's compiler when an optimizer is made, which nothing else of a training needs: seconds of
    every start.
    """

    def __init__(self, parameters: Sequence[Parameter], *, momentum: float, weight_decay: float) -> None:
        self.parameters = list(parameters)
        if not self.parameters:
            raise ValueError(
                "a network to train must have parameters that require gradients, this one has none"
            )
        self.momentum, self.weight_decay = momentum, weight_decay
        self.momenta = [torch.zeros_like(p) for p in self.parameters] if momentum > 0 else []
        device = self.parameters[0].device
        precise = torch.float32 if device.type == "cuda" else torch.float64  # a GPU's kernel reads float32
        self.rate = torch.zeros((), device=device, dtype=precise)

    def forget_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient; the others keep weight and momentum."""
        moving = [n for n, parameter in enumerate(self.parameters) if parameter.grad is not None]
        weights: list[Tensor] = [self.parameters[n] for n in moving]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        momenta = [self.momenta[n] for n in moving] if self.momenta else []
        if (
            momenta
            and self.rate.is_cuda
            and all(map(fits_kernel, zip(weights, gradients, momenta, strict=True)))
        ):
            self.step_in_one_kernel(weights, gradients, momenta)
            return
        for n, weight, gradient in zip(moving, weights, gradients, strict=True):
            direction = gradient.add(weight, alpha=self.weight_decay)
            if self.momenta:
                direction = self.momenta[n].mul_(self.momentum).add_(direction)
            weight.sub_(self.rate * direction)

    def step_in_one_kernel(
        self, weights: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]
    ) -> None:
        torch._fused_sgd_(
            weights,
            gradients,
            momenta,
            lr=self.rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )


def fits_kernel(tensors: Sequence[Tensor]) -> bool:
    """Whether a weight, its gradient and its momentum lie alike in memory; the kernel does not look."""
    return all(tensor.dtype == torch.float32 and tensor.stride() == tensors[0].stride() for tensor in tensors)
