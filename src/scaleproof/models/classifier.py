"""Classifier: any PyTorch image network, with its logits, its features and its head's weight."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from scaleproof.models.backward import StandIn, named_parts, standing_in
from scaleproof.models.heads import Head, Probe, features_of, linear_modules, named_head, recorded
from scaleproof.models.output import Output
from scaleproof.rng import random_state_kept

PROBE_ROWS = 8


class Classifier(nn.Module):
    """A network on images in [0, 1] that answers with logits, or with features and head weight too.

    The network is used as it is, or, where parts of it are compiled or wrapped for parallel training,
    through shallow copies of the modules around those parts: they share parameters, buffers and mode
    flags with the user's modules, so `train` and `eval` on either side hold for both. Modules added to
    the user's network later are not seen. `backward` names parts whose gradient is that of a stand-in."""

    mean: Tensor | None
    std: Tensor | None
    logit_scale: float
    stand_ins: Mapping[str, StandIn]
    _given: str | None  # the head that the user named
    _found: str | None  # the head that a probe bore out

    def __init__(
        self,
        net: AnyModel,
        head: str | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        logit_scale: float = 1.0,
        backward: StandIn | Mapping[str, StandIn] | None = None,
    ) -> None:
        super().__init__()
        plain = unwrapped(network_in(net))
        inner = plain if isinstance(plain, Classifier) else None
        self.net: nn.Module = plain if inner is None else inner.net
        self.logit_scale = checked_scale(logit_scale) * (1.0 if inner is None else inner.logit_scale)
        self.training = self.net.training
        self._set_normalisation(mean, std, inner)
        self._given, self._found = (None, None) if inner is None else (inner._given, inner._found)
        if head is not None:
            self._given, self._found = named_head(self.net, head), None
        self.stand_ins = {} if inner is None else inner.stand_ins
        if backward is not None:
            self.stand_ins = named_parts(self.net, backward)

    def _set_normalisation(
        self, mean: Sequence[float] | None, std: Sequence[float] | None, inner: Classifier | None
    ) -> None:
        """Keep mean and standard deviation beside the weights, outside the state dict."""
        means, deviations = checked_normalisation(mean, std, device_of(self.net))
        if inner is not None and inner.mean is not None:
            if means is not None:
                raise ValueError(
                    "mean and std must be given once: this network is a Classifier that normalises"
                )
            means, deviations = inner.mean, inner.std
        self.register_buffer("mean", means, persistent=False)
        self.register_buffer("std", deviations, persistent=False)

    @property
    def head_name(self) -> str | None:
        """The head's name inside `unwrapped`, None until it is resolved."""
        return self._found

    @property
    def unwrapped(self) -> nn.Module:
        """The network without compilation and parallel wrappers."""
        return self.net

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images in [0, 1], times `logit_scale`."""
        return self._scaled(self._raw_logits(x))

    def outputs(self, x: Tensor) -> Output:
        """Logits, features and head weight from one forward pass; finds the head first if need be."""
        name = self.find_head(x) if self._found is None else self._found
        head = self._head(name)
        with recorded({name: head}) as records:
            logits = self._scaled(self._raw_logits(x))
        features = features_of(name, head, records[name], len(x))
        return Output(logits=logits, features=features, weight=head.weight.flatten(1))

    @torch.no_grad()
    def find_head(self, x: Tensor) -> str:
        """Resolve the head on the first rows of a batch, in eval mode, and return its name."""
        if len(x) == 0:
            raise ValueError("finding the head needs at least one image, got an empty batch")
        modules = linear_modules(self.net)
        with evaluating(self.net), random_state_kept(x.device), recorded(modules, probing=True) as records:
            logits = self._raw_logits(x[:PROBE_ROWS])
        probe = Probe(modules=modules, records=records, logits=logits)
        self._found = probe.last() if self._given is None else probe.confirmed(self._given)
        return self._found

    def rescaled(self, alpha: float) -> Classifier:
        """The same network and head with logits `alpha` times as large; weights are shared."""
        return Classifier(self, logit_scale=alpha)

    def _head(self, name: str) -> Head:
        module = self.net.get_submodule(name)
        if not isinstance(module, nn.Linear | nn.Conv2d):
            raise ValueError(
                f"the head {name!r} was replaced by {type(module).__name__}: wrap the network anew"
            )
        return module

    def _scaled(self, logits: Tensor) -> Tensor:
        return logits if self.logit_scale == 1.0 else logits * self.logit_scale

    def _raw_logits(self, x: Tensor) -> Tensor:
        with standing_in(self.net, self.stand_ins):
            return checked_logits(self.net(self.normalised(x)), len(x))

    def normalised(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            raise ValueError(f"images must be floating point in [0, 1], got {x.dtype}: divide bytes by 255")
        if self.mean is None or self.std is None:
            return x
        if x.dim() < 2 or x.shape[1] != len(self.mean):
            raise ValueError(
                f"images must have {len(self.mean)} channels, as many as mean and std, got {tuple(x.shape)}: "
                "give other images or another network"
            )
        shape = (-1,) + (1,) * (x.dim() - 2)
        mean, std = self.mean.to(x), self.std.to(x)
        return (x - mean.view(shape)) / std.view(shape)


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A classifier and where it came from; in eval mode, but for what a factory chose otherwise."""

    classifier: Classifier = field(repr=False)  # of many lines
    spec: str
    architecture: str
    sha256: str  # of the weights, see `weights_digest`
    notes: tuple[str, ...] = ()


