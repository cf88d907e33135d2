"""Networks that are not ours, followed through their own forward by torch.fx and written down as a graph of layers.

Where the graph holds known layers and functions alone, it is the network's function for every image: nothing in it
looks at a value, draws a number or stops a gradient. Then BatchNorms can become part of the convolutions before them,
and convolutions can run in another number format, as in our own networks (`fold.py`).
"""

from __future__ import annotations

import copy
import operator
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

LAYERS: frozenset[type[nn.Module]] = frozenset({
    nn.Conv2d, nn.BatchNorm2d, nn.Linear, nn.Identity, nn.Flatten, nn.Dropout, nn.Dropout2d,
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SiLU, nn.GELU, nn.Softplus, nn.Tanh, nn.Sigmoid,
    nn.Hardswish, nn.Hardsigmoid,
    nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.ZeroPad2d, nn.LogSoftmax, nn.Softmax,
    nn.GroupNorm, nn.Upsample,
})  # fmt: skip
FUNCTIONS: frozenset[Callable[..., Any]] = frozenset({
    operator.add, operator.iadd, operator.sub, operator.isub, operator.mul, operator.imul, operator.truediv,
    operator.itruediv, operator.neg, operator.getitem, operator.floordiv,
    torch.add, torch.sub, torch.mul, torch.div, torch.cat, torch.flatten, torch.mean, torch.reshape, torch.squeeze,
    torch.relu, torch.tanh, torch.sigmoid, torch.softmax, torch.log_softmax, torch.clamp,
    F.relu, F.relu6, F.leaky_relu, F.elu, F.silu, F.gelu, F.softplus, F.tanh, F.sigmoid, F.hardswish, F.hardsigmoid,
    F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, F.adaptive_max_pool2d, F.pad, F.log_softmax, F.softmax,
    F.interpolate,
})  # fmt: skip
METHODS = frozenset({
    "add", "add_", "sub", "mul", "mul_", "div", "relu", "relu_", "tanh", "sigmoid", "softmax", "log_softmax", "clamp",
    "view", "reshape", "flatten", "squeeze", "size", "mean", "contiguous",
})  # fmt: skip

STRAIGHT: dict[object, str] = {  # what our own networks are made of, under any name
    nn.Conv2d: "conv", nn.BatchNorm2d: "norm", nn.Linear: "linear",
    **dict.fromkeys((nn.ReLU, F.relu, torch.relu, "relu", "relu_"), "relu"),
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add", "add_"), "add"),
    **dict.fromkeys((operator.sub, torch.sub, "sub"), "sub"),
    **dict.fromkeys((operator.truediv, torch.div, "div"), "div"),
    **dict.fromkeys((nn.AvgPool2d, nn.AdaptiveAvgPool2d, F.avg_pool2d, F.adaptive_avg_pool2d), "mean"),
    **dict.fromkeys((torch.mean, "mean"), "mean"),
}  # fmt: skip
IDLE = (nn.Identity, nn.Flatten, nn.Dropout, nn.Dropout2d)
SHAPES = (getattr, operator.getitem, torch.flatten, "view", "reshape", "flatten", "size", "contiguous")
VIEWS = {
    "view",
    "reshape",
    "flatten",
    "squeeze",
    "contiguous",
    operator.getitem,
    torch.flatten,
    torch.reshape,
    torch.squeeze,
}
IN_PLACE = {operator.iadd, operator.isub, operator.imul, operator.itruediv}

Layer = TypeVar("Layer", bound=nn.Module)


class UntraceableError(Exception):
    """Why a network cannot be written down."""


class Tracer(fx.Tracer):
    """Known layers are leaves; what is computed without a graph is refused, unless it is only a look."""

    def __init__(self, *, graded: bool = True) -> None:
        super().__init__()
        self.graded = graded

    def create_node(self, *args: Any, **options: Any) -> fx.Node:
        if self.graded and not torch.is_grad_enabled():
            raise UntraceableError("a part of its forward takes no gradients")
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            raise UntraceableError("a part of its forward runs under autocast")
        return super().create_node(*args, **options)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) in LAYERS


