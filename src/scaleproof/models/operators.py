"""Torchvision where its compiled operators do not load: timm and transformers need its transforms only."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch

OPERATORS = ("nms", "qnms")  # what torchvision expects its own library to define
KEPT_LIBRARIES: list[Any] = []  # operators vanish with the object that defined them


def make_torchvision_importable() -> None:
    """Declare the operators that torchvision describes on import, where its own library is missing."""
    try:
        importlib.import_module("torchvision")
        return
    except ModuleNotFoundError:
        return
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] in ("timm", "torchvision")]:
        del sys.modules[name]
    maker: Any = torch.library.Library
    library = maker("torchvision", "DEF")
    for name in OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    KEPT_LIBRARIES.append(library)
