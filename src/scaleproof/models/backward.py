"""Stand-ins for the backward pass (BPDA, Athalye et al. 2018): a part keeps its output, its gradient is another's.

A part of a network that rounds, samples or encodes gives no gradient of use. In the forward pass it does what it does;
in the backward pass a smooth function of the same input stands in for it, the identity for most preprocessing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from scaleproof.callables import name_of, source_digest

StandIn = Callable[[Tensor], Tensor]

EXAMPLE = """code inside forward() must become a module first, as this rounding does:
class Encode(nn.Module):
    def forward(self, x): return (15 * x).round() / 15
Classifier(nn.Sequential(Encode(), net), backward=identity)  # net.forward() without it; more in docs/interoperate.md"""


def identity(x: Tensor) -> Tensor:
    """Stands in for a part whose output is close to its input."""
    return x


def named_parts(net: nn.Module, backward: StandIn | Mapping[str, StandIn]) -> dict[str, StandIn]:
    """Which part each stand-in is for; a single one is for what comes before the first part with parameters."""
    if not isinstance(backward, Mapping):
        backward = dict.fromkeys(preprocessing(net), backward)
    for name in backward:
        try:
            net.get_submodule(name)
        except AttributeError:
            known = ", ".join(name for name, _ in net.named_children()) or "none"
            raise ValueError(
                f"backward= names a part {name!r} that the network does not have; its parts: {known}"
            ) from None
    return dict(backward)


def preprocessing(net: nn.Module) -> list[str]:
    """The network's own parts, in order, up to the first that has parameters."""
    found, first = [], "no parts"
    for name, part in net.named_children():
        if any(True for _ in part.parameters()):
            first = f"{name!r} ({type(part).__name__}) first"
            break
        found.append(name)
    if not found:
        raise ValueError(
            "backward= was given one function, but the network does not begin with a part without parameters, it has "
            f"{first}: name the part, as in backward={{'encode': identity}}; {EXAMPLE}"
        )
    return found


def described(parts: Mapping[str, StandIn]) -> dict[str, list[str | None]]:
    """Which functions stand in for which parts: gradients, and so verdicts, depend on them."""
    return {name: [name_of(part), source_digest(part)] for name, part in sorted(parts.items())}


@contextmanager
def standing_in(net: nn.Module, parts: Mapping[str, StandIn]) -> Iterator[None]:
    """Inside, gradients flow through the stand-ins; outputs are unchanged."""
    handles = [
        net.get_submodule(name).register_forward_hook(replaced(name, part)) for name, part in parts.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def replaced(name: str, stand_in: StandIn) -> Callable[[nn.Module, tuple[Any, ...], Tensor], Tensor | None]:
    def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor | None:
        if not torch.is_grad_enabled():
            return None
        if not inputs:
            raise ValueError(
                f"the part {name!r} is called with named inputs only: its stand-in needs a plain one"
            )
        smooth = stand_in(inputs[0])
        if smooth.shape != output.shape:
            raise ValueError(
                f"the stand-in for {name!r} must have the shape of its output {tuple(output.shape)}, "
                f"got {tuple(smooth.shape)}"
            )
        return smooth + (output - smooth).detach()

    return hook
