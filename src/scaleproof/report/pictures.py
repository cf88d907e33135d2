"""The gallery: images, adversarial examples and their differences as PNGs inside the page."""

import base64
import io
from dataclasses import dataclass

import numpy as np

from scaleproof.report.records import Array, Gallery

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


def build_pictures(gallery: Gallery, classes: tuple[str, ...], labels: dict[str, str]) -> list[Picture]:
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
        )
        for i in range(min(len(gallery.label), MOST_PICTURES))
    ]
