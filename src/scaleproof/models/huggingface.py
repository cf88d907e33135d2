"""Image classifiers of Hugging Face's transformers, from a local folder; no code of the folder runs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.models.classifier import Classifier
from scaleproof.models.operators import make_torchvision_importable

NEEDED = "config.json"
PROCESSOR = "preprocessor_config.json"
MODES = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers


class Resized(nn.Module):
    """Images resized to what a network wants, and its logits alone."""

    def __init__(self, net: nn.Module, size: tuple[int, int] | None, mode: str) -> None:
        super().__init__()
        self.net, self.size, self.mode = net, size, mode

    def forward(self, x: Tensor) -> Tensor:
        if self.size is not None and tuple(x.shape[2:]) != self.size:
            smooth = {} if self.mode == "nearest" else {"align_corners": False, "antialias": True}
            x = F.interpolate(x, self.size, mode=self.mode, **smooth)
        logits: Tensor = self.net(pixel_values=x).logits
        return logits


def load_huggingface(rest: str) -> tuple[Classifier, str, tuple[str, ...]]:
    """The classifier in a folder, the name of its class, and notes."""
    folder = Path(rest).expanduser()
    check_folder(folder)
    net: Any = read_network(folder)
    processor = read_processor(folder)
    mean, std = normalisation(processor)
    size = size_of(processor, net.config)
    resized = Resized(net, size, MODES.get(processor.get("resample", 2), "bilinear"))
    notes = (
        [f"images of another size are resized to {size[0]} x {size[1]} inside the model"]
        if size is not None
        else []
    )
    if mean is None:
        notes.append(f"{PROCESSOR} names no normalisation: images go in as they are, from 0 to 1")
    return Classifier(resized.eval(), mean=mean, std=std), type(net).__name__, tuple(notes)


def check_folder(folder: Path) -> None:
    if not (folder / NEEDED).is_file():
        raise ValueError(f"hf: must be followed by a folder with {NEEDED} in it, got {str(folder)!r}")
    if not list(folder.glob("*.safetensors")):
        pickles = sorted(path.name for kind in ("*.bin", "*.pt", "*.pth") for path in folder.glob(kind))
        told = f" ({', '.join(pickles)}: a pickle may run code)" if pickles else ""
        raise ValueError(
            f"weights must be safetensors, {folder} has none{told}: convert them with save_pretrained"
        )


def read_network(folder: Path) -> nn.Module:
    make_torchvision_importable()
    try:
        transformers: Any = importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        raise ValueError(
            "specs that begin with hf: need transformers: pip install -e '.[hf]' in the folder of scaleproof"
        ) from error
    words = {"local_files_only": True, "trust_remote_code": False}
    try:
        with quiet(transformers.utils.logging):
            network: nn.Module = transformers.AutoModelForImageClassification.from_pretrained(
                str(folder), use_safetensors=True, dtype="float32", **words
            )
    except (ValueError, OSError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"{folder} holds no image classifier that transformers can build: {reason}"
        ) from error
    return network


@contextmanager
def quiet(logging: Any) -> Iterator[None]:
    """No progress bars inside."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def read_processor(folder: Path) -> dict[str, Any]:
    """What is done to images before the network, as the folder says it; empty where it does not."""
    path = folder / PROCESSOR
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def normalisation(processor: dict[str, Any]) -> tuple[list[float] | None, list[float] | None]:
    """Mean and deviation of pixels in [0, 1]; a processor that keeps them as bytes is undone."""
    mean, std = processor.get("image_mean"), processor.get("image_std")
    if mean is None or std is None or processor.get("do_normalize") is False:
        mean, std = None, None
    factor = 255 * processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 255.0
    if abs(factor - 1) < 1e-6:
        return mean, std
    mean, std = mean or [0.0] * 3, std or [1.0] * 3
    return [value / factor for value in mean], [value / factor for value in std]


def size_of(processor: dict[str, Any], config: Any) -> tuple[int, int] | None:
    """Height and width that the network wants: what it is fed after a crop, else after a resize, else its own."""
    cropped = processor.get("crop_size") if processor.get("do_center_crop") else None
    asked = processor.get("size") if processor.get("do_resize", True) else None
    size = cropped or asked or getattr(config, "image_size", None)
    if isinstance(size, dict):
        edge = size.get("shortest_edge")
        size = [size.get("height", edge), size.get("width", edge)]
    if isinstance(size, int):
        size = [size, size]
    return None if size is None or None in size else (int(size[0]), int(size[1]))
