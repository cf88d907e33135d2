"""What makes the oracle fast: precision, folded and frozen weights, fused kernels, graph capture. Nobody else knows."""

from scaleproof.speed.backends import PLAIN, Choice, Speed, choose
from scaleproof.speed.graph import Chain, GraphCache
from scaleproof.speed.precision import exact_float32, on_device, tf32_float32
from scaleproof.speed.steps import ascend

__all__ = [
    "PLAIN",
    "Chain",
    "Choice",
    "GraphCache",
    "Speed",
    "ascend",
    "choose",
    "exact_float32",
    "on_device",
    "tf32_float32",
]
