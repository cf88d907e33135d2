"""The rooms of the museum: each a way to look robust, at several strengths, around one undefended network."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn

from scaleproof.models.backward import identity
from scaleproof.models.classifier import Classifier, device_of
from scaleproof.museum import parts
from scaleproof.museum.parts import Defended


@dataclass(frozen=True, kw_only=True)
class Key:
    """What opens a room: the network as an attacker who knows the trick would treat it."""

    words: str
    opened: Callable[[nn.Module], Classifier] = Classifier
    draws: int = 1


@dataclass(frozen=True, kw_only=True)
class Room:
    """One kind of broken defense."""

    name: str
    words: str
    strengths: tuple[float, ...]
    built: Callable[[nn.Module, float], nn.Module]
    caught_by: str  # the check whose business it is
    key: Key | None  # None where nothing is masked

    def exhibit(self, net: nn.Module, strength: float) -> nn.Module:
        """The defense around a copy of a network in eval mode."""
        return self.built(copy.deepcopy(net).eval(), strength)


def before(part: Callable[[float], nn.Module]) -> Callable[[nn.Module, float], nn.Module]:
    return lambda net, strength: Defended(net, before=part(strength))


def after(part: Callable[[float], nn.Module]) -> Callable[[nn.Module, float], nn.Module]:
    return lambda net, strength: Defended(net, after=part(strength))


def in_train_mode(net: nn.Module, momentum: float) -> nn.Module:
    """BatchNorm with the statistics of the batch, as where somebody forgot to call eval()."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = momentum
    return net.train()


def distilled(net: nn.Module, temperature: float) -> nn.Module:
    """A student fitted to its teacher's softmax at a temperature, used without it (Papernot et al. 2016).

    A network trained at temperature T has logits T times as large. The teacher's head is given that size; then the
    student learns the teacher's soft labels at T for some steps.
    """
    from scaleproof.data import load

    teacher, student = copy.deepcopy(net), net
    with torch.no_grad():
        for model in (teacher, student):
            for parameter in model.head.parameters():  # type: ignore[union-attr]
                parameter *= temperature
    images, _ = load("sample-train").select(np.arange(256))
    optimizer = torch.optim.SGD(student.parameters(), lr=1e-3)
    for batch in torch.split(images.to(device_of(net)), 64):
        soft = (teacher(batch).detach() / temperature).softmax(1)
        loss = -(soft * (student(batch) / temperature).log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return student.eval().requires_grad_(True)


def winners(net: nn.Module, share: float) -> nn.Module:
    """The largest activations alone survive each block."""
    blocks = net.get_submodule("blocks")
    net.blocks = nn.Sequential(
        *(nn.Sequential(block, parts.KeepWinners(share)) for block in blocks.children())
    )
    return net


def through(kind: type[nn.Module]) -> Callable[[nn.Module], Classifier]:
    """Gradients pass through every part of a kind as through the identity."""

    def opened(net: nn.Module) -> Classifier:
        names = [name for name, part in net.named_modules() if isinstance(part, kind)]
        return Classifier(net, backward=dict.fromkeys(names, identity))

    return opened


def underneath(net: nn.Module) -> Classifier:
    return Classifier(net.get_submodule("net"))


def in_eval_mode(net: nn.Module) -> Classifier:
    return Classifier(copy.deepcopy(net).eval())


PASS_THROUGH = Key(
    words="BPDA: the identity in place of its gradient",
    opened=partial(Classifier, backward={"before": identity}),
)
MANY_DRAWS = Key(words="EOT: the mean gradient of 20 draws", draws=20)
NO_SCALE = Key(words="objectives that do not depend on the scale of the logits")

SETTING = (  # limits of the checks are set on these
    Room(
        name="quantisation",
        words="pixels rounded to a few levels",
        strengths=(8, 16),
        built=before(lambda levels: parts.Quantise(int(levels))),
        caught_by="gradient-zero",
        key=PASS_THROUGH,
    ),
    Room(
        name="logit-scale",
        words="logits multiplied by a constant",
        strengths=(1e2, 1e4),
        built=after(parts.Times),
        caught_by="scale",
        key=NO_SCALE,
    ),
    Room(
        name="softmax",
        words="probabilities in place of logits",
        strengths=(1, 10),
        built=after(parts.Probabilities),
        caught_by="probabilities",
        key=Key(words="the logits under the softmax", opened=underneath),
    ),
    Room(
        name="dropout",
        words="dropout left on",
        strengths=(0.3, 0.6),
        built=parts.DropFeatures,
        caught_by="determinism",
        key=MANY_DRAWS,
    ),
    Room(
        name="detached",
        words="the image leaves the graph",
        strengths=(0.0, 0.3),
        built=before(parts.Detach),
        caught_by="gradient-detached",
        key=PASS_THROUGH,
    ),
    Room(
        name="shattered",
        words="a fine wave on every pixel",
        strengths=(300, 1000),
        built=before(parts.Shatter),
        caught_by="gradient-direction",
        key=PASS_THROUGH,
    ),
    Room(
        name="not-a-number",
        words="gradients that are not numbers",
        strengths=(0.01, 1.0),
        built=before(parts.NotANumber),
        caught_by="gradient-finite",
        key=PASS_THROUGH,
    ),
)
HELD_BACK = (  # and reported on these
    Room(
        name="thermometer",
        words="pixels as bits of a thermometer code",
        strengths=(10, 20),
        built=before(lambda levels: parts.Thermometer(int(levels))),
        caught_by="gradient-zero",
        key=PASS_THROUGH,
    ),
    Room(
        name="jpeg",
        words="the rounding of JPEG",
        strengths=(4, 10),
        built=before(parts.Jpeg),
        caught_by="gradient-zero",
        key=PASS_THROUGH,
    ),
    Room(
        name="distillation",
        words="defensive distillation",
        strengths=(40, 100),
        built=distilled,
        caught_by="scale",
        key=NO_SCALE,
    ),
    Room(
        name="batch-norm",
        words="BatchNorm in train mode",
        strengths=(0.0, 0.1),
        built=in_train_mode,
        caught_by="train-mode",
        key=Key(words="the network in eval mode", opened=in_eval_mode),
    ),
    Room(
        name="random-resizing",
        words="random size and place",
        strengths=(28, 24),
        built=before(lambda smallest: parts.RandomResize(int(smallest))),
        caught_by="determinism",
        key=MANY_DRAWS,
    ),
    Room(
        name="constant",
        words="one class for every image",
        strengths=(0, 3),
        built=lambda net, chosen: parts.Constant(int(chosen), 10),
        caught_by="constant",
        key=None,
    ),
    Room(
        name="k-winners",
        words="only the largest activations survive",
        strengths=(0.4, 0.3),
        built=winners,
        caught_by="gradient-direction",
        key=Key(words="BPDA: the identity in place of the selection", opened=through(parts.KeepWinners)),
    ),
)
ROOMS = (*SETTING, *HELD_BACK)


def room(name: str, rooms: tuple[Room, ...] = ROOMS) -> Room:
    found = {room.name: room for room in rooms}
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"no room of this wing of the museum is called {name!r}.{hint} There are {', '.join(found)}"
        )
    return found[name]
