"""Parts of a batch at the same time, each on a CUDA stream of its own: small kernels leave room beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

LEAST_ROWS = 32  # of one part


def side_by_side(work: Callable[..., Tensor], parts: int, *tensors: Tensor) -> Tensor:
    """`work` on equal parts of the rows of all tensors, put together again: rows must not depend on each other."""
    rows = len(tensors[0])
    if parts == 1 or not tensors[0].is_cuda or rows % parts != 0 or rows < parts * LEAST_ROWS:
        return work(*tensors)
    main, results = torch.cuda.current_stream(), []
    for number in range(parts):
        stream = side_stream(tensors[0].device, number, main.cuda_stream)
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            results.append(work(*(tensor.chunk(parts)[number] for tensor in tensors)))
    for number, result in enumerate(results):
        main.wait_stream(side_stream(tensors[0].device, number, main.cuda_stream))
        result.record_stream(main)
    return torch.cat(results)


@cache
def side_stream(device: torch.device, number: int, main: int) -> Any:
    """Beside each main stream its own: trainings side by side share nothing."""
    stream: Any = torch.cuda.Stream
    return stream(device)