def trace(net: nn.Module) -> fx.GraphModule:
    """The network as a graph of known layers, over a copy of its weights; else `UntraceableError` says why not."""
    for name, module in net.named_modules():
        refuse_module(name or type(net).__name__, module)
    tensors = [*net.parameters(), *net.buffers()]
    if any(tensor.is_floating_point() and tensor.dtype != torch.float32 for tensor in tensors):
        raise UntraceableError("its weights are not float32")
    root = copy.deepcopy(net)
    if any(one is other for one, other in zip(root.parameters(), net.parameters(), strict=True)):
        raise UntraceableError("it does not let itself be copied")
    before = state_of(root)
    with torch.enable_grad():
        graph = Tracer().trace(root)
    with torch.no_grad():
        again = Tracer(graded=False).trace(root)
    module = fx.GraphModule(root, graph)
    for node in module.graph.nodes:
        refuse_node(module, node)
    if str(again) != str(graph) or state_of(root) != before:
        raise UntraceableError("its forward pass is another one each time")
    if not any(isinstance(layer, nn.Linear) for _, layer in called(module, nn.Linear)):
        raise UntraceableError("it has no linear head")
    return module


def state_of(root: nn.Module) -> list[object]:
    """What a forward pass may change: generators of random numbers, tensors, plain attributes."""
    seen: list[object] = [random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()]
    for name, module in root.named_modules():
        plain = {
            key: value for key, value in vars(module).items() if isinstance(value, bool | int | float | str)
        }
        tensors = {
            key: value._version
            for key, value in (*vars(module).items(), *module._buffers.items(), *module._parameters.items())
            if isinstance(value, Tensor)
        }
        seen += [name, plain, tensors]
    return seen


def refuse_module(name: str, module: nn.Module) -> None:
    if module.training:
        raise UntraceableError(f"{name} is in train mode")
    if module._forward_hooks or module._forward_pre_hooks or backward_hooks(module):
        raise UntraceableError(f"{name} has hooks")
    if type(module) in LAYERS and "forward" in vars(module):
        raise UntraceableError(f"the forward of {name} was replaced")
    if isinstance(module, nn.BatchNorm2d) and module.running_var is None:
        raise UntraceableError(f"{name} has no running statistics")


def backward_hooks(module: nn.Module) -> bool:
    return bool(module._backward_hooks or module._backward_pre_hooks) or any(
        bool(parameter._backward_hooks) for parameter in module.parameters(recurse=False)
    )


