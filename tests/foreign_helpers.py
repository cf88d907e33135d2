"""A small network, and other people's attacks on it."""

from collections.abc import Callable

import numpy as np
from torch import Tensor, nn

from foreign_attacks import their_pgd
from helpers import SmallConvNet, decisions, images
from scaleproof import Evaluation, Threat
from scaleproof.attacks.foreign import Foreign

SMALL = Threat(eps=0.02)


def small() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """A small network, images, and its decisions on them."""
    net, x = SmallConvNet().eval(), images(24, (3, 8, 8))
    return net, (x, decisions(net, x))


def foreign(function: Callable[..., object] = their_pgd, **settings: object) -> Foreign:
    """Somebody's function as an attack."""
    return Foreign(function, **{"name": "theirs", "threat": SMALL, **settings})  # type: ignore[arg-type]


def same(left: Evaluation, right: Evaluation) -> bool:
    """Whether all verdicts are the same, bit for bit."""
    return all(
        np.array_equal(values, right.arrays()[name], equal_nan=values.dtype.kind == "f")
        for name, values in left.arrays().items()
    )
