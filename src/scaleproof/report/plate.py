"""A figure of a report with the words that go with it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Plate:
    """A figure that can be drawn for a wide screen or a narrow one, and the formats it is filed in."""

    draw: "Callable[..., Figure]"
    description: str
    caption: str
    formats: tuple[str, ...] = ("png", "svg")