AnyModel = nn.Module | LoadedModel


def as_classifier(model: AnyModel) -> Classifier:
    """A Classifier as it is, or the one that was loaded; any other network inside a new one."""
    net = network_in(model)
    return net if isinstance(net, Classifier) else Classifier(net)


def network_in(model: AnyModel) -> nn.Module:
    """The network that was given, or an error that says how to come by one."""
    if isinstance(model, LoadedModel):
        return model.classifier
    if isinstance(model, nn.Module):
        return model
    rule = "a model must be a torch.nn.Module or what load_model(...) gives"
    if isinstance(model, str | PurePath):
        raise ValueError(
            f"{rule}, got the text {str(model)!r}: load it first, with load_model({str(model)!r})"
        )
    if isinstance(model, type):
        raise ValueError(f"{rule}, got the class {model.__name__}: give an instance, {model.__name__}(...)")
    raise ValueError(f"{rule}, got {type(model).__name__}: make it the forward of a Module")


def checked_scale(scale: float) -> float:
    """A positive finite factor for the logits, or an error."""
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"logit_scale must be positive and finite, got {scale}")
    return float(scale)


def checked_normalisation(
    mean: Sequence[float] | None, std: Sequence[float] | None, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """Mean and standard deviation per channel as tensors, both or neither, or an error."""
    if mean is None and std is None:
        return None, None
    if mean is None or std is None or len(mean) != len(std) or len(mean) == 0:
        raise ValueError(f"mean and std must be given together, one number per channel, got {mean} and {std}")
    if not all(math.isfinite(value) for value in (*mean, *std)) or min(std) <= 0:
        raise ValueError(f"mean must be finite and std positive and finite, got {mean} and {std}")
    return torch.tensor(list(mean), device=device), torch.tensor(list(std), device=device)


def checked_logits(logits: Any, batch: int) -> Tensor:
    """What a network returned, if it is a floating (B, K) tensor with two classes or more."""
    rule = "a classifier must return logits as one floating tensor (batch, classes) with two classes or more"
    if not isinstance(logits, Tensor):
        raise ValueError(f"{rule}, got {type(logits).__name__}: wrap the network to return its logits only")
    fits = logits.dim() == 2 and logits.shape[0] == batch and logits.shape[1] > 1
    if not (fits and logits.is_floating_point()):
        seen = f"{logits.dtype} {tuple(logits.shape)} for {batch} images"
        raise ValueError(f"{rule}, got {seen}: wrap the network to return its logits only")
    return logits


def device_of(net: nn.Module) -> torch.device:
    """Where the first parameter or buffer of a network lies; the CPU for a network with neither."""
    tensors = (*net.parameters(), *net.buffers())
    return tensors[0].device if tensors else torch.device("cpu")


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Eval mode for every module, by its flag alone, and each module's own flag back afterwards."""
    modes = [(module, module.training) for module in net.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def unwrapped(net: nn.Module, seen: dict[int, nn.Module] | None = None) -> nn.Module:
    """A network free of compilation and parallel wrappers at any depth, sharing all it can."""
    seen = {} if seen is None else seen
    if id(net) not in seen:
        inner = wrapped_by(net)
        seen[id(net)] = rebuilt(net, seen) if inner is None else unwrapped(inner, seen)
    return seen[id(net)]


def wrapped_by(net: nn.Module) -> nn.Module | None:
    """What a compiled, DistributedDataParallel or DataParallel module runs, None for any other."""
    if isinstance(net, DistributedDataParallel | DataParallel):
        inner: nn.Module = net.module
        return inner
    return net._modules.get("_orig_mod") if type(net).__name__ == "OptimizedModule" else None


def rebuilt(net: nn.Module, seen: dict[int, nn.Module]) -> nn.Module:
    """The module itself when nothing in it needs unwrapping, else a twin around unwrapped children."""
    children = {
        name: None if child is None else unwrapped(child, seen) for name, child in net._modules.items()
    }
    same = all(children[name] is child for name, child in net._modules.items())
    forward = vars(net).get("forward")
    eager = getattr(forward, "_torchdynamo_orig_callable", forward)
    if same and eager is forward and net._compiled_call_impl is None:
        return net
    return twin(net, children, {} if forward is None else {"forward": eager})


def twin(net: nn.Module, children: dict[str, nn.Module | None], changes: dict[str, Any]) -> nn.Module:
    """A shallow copy of a module with other children; methods kept on the instance follow the copy."""
    kind = type(net)
    build: Any = type(kind)
    copy: nn.Module = object.__new__(build(kind.__name__, (SharedMode, kind), {}))
    state = {**vars(net), **changes, "_modules": children, "_compiled_call_impl": None, "_twin_of": (net,)}
    state.pop("training", None)
    for name, value in state.items():
        bound = isinstance(value, MethodType) and value.__self__ is net
        vars(copy)[name] = MethodType(value.__func__, copy) if bound else value
    return copy


class SharedMode:
    """A module whose mode flag is the flag of the module it was copied from."""

    _twin_of: tuple[nn.Module]

    @property
    def training(self) -> bool:
        """The mode of the user's module."""
        return self._twin_of[0].training

    @training.setter
    def training(self, mode: bool) -> None:
        self._twin_of[0].training = mode