def changes_its_input(module: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a call writes over what it is given."""
    if node.op == "call_module":
        return bool(getattr(module.get_submodule(str(node.target)), "inplace", False))
    named = node.op == "call_method" and str(node.target).endswith("_")
    return named or node.target in IN_PLACE or bool(node.kwargs.get("inplace"))


def refuse_node(module: fx.GraphModule, node: fx.Node) -> None:
    """An error for what is not known to be the same for every image, without chance, and differentiable as it is."""
    given = node.all_input_nodes[0] if node.all_input_nodes else None
    shared = given is not None and (given.target in VIEWS or given.op in ("get_attr", "placeholder"))
    if shared and node.op.startswith("call") and changes_its_input(module, node):
        raise UntraceableError("its forward writes over tensors that are used elsewhere")
    if node.kwargs.get("rounding_mode") is not None:
        raise UntraceableError("its forward rounds")
    if node.op == "call_function" and node.target is getattr:
        if node.args[1] != "shape":
            raise UntraceableError(f"its forward reads .{node.args[1]}")
    elif node.op == "call_function" and node.target not in FUNCTIONS:
        raise UntraceableError(f"its forward calls {getattr(node.target, '__name__', node.target)}")
    elif node.op == "call_method" and node.target not in METHODS:
        raise UntraceableError(f"its forward calls .{node.target}()")
    elif node.op == "get_attr" and str(node.target).rpartition(".")[2].startswith("_tensor_constant"):
        raise UntraceableError("its forward makes a tensor of its own")
    elif node.op == "output" and not isinstance(node.args[0], fx.Node):
        raise UntraceableError("it does not return one tensor")


def made_like(module: fx.GraphModule, other: fx.GraphModule, constants: int) -> bool:
    """Whether two graphs have as many layers of each kind, by their settings, and as many functions that bend or join.

    `module` may have so many constants besides, for a normalisation: one is subtracted, one divides.
    """
    extra = Counter({"sub": 1, "div": 1} if constants else {})
    if len(nodes(module, "get_attr")) != constants:
        return False
    wanted = inventory(other)
    return wanted is not None and inventory(module) == wanted + extra


def inventory(module: fx.GraphModule) -> Counter[str] | None:
    """How often each kind of layer and function is called; None where one is none of those that ours have."""
    found: Counter[str] = Counter()
    for node in module.graph.nodes:
        layer = module.get_submodule(str(node.target)) if node.op == "call_module" else None
        if not node.op.startswith("call") or type(layer) in IDLE or node.target in SHAPES:
            continue
        kind = type(layer) if layer is not None else node.target
        if kind not in STRAIGHT:
            return None
        found[settings_of(layer) if isinstance(layer, nn.Conv2d | nn.BatchNorm2d) else STRAIGHT[kind]] += 1
    return found


def settings_of(layer: nn.Conv2d | nn.BatchNorm2d) -> str:
    if isinstance(layer, nn.BatchNorm2d):
        return f"norm {layer.num_features} {layer.eps}"
    return f"conv {layer}"


def called(module: fx.GraphModule, kind: type[Layer]) -> list[tuple[fx.Node, Layer]]:
    """Every call of a layer of this kind, in order."""
    calls = [(node, module.get_submodule(str(node.target))) for node in nodes(module, "call_module")]
    return [(node, layer) for node, layer in calls if isinstance(layer, kind)]


def nodes(module: fx.GraphModule, kind: str) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == kind]


def lowered(module: fx.GraphModule, dtype: torch.dtype) -> fx.GraphModule:
    """A copy with folded BatchNorms, and convolutions in `dtype`, channels last; linear layers stay in float32."""
    module = copy.deepcopy(module).requires_grad_(False)
    fold_norms(module)
    for node, layer in called(module, nn.Conv2d):
        layer.to(dtype=dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
        give(module, node, "to", dtype, memory_format=torch.channels_last)
    for node, _ in called(module, nn.Linear):
        give(module, node, "float")
    for node in nodes(module, "call_method"):
        if node.target == "view":  # which channels last may not allow
            node.target = "reshape"
    module.graph.lint()
    module.recompile()
    return module


def fold_norms(module: fx.GraphModule) -> None:
    """Each BatchNorm that follows a convolution at once, and alone, becomes part of it."""
    uses = Counter(str(node.target) for node in nodes(module, "call_module"))
    for node, norm in called(module, nn.BatchNorm2d):
        before = node.all_input_nodes[0]
        if not (before.op == "call_module" and len(before.users) == 1):
            continue
        name = str(before.target)
        layer = module.get_submodule(name)
        if isinstance(layer, nn.Conv2d) and uses[name] == 1:
            before.target = (
                f"folded_{len(uses)}_{node.name}"  # the old one's parameters may be read elsewhere
            )
            module.add_submodule(before.target, fuse_conv_bn_eval(layer, norm).requires_grad_(False))
            node.replace_all_uses_with(before)
            module.graph.erase_node(node)


def give(module: fx.GraphModule, node: fx.Node, method: str, *args: Any, **options: Any) -> None:
    """Put a conversion before the image that a layer takes."""
    image = node.args[0] if node.args else node.kwargs["input"]
    assert isinstance(image, fx.Node)
    with module.graph.inserting_before(node):
        converted = module.graph.call_method(method, (image, *args), options)
    node.replace_input_with(image, converted)
