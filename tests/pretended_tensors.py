"""Tensors that say `cuda:0`, over CPU tensors that hold their numbers, for `pretended_gpu.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

HOST, DEVICE = torch.device("cpu"), torch.device("cuda", 0)
PLACES = {DEVICE.type, "meta"}  # what Python calls the device, and what C++ does
HOST_GENERATOR, HOST_TENSOR, HOST_TO = torch.Generator, torch.tensor, Tensor.to


class Held(Tensor):
    """A tensor of the pretended device; C++ takes it for one of the meta device."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> Held:
        self = Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device="meta",
        )
        self.held = held
        return self

    device = property(lambda self: DEVICE)
    is_cuda = property(lambda self: True)
    is_meta = property(lambda self: False)

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Held) -> None:
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.held = value.held

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def untyped_storage(self) -> Any:
        return self.held.untyped_storage()

    def record_stream(self, stream: Any) -> None: ...

    def __deepcopy__(self, memo: dict[int, Any]) -> Held:
        made: Any = self.detach().clone().requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            made._is_param = True
        memo[id(self)] = made
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Held({self.held!r})"

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"a tensor of the pretended device outlived it ({operation})")


class DeviceGenerator(HOST_GENERATOR):  # type: ignore[misc, valid-type]
    """Draws on the host what the pretended device asks for."""

    device = DEVICE  # type: ignore[assignment]

    def __new__(cls, device: Any = HOST) -> Any:
        return super().__new__(cls) if torch.device(device).type == DEVICE.type else HOST_GENERATOR(device)


def moved(tensor: Tensor, *args: Any, copy: bool = False, memory_format: Any = None, **kwargs: Any) -> Tensor:
    """Tensor.to; C++ would ask a driver which device `cuda` is, and takes the device's tensors for others."""
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    device, dtype, later, _ = torch._C._nn._parse_to(*args, **kwargs)
    place = tensor.device if device is None else DEVICE if device.type == DEVICE.type else device
    dtype = dtype or tensor.dtype
    if (place, dtype) == (tensor.device, tensor.dtype) and not copy and memory_format is None:
        return tensor
    layout = {} if memory_format is None else {"memory_format": memory_format}
    return HOST_TO(tensor, device=place, dtype=dtype, non_blocking=later, copy=copy, **layout)


def tensor_of(data: Any, *, device: Any = None, **kwargs: Any) -> Tensor:
    """torch.tensor."""
    return moved(HOST_TENSOR(data, **kwargs), device)


def to_cuda(tensor: Tensor, *_: Any, **kwargs: Any) -> Tensor:
    """Tensor.cuda."""
    return moved(tensor, DEVICE, **kwargs)


def leaves(values: Iterable[Any]) -> Iterator[Any]:
    """An operation's arguments or results, of which some are lists."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def each(function: Any, value: Any) -> Any:
    """The same for arguments or results, changed one by one."""
    if isinstance(value, list | tuple):
        return type(value)([each(function, one) for one in value])
    return function(value)


def filler(dtype: torch.dtype) -> float | int | bool:
    """What lies in memory that nothing has been written to."""
    if dtype.is_floating_point:
        return math.nan
    return True if dtype == torch.bool else torch.iinfo(dtype).max // 3
