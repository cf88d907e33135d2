"""What a foreign attack sees of a model: the classifier behind a counter, put back as it was afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from scaleproof.oracle import Oracle, mean_logits

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Counted(nn.Module):
    """The classifier on images in [0, 1]; forwards and backwards are counted in the oracle's own books, in images.

    The gradients of whole batches are looked at as those of our own attacks are. A randomised model answers with the
    mean over the oracle's draws. Several backwards done as one batched call (vmap) count once.
    """

    def __init__(self, oracle: Oracle, y: Tensor) -> None:
        super().__init__()
        self.classifier = oracle.classifier
        self.training = oracle.classifier.training
        self._books, self._labels = oracle, y

    def forward(self, x: Tensor) -> Tensor:
        point = x.view_as(x)  # the gradient that arrives here comes through this pass alone
        drawn = [self.classifier(point) for _ in range(self._books.draws)]
        logits = mean_logits(drawn)
        self._books.cost.forwards += len(x) * len(drawn)
        if logits.requires_grad:
            on_gradient(logits, self._count(len(x) * len(drawn)))
        if point.requires_grad and len(x) == len(self._labels):
            on_gradient(point, self._look(logits.detach()))
        return logits

    def _count(self, images: int) -> Callable[[Tensor], None]:
        def count(gradient: Tensor) -> None:
            self._books.cost.backwards += images

        return count

    def _look(self, logits: Tensor) -> Callable[[Tensor], None]:
        def look(gradient: Tensor) -> None:
            self._books.health.look(gradient.detach(), logits, self._labels)

        return look


def on_gradient(tensor: Any, action: Callable[[Tensor], None]) -> None:
    """Call an action whenever a gradient arrives at a tensor."""
    tensor.register_hook(action)


@contextmanager
def model_kept(model: nn.Module, attack: str) -> Iterator[None]:
    """Modes, hooks, requires_grad, gradients and buffers as they were afterwards; changed weights are an error."""
    modes = [(module, module.training) for module in model.modules()]
    hooks = [(module, kind, dict(vars(module)[kind])) for module, _ in modes for kind in HOOKS]
    parameters = [
        (value, value.detach().clone(), value.requires_grad, value.grad) for value in model.parameters()
    ]
    gradients = [None if grad is None else grad.clone() for *_, grad in parameters]
    buffers = [(value, value.clone()) for value in model.buffers()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for module, kind, entries in hooks:
            vars(module)[kind].clear()
            vars(module)[kind].update(entries)
        for (value, _, required, _), gradient in zip(parameters, gradients, strict=True):
            value.requires_grad_(required)
            value.grad = gradient
        changed = sum([put_back(value, before) for value, before, *_ in parameters])
        for buffer, content in buffers:
            put_back(buffer, content)
    if changed:
        raise ValueError(
            f"attack {attack!r} must leave the model's weights alone, it changed {changed} of {len(parameters)} "
            "parameters: they are as before again; work on a copy of the model"
        )


@torch.no_grad()
def put_back(tensor: Tensor, before: Tensor) -> bool:
    """Give a tensor its former content; whether that was needed."""
    alike = (tensor.dtype, tensor.device, tensor.shape) == (before.dtype, before.device, before.shape)
    if alike and torch.equal(as_bytes(tensor), as_bytes(before)):
        return False
    if alike:
        tensor.copy_(before)
    else:
        tensor.data = before
    return True


def as_bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
