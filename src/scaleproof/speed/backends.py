"""Backends: ways to compute a classifier's output for an attack. All differentiable in x; none touches the weights.

`choose` picks one for a classifier and a device and says in words what it picked. Verdicts never come from here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from scaleproof.models.classifier import Classifier
from scaleproof.models.output import Output
from scaleproof.models.resnet import ResNet
from scaleproof.speed.fold import OwnNetwork, can_fold, fold
from scaleproof.speed.precision import has_fast_bf16
from scaleproof.speed.twins import twin_of

Precision = Literal["auto", "float32", "tf32", "fp16", "bf16"]
Backend = Callable[[Tensor, bool], Output]
Pairs = Callable[
    [Tensor, Tensor, float], tuple[Tensor, Tensor]
]  # images, directions, h: logits on both sides


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How gradients may be computed; `Speed(precision="float32", fold=False, graph=False)` is the plain way."""

    precision: Precision = "auto"
    fold: bool = True
    graph: bool = True
    compile: bool = False
    streams: int = 1  # parts of a training batch that are attacked at the same time

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            raise ValueError(
                f"precision must be one of {', '.join(get_args(Precision))}, got {self.precision!r}"
            )
        if self.streams < 1:
            raise ValueError(f"streams must be >= 1, got {self.streams}")

    def settings(self) -> dict[str, object]:
        """All that may change a number, as plain data: one stream is as none."""
        return {name: value for name, value in vars(self).items() if (name, value) != ("streams", 1)}


