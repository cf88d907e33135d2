"""What makes the oracle fast: precision, folded and frozen weights, fused kernels, graph capture. Nobody else knows."""

from scaleproof.speed.backends import PLAIN, Choice, Speed, choose
from scaleproof.speed.graph import Chain, GraphCache
from scaleproof.speed.precision import exact_float32, on_device, tf32_float32
from scaleproof.speed.steps import ascend
from scaleproof.speed.streams import side_by_side
from scaleproof.speed.wake import waking

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
    "side_by_side",
    "tf32_float32",
    "waking",
]
