"""Graph capture: record a function's CUDA kernels once for each shape of its inputs, then replay them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]
State = Callable[[], Sequence[Tensor]]  # tensors that a captured function changes in place
WARM_UP = 1  # lets cuDNN choose and Triton compile before anything is recorded


@contextmanager
def no_collection() -> Iterator[None]:
    """A garbage collection in the middle of a capture could free an older graph, which breaks the capture."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Captured:
    """One function, captured for one set of input shapes, with static inputs and outputs."""

    def __init__(
        self, function: Callable[..., Tensors], inputs: Tensors, pool: Any, stream: Any, state: State
    ) -> None:
        self.inputs = tuple(tensor.clone() for tensor in inputs)
        before = [(tensor, tensor.detach().clone()) for tensor in state()]
        try:
            self.record(function, pool, stream)
        finally:  # what the warm-up changed, also where the capture fails
            with torch.no_grad():
                for tensor, value in before:
                    tensor.copy_(value)

    def record(self, function: Callable[..., Tensors], pool: Any, stream: Any) -> None:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                function(*self.inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with no_collection(), torch.cuda.graph(self.graph, pool=pool, stream=stream):
            self.outputs = function(*self.inputs)

    def __call__(self, *inputs: Tensor) -> Tensors:
        for static, given in zip(self.inputs, inputs, strict=True):
            static.copy_(given)
        self.graph.replay()
        return tuple(tensor.clone() for tensor in self.outputs)


class GraphCache:
    """Captures on demand, one graph per key and shapes; falls back to the plain call, and says why.

    What a function changes in place besides returning is told by `state`: capturing leaves it as it was.
    """

    def __init__(self, state: State = tuple) -> None:
        self.state = state
        self.graphs: dict[object, Captured] = {}
        self.failure: str | None = None
        stream: Any = torch.cuda.Stream
        self.stream = (
            stream()
        )  # its own: libraries keep one workspace a stream, which graphs side by side must not share
        self.pool = torch.cuda.graph_pool_handle()  # shared: results are copied out before the next replay

    def __call__(self, key: object, function: Callable[..., Tensors], *inputs: Tensor) -> Tensors:
        if self.failure is not None or not inputs[0].is_cuda:
            return function(*inputs)
        full_key = (key, tuple((tensor.shape, tensor.dtype) for tensor in inputs))
        if full_key not in self.graphs:
            try:
                self.graphs[full_key] = Captured(function, inputs, self.pool, self.stream, self.state)
            except RuntimeError as error:
                self.failure = f"graph capture failed, eager in its place: {str(error).splitlines()[0]}"
                return function(*inputs)
        return self.graphs[full_key](*inputs)
