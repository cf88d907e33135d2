"""A classifier as a defense uses it: outer passes that reach the weights, and a view for the training attack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scaleproof.defenses.base import BatchNormPolicy, Role
from scaleproof.defenses.inner import Inner
from scaleproof.models.classifier import Classifier, device_of, evaluating
from scaleproof.models.output import Output
from scaleproof.oracle import input_gradient
from scaleproof.speed import Speed, ascend, choose, exact_float32, on_device, side_by_side, tf32_float32
from scaleproof.speed.backends import Backend, training_body
from scaleproof.speed.fold import OwnNetwork, is_own
from scaleproof.threat import Threat

Norm = nn.modules.batchnorm._BatchNorm


@dataclass(frozen=True)
class AttackView:
    """What the training attack sees: a backend, fixed for the attack's whole run."""

    backend: Backend
    streams: int = 1

    def apart(self, work: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        return side_by_side(work, self.streams, *tensors)

    def outputs(self, x: Tensor) -> Output:
        with torch.no_grad():
            return self.backend(x, False)

    def gradient(self, value: Callable[[Output], Tensor], x: Tensor, *, features: bool) -> Tensor:
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            return input_gradient(value(self.backend(point, features)), point)

    def ascend(
        self, threat: Threat, current: Tensor, gradient: Tensor, clean: Tensor, stride: float
    ) -> Tensor:
        return ascend(threat, current, gradient, clean, stride)


class ModelLearner:
    """The learner over a Classifier, under a BatchNorm policy and a speed."""

    def __init__(self, classifier: Classifier, policy: BatchNormPolicy, speed: Speed, bf16: bool) -> None:
        if not classifier.net.training:
            raise ValueError("a network in training must be in train mode: call .train() first")
        self.classifier, self.policy, self.speed, self.bf16 = classifier, policy, speed, bf16
        self.device = device_of(classifier)
        self.norms = [module for module in classifier.modules() if isinstance(module, Norm)]

    def outputs(self, x: Tensor, role: Role) -> Output:
        if self.device.type == "cuda":
            x = x.contiguous(memory_format=layout(self.speed, self.bf16))
        with self.still(self.policy.updates not in ("all", role)):
            return self.train_outputs(x)

    def train_outputs(self, x: Tensor, *, twice: bool = False) -> Output:
        """One pass in train mode; our own networks keep their head in float32. Differentiable `twice` where asked."""
        if not self.bf16:
            return self.classifier.outputs(x)
        net = self.classifier.net
        if not is_own(net):
            with autocast(self.device):
                return self.classifier.outputs(x)
        assert isinstance(net, OwnNetwork)
        body = training_body(net, self.device, twice=twice) if self.speed.fold else None
        with nullcontext() if body else autocast(self.device):
            features = (body or net.features)(self.classifier.normalised(x)).float()
        logits = net.head(features) * self.classifier.logit_scale
        return Output(logits=logits, features=features, weight=net.head.weight)

    @contextmanager
    def attacking(self) -> Iterator[AttackView]:
        if self.policy.attack == "eval":
            with evaluating(self.classifier):
                yield AttackView(choose(self.classifier, self.device, self.speed).backend, self.speed.streams)
            return
        with self.still(not self.policy.attack_updates):
            yield AttackView(lambda x, features: self.train_outputs(x))

    def gradient_graph(self, inner: Inner, x: Tensor, y: Tensor, *, keep: bool) -> Tensor:
        point = x.detach().requires_grad_()
        if self.policy.attack == "eval":
            with evaluating(self.classifier), autocast(self.device) if self.bf16 else nullcontext():
                value = inner.objective(self.classifier.outputs(point), y, None).sum()
        else:
            with self.still(not self.policy.attack_updates):
                value = inner.objective(self.train_outputs(point, twice=keep), y, None).sum()
        (gradient,) = torch.autograd.grad(value, point, create_graph=keep)
        return gradient

    @contextmanager
    def still(self, held: bool) -> Iterator[None]:
        """Train-mode passes inside leave the running statistics as they are, where `held`."""
        saved = [(norm, norm.track_running_stats) for norm in self.norms] if held else []
        for norm, _ in saved:
            norm.track_running_stats = False  # in train mode: batch statistics, nothing kept
        try:
            yield
        finally:
            for norm, tracks in saved:
                norm.track_running_stats = tracks

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """True float32 where it is float32, TF32 where that was asked for, whatever the caller set."""
        own = tf32_float32 if self.speed.precision == "tf32" else exact_float32
        with on_device(self.device), nullcontext() if self.bf16 else own():
            yield


def layout(speed: Speed, bf16: bool) -> torch.memory_format:
    """How images and weights lie on a GPU: its tensor cores want channels last, true float32 uses none of them."""
    return torch.channels_last if bf16 or speed.precision == "tf32" else torch.contiguous_format


def autocast(device: torch.device) -> torch.autocast:
    """bf16 without a cache of cast weights, which a captured graph could not refresh."""
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
