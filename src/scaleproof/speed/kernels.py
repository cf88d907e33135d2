"""Small Triton kernels, with the same in plain torch where Triton is not there."""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

BLOCK = 2048


def add_and_mask(first: Tensor, second: Tensor, activation: Tensor) -> Tensor:
    """(first + second) where the activation is positive, zero elsewhere: the join of a residual block, backwards."""
    same = first.stride() == second.stride() == activation.stride()
    if triton is None or not first.is_cuda or not same:
        return torch.ops.aten.threshold_backward(first + second, activation, 0)  # type: ignore[no-any-return]
    result = torch.empty_like(first)
    count = first.numel()
    add_and_mask_kernel[(triton.cdiv(count, BLOCK),)](first, second, activation, result, count, BLOCK)
    return result


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def add_and_mask_kernel(first, second, activation, result, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
        offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        inside = offsets < count
        total = tl.load(first + offsets, inside) + tl.load(second + offsets, inside)
        positive = tl.load(activation + offsets, inside) > 0
        tl.store(result + offsets, tl.where(positive, total, 0.0), inside)
