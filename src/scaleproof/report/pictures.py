"""The gallery: images, adversarial examples and their differences as PNGs inside the page."""

import base64
import io
import math
from dataclasses import dataclass

import numpy as np

from scaleproof.report.records import Array, Gallery, Verdicts

MOST_PICTURES = 24


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One image beside its adversarial example and their difference."""

    clean: str
    perturbed: str
    difference: str
    label: str
    clean_prediction: str
    prediction: str
    attack: str
    index: int
    size: float
    size_text: str
    margin: float | None


def data_address(content: bytes, kind: str) -> str:
    """Put a file into a data address."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def png_address(pixels: Array) -> str:
    """Put an image of shape (3, H, W) or (1, H, W) with values from 0 to 1 into a data address."""
    from PIL import Image

    levels = np.clip(np.rint(pixels * 255), 0, 255).astype(np.uint8)
    colours = np.broadcast_to(levels, (3, *levels.shape[1:])).transpose(1, 2, 0)
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(colours)).save(stream, format="PNG")
    return data_address(stream.getvalue(), "image/png")


def amplification(gallery: Gallery) -> int:
    """Return the whole factor that brings the largest difference of a gallery close to half the range."""
    largest = float(np.abs(differences(gallery)).max(initial=0.0))
    return max(1, int(0.5 / largest + 1e-3)) if largest > 0 else 1


def differences(gallery: Gallery) -> Array:
    """Return perturbed minus clean images, in fractions of the range."""
    difference: Array = gallery.perturbed.astype(np.float64) - gallery.clean / 255.0
    return difference


def build_pictures(
    gallery: Gallery,
    classes: tuple[str, ...],
    labels: dict[str, str],
    norm: str = "linf",
    verdicts: Verdicts | None = None,
) -> list[Picture]:
    """Build the pictures of a gallery, at most a page's worth."""
    moved, factor = differences(gallery), amplification(gallery)
    return [
        Picture(
            clean=png_address(gallery.clean[i] / 255.0),
            perturbed=png_address(gallery.perturbed[i]),
            difference=png_address(0.5 + factor * moved[i]),
            label=classes[int(gallery.label[i])],
            clean_prediction=classes[int(gallery.clean_prediction[i])],
            prediction=classes[int(gallery.prediction[i])],
            attack=labels.get(str(gallery.attack[i]), str(gallery.attack[i])),
            index=int(gallery.index[i]),
            size=length(moved[i], norm),
            size_text=f"{255 * length(moved[i], norm):.1f}/255"
            if norm == "linf"
            else f"{length(moved[i], norm):.3g}",
            margin=margin_of(gallery, i, labels, verdicts),
        )
        for i in range(min(len(gallery.label), MOST_PICTURES))
    ]


def length(moved: Array, norm: str) -> float:
    """Return the length of a difference in the norm of the threat."""
    return float(np.abs(moved).max() if norm == "linf" else np.sqrt((moved**2).sum()))


def margin_of(gallery: Gallery, i: int, labels: dict[str, str], verdicts: Verdicts | None) -> float | None:
    """Return the margin of a picture from the verdicts, those of the first restart, where they are at hand."""
    given, index = str(gallery.attack[i]), int(gallery.index[i])
    name = next((name for name, label in labels.items() if given in (name, label)), given)
    if verdicts is None or name not in verdicts.margin or not 0 <= index < len(verdicts.labels):
        return None
    found = float(verdicts.margin[name][0, index])
    return found if math.isfinite(found) else None
