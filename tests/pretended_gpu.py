"""A GPU for machines that have none: CPU arithmetic behind tensors that say `cuda:0`, and stand-ins for torch.cuda.

It finds what a CPU hides, and nothing about speed, kernels, or the order of streams:

* tensors of two devices in one operation, `numpy()` of a device's tensor;
* a host that reads a copy which nobody waited for: until then it holds a filler;
* in a captured graph: the host reading, shapes that depend on values, copies from and to the host, stale inputs,
  host numbers that are those of the capture for ever, and results that no replay has written yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pretended_graphs import Call, Graph, aten, on_host, tensors_in
from pretended_tensors import DEVICE, PLACES, DeviceGenerator, Held, each, filler, moved, tensor_of, to_cuda

COPIES = {aten.copy_.default, aten._to_copy.default}
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default}
FILLING = {aten.masked_fill.Tensor, aten.masked_fill_.Tensor}  # take a number from anywhere
READING = {aten._local_scalar_dense.default, aten.equal.default}


class Pretended(TorchDispatchMode):
    """Makes each operation on CPU tensors, after asking whether a GPU would have."""

    def __init__(self) -> None:
        super().__init__()
        self.chance = torch.Generator()
        self.chance.manual_seed(torch.initial_seed())
        self.capturing: Graph | None = None
        self.pending: list[tuple[Tensor, Tensor]] = []  # copies to the host that nobody waited for
        self.waited = 0  # copies before these

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch wraps every operation in a call of its compiler

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = tensors_in((*args, *kwargs.values()))
        here = any(isinstance(tensor, Held) for tensor in tensors)
        there = goes_to_device(operation, args, kwargs, here)
        if not here and not there:
            return operation(*args, **on_host(kwargs))
        check_devices(operation, args, tensors, here)
        if self.capturing is not None:
            check_capture(operation, args, kwargs, tensors, here != there)
        later = operation in COPIES and bool(kwargs.get("non_blocking") or args[2:3] == (True,))
        if operation in READING or (here and not there and not later):
            self.wait()
        call = Call(operation, args, kwargs, baked=self.capturing is not None)
        found = self.made(call) if self.capturing is None else self.capturing.record(call)
        if here and not there:
            return self.delayed(found) if later else found
        known = {id(tensor.held): tensor for tensor in tensors if isinstance(tensor, Held)}
        return each(lambda one: known[id(one)] if id(one) in known else wrapped(one), found)

    def made(self, call: Call) -> Any:
        """The result; the device draws its numbers itself."""
        if torch.Tag.nondeterministic_seeded not in call.operation.tags:
            return call()
        host = torch.get_rng_state()
        torch.set_rng_state(self.chance.get_state())
        try:
            return call()
        finally:
            self.chance.set_state(torch.get_rng_state())
            torch.set_rng_state(host)

    def delayed(self, target: Tensor) -> Tensor:
        """A copy on the host that has not arrived."""
        self.pending.append((target, target.clone()))
        return target.fill_(filler(target.dtype))

    def wait(self, until: int | None = None) -> None:
        """The host waits for what was asked of the device, or for the first copies of it."""
        if self.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing (the host waits)")
        while self.pending and (until is None or self.waited < until):
            target, value = self.pending.pop(0)
            target.copy_(value)
            self.waited += 1

    @contextmanager
    def capture(self, graph: Graph, **_: Any) -> Iterator[None]:
        self.capturing = graph
        try:
            yield
        finally:
            self.capturing = None
            graph.put_back()


def wrapped(one: Any) -> Any:
    return Held(one) if isinstance(one, Tensor) else one


def goes_to_device(operation: Any, args: Any, kwargs: Any, here: bool) -> bool:
    """Whether the result lies on the device."""
    if operation is aten.copy_.default:
        return isinstance(args[0], Held)
    named = kwargs.get("device")
    return here if named is None else torch.device(named).type in PLACES


def check_devices(operation: Any, args: Any, tensors: list[Tensor], here: bool) -> None:
    """The host's tensors meet the device's in copies and as indices, its numbers in arithmetic."""
    foreign = [tensor for tensor in tensors if not isinstance(tensor, Held)]
    numbers = all(tensor.dim() == 0 for tensor in foreign)
    fits = numbers and (torch.Tag.pointwise in operation.tags or operation in FILLING)
    indexes = operation in INDEXING and isinstance(args[0], Held)
    if here and foreign and not (fits or indexes or operation in COPIES):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
            f"({operation})"
        )


def check_capture(operation: Any, args: Any, kwargs: Any, tensors: list[Tensor], crosses: bool) -> None:
    """What a graph cannot hold: the host reading, memory of the host, shapes that depend on values."""
    tags = operation.tags
    by_values = torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags
    if operation in INDEXING:
        by_values = any(tensor.dtype in (torch.bool, torch.uint8) for tensor in tensors_in([args[1]]))
    from_host = any(not isinstance(tensor, Held) and tensor.dim() > 0 for tensor in tensors)
    own_chance = kwargs.get("generator") is not None  # a graph knows the device's generator alone
    if by_values or from_host or own_chance or (tensors and crosses):
        raise RuntimeError(f"operation not permitted when stream is capturing ({operation})")


class Stream:
    """Work is done in the order in which it is asked for, whatever stream it is asked of."""

    device, cuda_stream = DEVICE, 0

    def __init__(self, *_: Any) -> None: ...
    def wait_stream(self, _: Any) -> None: ...


class Event:
    """A place in the order of the copies to the host."""

    def __init__(self, pretended: Pretended) -> None:
        self.pretended, self.place = pretended, 0

    def record(self, *_: Any) -> None:
        self.place = self.pretended.waited + len(self.pretended.pending)

    def synchronize(self) -> None:
        self.pretended.wait(self.place)


def stand_ins(pretended: Pretended) -> dict[str, Any]:
    """Names of torch.cuda."""
    stream, chance = Stream(), pretended.chance
    nothing: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    return {
        "_lazy_init": nothing,
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "device": lambda *_: nullcontext(),
        "synchronize": lambda *_: pretended.wait(),
        "Stream": Stream,
        "Event": partial(Event, pretended),
        "CUDAGraph": partial(Graph, pretended.made),
        "graph": pretended.capture,
        "graph_pool_handle": lambda: (0, 1),
        "stream": lambda *_: nullcontext(),
        "current_stream": lambda *_: stream,
        "set_stream": nothing,
        "get_device_capability": lambda *_: (9, 0),
        "is_bf16_supported": lambda *_: True,
        "get_rng_state": lambda *_: chance.get_state(),
        "set_rng_state": lambda state, *_: chance.set_state(state),
        "manual_seed_all": chance.manual_seed,
    }


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """While it lasts, this process has one device `cuda:0`."""
    with ExitStack() as stack:
        pretended = Pretended()
        for name, value in stand_ins(pretended).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(mock.patch.object(torch, "Generator", DeviceGenerator))
        stack.enter_context(mock.patch.object(torch, "tensor", tensor_of))
        stack.enter_context(mock.patch.object(Tensor, "to", moved))
        stack.enter_context(mock.patch.object(Tensor, "cuda", to_cuda))
        stack.enter_context(mock.patch("scaleproof.speed.steps.HAS_TRITON", False))
        stack.enter_context(pretended)
        yield
