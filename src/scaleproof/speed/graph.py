"""Graph capture: record a function's CUDA kernels once for each shape of its inputs, then replay them."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]
State = Callable[[], Sequence[Tensor]]  # tensors that a captured function changes in place
MOST = 48  # graphs of a kind that are kept, the latest ones
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


class Recorded:
    """The kernels of one call, to be replayed; what the warm-up changes in `state`, or draws, is put back."""

    def __init__(self, work: Callable[[], Any], pool: Any, stream: Any, state: Sequence[Tensor]) -> None:
        before = [(tensor, tensor.detach().clone()) for tensor in state]
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        try:
            with torch.random.fork_rng(devices):
                self.record(work, pool, stream)
        finally:  # also where the capture fails
            with torch.no_grad():
                for tensor, value in before:
                    tensor.copy_(value)

    def record(self, work: Callable[[], Any], pool: Any, stream: Any) -> None:
        current = torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                work()
        current.wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        try:
            with no_collection(), torch.cuda.graph(self.graph, pool=pool, stream=stream):
                self.result = work()
        finally:
            torch.cuda.set_stream(current)  # a capture that fails at its end would leave its own


class Captured:
    """One function, captured for one set of input shapes, with static inputs and outputs."""

    def __init__(
        self, function: Callable[..., Tensors], inputs: Tensors, pool: Any, stream: Any, state: State
    ) -> None:
        self.inputs = tuple(tensor.clone() for tensor in inputs)
        self.recorded = Recorded(partial(function, *self.inputs), pool, stream, state())

    def __call__(self, *inputs: Tensor) -> Tensors:
        load(self.inputs, inputs)
        self.recorded.graph.replay()
        return tuple(tensor.clone() for tensor in self.recorded.result)


class Chain:
    """A step from tensors to tensors of the same shapes, captured: each replay moves its own buffers on."""

    def __init__(
        self, step: Callable[..., Tensors], buffers: Tensors, pool: Any, stream: Any, state: Sequence[Tensor]
    ) -> None:
        self.buffers = buffers
        self.recorded = Recorded(partial(move, step, buffers), pool, stream, [*buffers, *state])

    def __call__(self) -> None:
        self.recorded.graph.replay()


def load(buffers: Tensors, values: Tensors) -> None:
    for buffer, value in zip(buffers, values, strict=True):
        buffer.copy_(value)


def move(step: Callable[..., Tensors], buffers: Tensors) -> None:
    """One step in place; a result that lies in another buffer is saved before that one changes."""
    places = {buffer.untyped_storage().data_ptr() for buffer in buffers}
    changed = [pair for pair in zip(buffers, step(*buffers), strict=True) if pair[0] is not pair[1]]
    results = [new.clone() if new.untyped_storage().data_ptr() in places else new for _, new in changed]
    load(tuple(buffer for buffer, _ in changed), tuple(results))


class GraphCache:
    """Captures on demand, one graph per key and shapes; falls back to the plain call, and says why.

    What a function changes in place besides returning is told by `state`: capturing leaves it as it was. A function is
    called plainly `patience` times for each set of shapes before it is captured: some never come again.
    """

    def __init__(self, device: torch.device, state: State = tuple, *, patience: int = 0) -> None:
        self.state, self.patience = state, patience
        self.calls: Counter[object] = Counter()
        self.graphs: dict[object, Captured] = {}
        self.chains: dict[object, Chain | None] = {}
        self.rooms: dict[object, Tensors] = {}
        self.failure: str | None = None  # why nothing is captured any more
        self.refused: list[str] = []  # why a chain is not
        self.recording = False
        stream: Any = torch.cuda.Stream
        self.stream = stream(
            device
        )  # its own: libraries keep one workspace a stream, which graphs side by side must not share
        self.pool = torch.cuda.graph_pool_handle()  # shared: results are copied out before the next replay

    @property
    def notes(self) -> list[str]:
        return [*self.refused, *([] if self.failure is None else [self.failure])]

    def __call__(self, key: object, function: Callable[..., Tensors], *inputs: Tensor) -> Tensors:
        if self.failure is not None or self.recording or not inputs[0].is_cuda:
            return function(*inputs)
        full_key = (key, shapes(inputs))
        if full_key not in self.graphs:
            self.calls[full_key] += 1
            if self.calls[full_key] <= self.patience:
                return function(*inputs)
            try:
                forget_oldest(self.graphs)
                self.graphs[full_key] = Captured(function, inputs, self.pool, self.stream, self.state)
            except RuntimeError as error:
                self.give_up(first_line(error))
            if self.failure is not None:
                return function(*inputs)
        return self.graphs[full_key](*inputs)

    def give_up(self, reason: str) -> None:
        """Capture nothing any more."""
        self.failure = f"graph capture failed, eager in its place: {reason}"

    def chain(
        self, key: object, step: Callable[..., Tensors], tensors: Tensors, state: Sequence[Tensor]
    ) -> Chain | None:
        """A captured step with these tensors in its buffers; None where it cannot be captured.

        Chains share their buffers: one of them is in use at a time.
        """
        if self.failure is not None or not tensors[0].is_cuda:
            return None
        full_key = (key, shapes(tensors))
        if full_key not in self.chains:
            forget_oldest(self.chains)
            self.chains[full_key] = self.new_chain(step, tensors, state)
        chain = self.chains[full_key]
        if chain is not None:
            load(chain.buffers, tensors)
        return chain

    def new_chain(
        self, step: Callable[..., Tensors], tensors: Tensors, state: Sequence[Tensor]
    ) -> Chain | None:
        self.recording = True
        try:
            buffers = self.room(tensors)
            load(buffers, tensors)
            return Chain(step, buffers, self.pool, self.stream, state)
        except RuntimeError as error:
            self.refused.append(f"a step was not captured as a whole: {first_line(error)}")
            return None
        finally:
            self.recording = False

    def room(self, tensors: Tensors) -> Tensors:
        """Buffers for these tensors: the first rows of those for others like them, or new ones where too short."""
        kind = tuple((tensor.shape[1:], tensor.dtype) for tensor in tensors)
        kept = self.rooms.get(kind)
        if kept is None or any(len(one) < len(tensor) for one, tensor in zip(kept, tensors, strict=True)):
            kept = tuple(
                torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors
            )
            self.rooms[kind] = kept
        return tuple(one[: len(tensor)] for one, tensor in zip(kept, tensors, strict=True))


def forget_oldest(kept: dict[object, Any]) -> None:
    """Make room for one more; whoever still holds the oldest may go on using it."""
    while len(kept) >= MOST:
        del kept[next(iter(kept))]


def first_line(error: RuntimeError) -> str:
    return str(error).partition("\n")[0]


def shapes(tensors: Tensors) -> object:
    return tuple((tensor.shape, tensor.dtype) for tensor in tensors)
