"""One step of an attack along the gradient, in one kernel where there is one for it."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

from scaleproof.threat import Threat

HAS_TRITON = find_spec("triton") is not None


def ascend(threat: Threat, current: Tensor, gradient: Tensor, clean: Tensor, stride: float) -> Tensor:
    """`threat.ascend`, whose six passes over the images become one on a CUDA device under linf."""
    images = (current, gradient, clean)
    fits = all(tensor.dtype == torch.float32 and tensor.is_contiguous() for tensor in images)
    if not (HAS_TRITON and threat.is_box and current.is_cuda and fits):
        return threat.ascend(current, gradient, clean, stride)
    from scaleproof.speed.kernels import box_step

    return box_step(current, gradient, clean, stride, threat.eps)
