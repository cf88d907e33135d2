"""Captured graphs of the pretended device: operations made again on the memory that they were recorded on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from pretended_tensors import HOST, Held, each, filler, leaves

aten = torch.ops.aten
UNSAID = {aten.native_batch_norm.default: (3, 4)}  # running statistics, which it writes to without saying so


class Call:
    """One operation on the CPU tensors behind its arguments, which can be made again."""

    def __init__(self, operation: Any, args: Any, kwargs: Mapping[str, Any], *, baked: bool) -> None:
        def bare(one: Any) -> Any:
            if isinstance(one, Held):
                return one.held
            return one.clone() if baked and isinstance(one, Tensor) else one

        self.operation = operation
        self.args = [each(bare, value) for value in args]
        self.kwargs = {name: each(bare, value) for name, value in on_host(kwargs).items()}

    def __call__(self) -> Any:
        return self.operation(*self.args, **self.kwargs)

    def given(self) -> list[Tensor]:
        return tensors_in((*self.args, *self.kwargs.values()))

    def written(self) -> list[Tensor]:
        """The arguments that it writes to."""
        names = self.operation._schema.arguments
        numbers = [n for n, one in enumerate(names) if one.alias_info is not None and one.alias_info.is_write]
        numbers += UNSAID.get(self.operation, ())
        values = [self.args[n] if n < len(self.args) else self.kwargs.get(names[n].name) for n in numbers]
        return tensors_in(values)


class Graph:
    """Stands in for torch.cuda.CUDAGraph. A capture runs nothing: afterwards memory is as it was before."""

    def __init__(self, run: Callable[[Call], Any]) -> None:
        self.run = run  # how the device makes a call
        self.calls: list[tuple[Call, list[Tensor]]] = []
        self.fresh: list[Tensor] = []  # results in memory of their own
        self.saved: dict[int, tuple[Tensor, Tensor]] = {}  # memory that was written to, and what it held

    def record(self, call: Call) -> Any:
        for tensor in call.written():
            where = place(tensor)
            if where not in self.saved:
                whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
                self.saved[where] = (whole, whole.clone())
        result = self.run(call)
        found, given = tensors_in([result]), {place(tensor) for tensor in call.given()}
        fresh = [tensor for tensor in found if place(tensor) not in given]
        self.fresh += fresh
        if fresh or call.written():  # all others are views
            self.calls.append((call, found))
        return result

    def put_back(self) -> None:
        for whole, value in self.saved.values():
            whole.copy_(value)
        for tensor in self.fresh:
            tensor.fill_(filler(tensor.dtype))

    def replay(self) -> None:
        for call, found in self.calls:
            for old, new in zip(found, tensors_in([self.run(call)]), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def on_host(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of an operation that is made on the CPU, where nothing is pinned."""
    known = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    return known | {name: HOST for name, value in known.items() if name == "device" and value is not None}


def tensors_in(values: Any) -> list[Tensor]:
    return [leaf for leaf in leaves(values) if isinstance(leaf, Tensor)]


def place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
