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
SHAPES = ((8, 3, 20, 100), (48, 1000), (1, 48_000), (1000, 48), (1500, 2, 4, 4))  # of images, of features
WEIGHTS = (1.0, -2.0, 1e-3, 3.0, -1e-5, -0.5, 1e-7)  # of the gradients that come from behind


def with_known_activations(net: nn.Module) -> nn.Module:
    """A copy in which such modules are torch's own; the network itself where there are none."""
    everywhere = list(net.named_modules(remove_duplicate=False))
    strange = [name for name, module in everywhere if name and is_strange(module)]
    try:
        found = copy.deepcopy(net) if strange else net
    except Exception:  # as weights that are computed anew before each pass
        return net
    if {id(module) for _, module in everywhere} & {id(module) for module in found.modules()}:
        return net  # nothing to do, or it does not let itself be copied
    looked_at: list[tuple[nn.Module, nn.Module | None]] = []
    for name in strange:
        module = found.get_submodule(name)
        known = answer(module, looked_at)
        if known is not None:
            found.set_submodule(name, copy.deepcopy(known))
    return found


def answer(module: nn.Module, looked_at: list[tuple[nn.Module, nn.Module | None]]) -> nn.Module | None:
    """Its known activation: a deep network has many modules that are alike, one of them is looked at."""
    for other, known in looked_at:
        if alike(module, other):
            return known
    looked_at.append((module, known_activation(module)))
    return looked_at[-1][1]


def alike(module: nn.Module, other: nn.Module) -> bool:
    """Whether their code and all that they hold are the same; not where that cannot be said."""
    try:
        return type(module) is type(other) and bool(vars(module) == vars(other))
    except Exception:  # tensors of several numbers
        return False


def is_strange(module: nn.Module) -> bool:
    """A part that is not torch's, has no parts, and holds no tensors."""
    own = type(module).__module__.partition(".")[0] != "torch"
    held = (*module.children(), *module.parameters(), *module.buffers())
    return own and not held and not hooked(module)


def hooked(module: nn.Module) -> bool:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(vars(module)[kind] for kind in hooks) or "forward" in vars(module)


def known_activation(module: nn.Module) -> nn.Module | None:
    """Torch's activation with the same values and gradients at all sizes, if calls leave the module as it was."""
    points, before = grid(), state(module)
    try:
        module(points.reshape(SHAPES[0]).clone())  # once, before it is called often
        if state(module) != before:
            return None
        found = [response(module, points.reshape(shape)) for shape in SHAPES]
        if state(module) != before:
            return None
        likely = (known for known in KNOWN if near(found[0][0], known(points)))
        return next((known for known in likely if same(found, response(known, points))), None)
    except Exception:  # code of other people: it may want anything
        return None


def grid() -> Tensor:
    """Numbers of every size on both sides of zero, zero itself, and where known functions have their bends."""
    even = torch.linspace(-40, 40, 23_994, dtype=torch.float64)
    sizes = torch.logspace(-12, 3, 12_000, dtype=torch.float64)
    return torch.cat([even, sizes, -sizes, even.new_tensor([0.0, -0.0, 3.0, -3.0, 6.0, -6.0])])


def state(module: nn.Module) -> tuple[list[object], list[str]]:
    """What a call may change, in the module and in its classes."""
    own = [kind for kind in type(module).__mro__ if kind not in nn.Module.__mro__]
    return state_of(module), [repr(vars(holder)) for holder in (module, *own)]


def same(found: list[Tensor], wanted: Tensor) -> bool:
    return all(near(one, wanted) for one in found)


def near(found: Tensor, wanted: Tensor) -> bool:
    return torch.allclose(found, wanted, rtol=SAME, atol=SAME)


def response(module: nn.Module, points: Tensor) -> Tensor:
    """The values without and with gradients, and the slopes that gradients of several sizes and both signs are given.

    One row each: (2 + weights, points).
    """
    weights, places = points.new_tensor(WEIGHTS), torch.arange(points.numel())
    behind = [weights[(places + turn) % len(WEIGHTS)].reshape(points.shape) for turn in range(len(WEIGHTS))]
    with torch.no_grad():
        quiet = module(points.clone())
    with torch.enable_grad():
        point = points.clone().requires_grad_()
        value = module(point)
    slopes = [torch.autograd.grad(value, point, one, retain_graph=True)[0] / one for one in behind]
    return torch.stack([quiet, value.detach(), *slopes]).flatten(1)
