"""Number formats: exact float32 for verdicts, bf16 for gradients where the processor has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def exact_float32() -> Iterator[None]:
    """No TF32 and no autocast inside, whatever the caller has set; all of it restored afterwards."""
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    saved = matmul.fp32_precision, convolution.fp32_precision
    matmul.fp32_precision = convolution.fp32_precision = "ieee"
    try:
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            yield
    finally:
        matmul.fp32_precision, convolution.fp32_precision = saved


def has_fast_bf16(device: torch.device) -> bool:
    """Whether bf16 arithmetic is in the hardware (emulated bf16 is slower than float32)."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # not in every torch
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))
