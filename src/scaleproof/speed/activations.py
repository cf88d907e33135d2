"""Activations under other names: modules with a function or a gradient of their own that is a known one after all.

Code of widespread WideResNets has a Swish that saves memory by a backward pass of its own. Nothing that follows a
forward pass sees through it; on a fine grid of numbers its values and its gradients are those of SiLU.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from scaleproof.speed.traced import state_of

KNOWN = tuple(
    module.eval()
    for module in (
        *(nn.ReLU(), nn.SiLU(), nn.GELU(), nn.GELU(approximate="tanh"), nn.Softplus(), nn.ELU(), nn.ReLU6()),
        *(nn.LeakyReLU(), nn.LeakyReLU(0.1), nn.LeakyReLU(0.2), nn.Tanh(), nn.Sigmoid(), nn.Hardswish()),
    )
)
SAME = 1e-9  # in float64
SHAPES = ((8, 3, 20, 100), (48, 1000))  # of images, of features
WEIGHTS = (1.0, -2.0, 1e-3, 3.0, -1e-5, -0.5, 1e-7)  # of the gradients that come from behind


def with_known_activations(net: nn.Module) -> nn.Module:
    """A copy in which such modules are torch's own; the network itself where there are none."""
    everywhere = list(net.named_modules(remove_duplicate=False))
    strange = [name for name, module in everywhere if name and is_strange(module)]
    found = copy.deepcopy(net) if strange else net
    if {id(module) for _, module in everywhere} & {id(module) for module in found.modules()}:
        return net  # nothing to do, or it does not let itself be copied
    looked_at: dict[tuple[type, str], nn.Module | None] = {}  # a deep network has many that are alike
    for name in strange:
        module = found.get_submodule(name)
        kind = type(module), str(vars(module))
        if kind not in looked_at:
            looked_at[kind] = known_activation(module)
        known = looked_at[kind]
        if known is not None:
            found.set_submodule(name, copy.deepcopy(known))
    return found


def is_strange(module: nn.Module) -> bool:
    """A part that is not torch's, has no parts, and holds no tensors."""
    own = type(module).__module__.partition(".")[0] != "torch"
    held = (*module.children(), *module.parameters(), *module.buffers())
    return own and not held and not hooked(module)


def hooked(module: nn.Module) -> bool:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(vars(module)[kind] for kind in hooks) or "forward" in vars(module)


def known_activation(module: nn.Module) -> nn.Module | None:
    """Torch's activation with the same values and gradients, on images and on features."""
    points, before = grid(), state(module)
    for known in KNOWN:
        if all(same(module, known, points.reshape(shape)) for shape in SHAPES):
            return known if state(module) == before else None
    return None


def grid() -> Tensor:
    """Numbers of every size on both sides of zero, zero itself, and where known functions have their bends."""
    even = torch.linspace(-40, 40, 23_994, dtype=torch.float64)
    sizes = torch.logspace(-12, 3, 12_000, dtype=torch.float64)
    return torch.cat([even, sizes, -sizes, even.new_tensor([0.0, -0.0, 3.0, -3.0, 6.0, -6.0])])


def state(module: nn.Module) -> tuple[list[object], str]:
    """What a call may change."""
    return state_of(module), repr(vars(module))


def same(module: nn.Module, known: nn.Module, points: Tensor) -> bool:
    try:
        (value, gradient), (wanted, exact) = (response(one, points) for one in (module, known))
    except Exception:  # code of other people: it may want anything
        return False
    pairs = ((value, wanted), (gradient, exact))
    return all(torch.allclose(one, other, rtol=SAME, atol=SAME) for one, other in pairs)


def response(module: nn.Module, points: Tensor) -> tuple[Tensor, Tensor]:
    """The values, and the slopes that gradients of both signs and several sizes are given on their way back."""
    weights, slopes = points.new_tensor(WEIGHTS), []
    for turn in range(len(WEIGHTS)):
        behind = weights[(torch.arange(points.numel()) + turn) % len(WEIGHTS)].reshape(points.shape)
        with torch.enable_grad():
            point = points.clone().requires_grad_()
            value = module(point)
            (gradient,) = torch.autograd.grad(value, point, behind)
        slopes.append(gradient / behind)
    return value.detach(), torch.stack(slopes)
