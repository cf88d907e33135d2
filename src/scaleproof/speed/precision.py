"""Number formats: exact float32 for verdicts, bf16 for gradients where the processor has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch


@contextmanager
def exact_float32() -> Iterator[None]:
    """No TF32, no bf16 in place of float32, no autocast inside, whatever the caller set; restored afterwards."""
    with float32_as("ieee"):
        yield


@contextmanager
def tf32_float32() -> Iterator[None]:
    """A GPU's convolutions of float32 in TF32, as torch has it by default; all other products exact."""
    with float32_as("tf32"):
        yield


@contextmanager
def float32_as(kind: str) -> Iterator[None]:
    """How a GPU's convolutions of float32 are computed inside, without autocast; restored afterwards."""
    saved = [(unit, unit.fp32_precision) for unit in arithmetic_units()]
    convolutions = arithmetic_units()[1]  # of cuDNN
    for unit, _ in saved:
        unit.fp32_precision = kind if unit is convolutions else "ieee"
    try:
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            yield
    finally:
        for unit, precision in saved:
            unit.fp32_precision = precision


def arithmetic_units() -> tuple[Any, ...]:
    """Torch's switches for how float32 products are computed."""
    backends: Any = torch.backends
    return (backends.cuda.matmul, backends.cudnn.conv, backends.mkldnn.matmul, backends.mkldnn.conv)


@contextmanager
def on_device(device: torch.device) -> Iterator[None]:
    """Kernels and captured graphs go to this device, also where another is the current one; algorithms are fixed."""
    cudnn = torch.backends.cudnn
    saved = cudnn.benchmark, cudnn.deterministic
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            yield
    finally:
        cudnn.benchmark, cudnn.deterministic = saved


def has_fast_bf16(device: torch.device) -> bool:
    """Whether bf16 arithmetic is in the hardware (emulated bf16 is slower than float32)."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # not in every torch
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))
