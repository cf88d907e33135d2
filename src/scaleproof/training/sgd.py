"""SGD with momentum and weight decay in one kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter


class SGD:
    """What torch.optim.SGD does, by its kernel, with momenta from the start and a rate on the device.

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
        precise = (
            torch.float32 if device.type == "cuda" else torch.float64
        )  # the kernel on a GPU reads float32
        self.rate = torch.zeros((), device=device, dtype=precise)

    def forget_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient; the others keep weight and momentum."""
        moving = [n for n, parameter in enumerate(self.parameters) if parameter.grad is not None]
        if not moving:
            return
        torch._fused_sgd_(
            [self.parameters[n] for n in moving],
            [self.gradient(n) for n in moving],
            [self.momenta[n] for n in moving] if self.momenta else [],
            lr=self.rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )

    def gradient(self, n: int) -> Tensor:
        gradient = self.parameters[n].grad
        assert gradient is not None
        return gradient
