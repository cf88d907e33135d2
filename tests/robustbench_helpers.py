"""Checkpoints in RobustBench's folders, and whether they load as the network they came from."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from helpers import images
from scaleproof.models import load_model


def saved(folder: Path, content: Any, name: str = "Me2026First", dataset: str = "cifar10") -> str:
    """Put a checkpoint where RobustBench would, and return how to name it."""
    path = folder / dataset / "Linf" / f"{name}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)
    return f"robustbench:{name}@{folder}"


def agree(spec: str, theirs: nn.Module) -> Any:
    """Load a checkpoint, and insist that its logits are those of the network it came from."""
    loaded, x = load_model(spec), images(5, (3, 32, 32), low=0, high=1)
    with torch.no_grad():
        assert torch.allclose(loaded.classifier(x), theirs(x), atol=1e-5), "the same logits"
    assert theirs(x).std() > 1e-2
    return loaded