PLAIN = Speed(precision="float32", fold=False, graph=False)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A backend and, for the record, what it does."""

    backend: Backend
    precision: str
    folded: bool
    compiled: bool
    pairs: Pairs | None = None  # small differences in float16, where two passes would round them away
    notes: tuple[str, ...] = ()


def choose(
    classifier: Classifier, device: torch.device, speed: Speed, images: Tensor | None = None
) -> Choice:
    """The fastest backend that `speed` allows for this classifier on this device.

    With `images` to try it on, a network that is not ours may be computed through a twin.
    """
    own = can_fold(classifier.net) and classifier.head_name in (None, "head") and not classifier.stand_ins
    if speed.fold and not own and images is not None and not classifier.stand_ins:
        return twin_choice(classifier, device, speed, images)
    bf16 = wants_bf16(speed, device, own=own)
    if not (speed.fold and own):
        return plain_choice(classifier, device, bf16, speed)
    assert isinstance(classifier.net, OwnNetwork)
    head = classifier.net.head
    half = torch.float16 if speed.precision == "fp16" else torch.bfloat16 if bf16 else None
    fused = None if half is None or speed.compile else fused_body(classifier.net, device, half)
    if fused is not None:
        backend = FoldedBackend(classifier, head, fused)
        return Choice(
            backend=backend,
            precision="fp16" if half == torch.float16 else "bf16",
            folded=True,
            compiled=False,
            pairs=Paired(classifier, backend) if isinstance(classifier.net, ResNet) else None,
            notes=("cuDNN's fused convolutions",),
        )
    body: Callable[[Tensor], Tensor] = FoldedBody(
        fold(classifier.net), torch.bfloat16 if bf16 else torch.float32
    )
    body = torch.compile(body, dynamic=False) if speed.compile else body
    backend = FoldedBackend(classifier, head, body)
    precision = "bf16" if bf16 else plain_name(speed)
    return Choice(backend=backend, precision=precision, folded=True, compiled=speed.compile)


def plain_name(speed: Speed) -> str:
    """What float32 products are computed in; where fp16 has no kernels, TF32 rounds alike."""
    return "tf32" if speed.precision in ("tf32", "fp16") else "float32"


def wants_bf16(speed: Speed, device: torch.device, *, own: bool) -> bool:
    """By default on a GPU; on a CPU for our own networks and twins only, where it has been measured to pay."""
    known = own or device.type == "cuda"
    return speed.precision == "bf16" or (speed.precision == "auto" and known and has_fast_bf16(device))


def plain_choice(classifier: Classifier, device: torch.device, bf16: bool, speed: Speed) -> Choice:
    backend = PlainBackend(classifier, device, bf16)
    notes = () if not speed.compile else ("compile is for our own architectures in eval mode: not compiled",)
    precision = "bf16 autocast" if bf16 else plain_name(speed)
    return Choice(backend=backend, precision=precision, folded=False, compiled=False, notes=notes)


def twin_choice(classifier: Classifier, device: torch.device, speed: Speed, images: Tensor) -> Choice:
    """By a twin where there is one; else as the network is, with the reason."""
    twin = twin_of(classifier, images)
    if isinstance(twin, str):
        choice = choose(classifier, device, speed)
        return replace(choice, notes=(*choice.notes, f"runs as it is: {twin}"))
    plain = PlainBackend(classifier, device, bf16=False)
    if twin.graph is None:
        choice = choose(twin.classifier, device, speed)
        backend = OneSize(choice.backend, plain, images.shape[1:])
        return replace(choice, backend=backend, notes=(*choice.notes, twin.note))
    wanted = wants_bf16(speed, device, own=True)
    coarse = twin.coarse(images) if wanted else None
    lost = ("bf16 loses too much of its gradients: float32",) if wanted and not coarse else ()
    return Choice(
        backend=OneSize(PlainBackend(coarse or twin.classifier, device, bf16=False), plain, images.shape[1:]),
        precision="bf16" if coarse else plain_name(speed),
        folded=True,
        compiled=False,
        notes=(twin.note, *lost),
    )


def fused_body(
    net: OwnNetwork, device: torch.device, dtype: torch.dtype
) -> Callable[[Tensor], Tensor] | None:
    """The hand-written CUDA body, where it applies."""
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    from scaleproof.speed.fused import STEM_WIDTHS, FusedBody
    from scaleproof.speed.fused_preact import FusedPreAct

    if net.conv1.out_channels not in STEM_WIDTHS:
        return None
    return FusedBody(net, dtype) if isinstance(net, ResNet) else FusedPreAct(net, dtype)


def training_body(net: OwnNetwork, device: torch.device, *, twice: bool) -> Callable[[Tensor], Tensor] | None:
    """Features in train mode by hand-written CUDA kernels, where they apply; `twice` as `train_features` says."""
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    fits = all(norm.num_features % 16 == 0 and norm.affine and norm.momentum is not None for norm in norms)
    if device.type != "cuda" or not fits or find_spec("triton") is None:
        return None
    from scaleproof.speed import training_body as body

    return partial(body.train_features, net, convolved=body.twice if twice else body.once)


@dataclass(frozen=True)
class OneSize:
    """A twin for images of the size that it was tried on, the network itself for all others."""

    twin: Backend
    plain: Backend
    size: torch.Size

    def __call__(self, x: Tensor, needs_features: bool) -> Output:
        return (self.twin if x.shape[1:] == self.size else self.plain)(x, needs_features)


@dataclass(frozen=True)
class PlainBackend:
    """The classifier itself, in float32 or under bf16 autocast."""

    classifier: Classifier
    device: torch.device
    bf16: bool

    def __call__(self, x: Tensor, needs_features: bool) -> Output:
        if not self.bf16:
            return self.run(x, needs_features)
        with torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False):
            return self.run(x, needs_features)

    def run(self, x: Tensor, needs_features: bool) -> Output:
        return self.classifier.outputs(x) if needs_features else Output(logits=self.classifier(x))


class FoldedBody:
    """Images to features through a folded network in one number format, channels last."""

    def __init__(self, net: OwnNetwork, dtype: torch.dtype) -> None:
        self.net = net.to(dtype=dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.dtype = dtype

    def __call__(self, x: Tensor) -> Tensor:
        features: Tensor = self.net.features(x.to(self.dtype, memory_format=torch.channels_last))
        return features


class FoldedBackend:
    """A folded body, and the head in float32."""

    def __init__(self, classifier: Classifier, head: nn.Linear, body: Callable[[Tensor], Tensor]) -> None:
        self.classifier, self.body = classifier, body
        self.head = copy.deepcopy(head).float().requires_grad_(False)

    def __call__(self, x: Tensor, needs_features: bool) -> Output:
        features = self.body(self.classifier.normalised(x)).float()  # (B, D)
        return Output(logits=self.logits(features), features=features, weight=self.head.weight)

    def logits(self, features: Tensor) -> Tensor:
        result: Tensor = self.head(features) * self.classifier.logit_scale
        return result


class Paired:
    """Logits on both sides of images in float16, by a paired body that is made when it is first needed."""

    def __init__(self, classifier: Classifier, backend: FoldedBackend) -> None:
        self.classifier, self.backend = classifier, backend

    @cached_property
    def body(self) -> Pairs:
        from scaleproof.speed.fused import FusedBody
        from scaleproof.speed.pairs import PairedBody

        assert isinstance(self.classifier.net, ResNet)
        return PairedBody(FusedBody(self.classifier.net, torch.float16))

    def __call__(self, x: Tensor, directions: Tensor, difference: float) -> tuple[Tensor, Tensor]:
        if self.classifier.std is not None:
            directions = directions / self.classifier.std.to(x)[:, None, None]
        ahead, behind = self.body(self.classifier.normalised(x), directions, difference)
        return self.backend.logits(ahead), self.backend.logits(behind)
