"""What a training is before it begins: its plan, its network, and what both say of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from scaleproof import __version__
from scaleproof.attacks.base import Attack, attack_settings
from scaleproof.callables import source_digest
from scaleproof.data import Dataset
from scaleproof.defenses import Defense, defense_settings
from scaleproof.models import Classifier, build, load_model
from scaleproof.models.architectures import ARCHITECTURES
from scaleproof.models.specs import factory_in, imported, importing_from_here, is_code, is_path
from scaleproof.speed import Speed
from scaleproof.speed.precision import has_fast_bf16
from scaleproof.training.config import TrainConfig
from scaleproof.training.step import trains_in_bf16


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One training, fully described."""

    name: str  # of the defense, for people: TRADES-SI
    architecture: str
    defense: Defense
    config: TrainConfig
    recipe: str
    provenance: str
    dataset: Dataset
    test: Dataset
    attacks: tuple[Attack, ...]
    speed: Speed
    device: torch.device
    folder: Path
    command: str = ""
    checkpoint_seconds: float = 60.0
    sync_batch_norm: bool = False  # over processes; else each has its own statistics, averaged every epoch

    def settings(self) -> dict[str, object]:
        """All that the weights depend on: two runs with equal settings are the same run."""
        return {
            "kind": "training",
            "scaleproof": __version__,
            "architecture": self.architecture,
            **network_source(self.architecture),
            "defense": defense_settings(self.defense),
            "config": self.config.describe(),
            "recipe": self.recipe,
            "data": f"{self.dataset.name}/{self.dataset.split}",
            "pixels": self.dataset.digest(),
            "test": f"{self.test.name}/{self.test.split}",
            "test_pixels": self.test.digest(),
            "attacks": [attack_settings(attack) for attack in self.attacks],
            "speed": self.speed.settings(),
            "bf16": trains_in_bf16(self.speed, self.device),
            "sync_batch_norm": self.sync_batch_norm,
            "device": self.device.type,
            **self.cpu_settings(),
        }

    def cpu_settings(self) -> dict[str, object]:
        """Left to itself, a CPU uses bf16 in the attack alone, and where it is fast: the weights depend on that."""
        own = self.device.type == "cpu" and self.speed.precision == "auto"
        return {"attack_bf16": has_fast_bf16(self.device)} if own else {}


def fresh(architecture: str, classes: int, seed: int) -> tuple[Classifier, str]:
    """A network whose first weights depend on the seed alone, or the one that a spec names; and what to call it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if architecture.removesuffix("+he") in ARCHITECTURES:
            return Classifier(build(architecture, classes)), architecture
        loaded = load_model(architecture, classes=classes)
        return loaded.classifier, loaded.architecture if is_path(architecture) else architecture


def network_source(architecture: str) -> dict[str, object]:
    """The sha256 of a factory's source and of its file: the name of one's own network stays where its code changes."""
    if not is_code(architecture):
        return {}
    module, _, factory = architecture.partition(":")
    with importing_from_here():
        found = factory_in(architecture, imported(architecture, module), factory)
    return {"network_source_sha256": source_digest(found)}


def trained_on(plan: Plan) -> str:
    """Data and ball of a training in a few words, kept with the weights."""
    ball = plan.attacks[0].threat
    eps = f"{255 * ball.eps:.4g}/255" if ball.norm == "linf" else f"{ball.eps:g}"
    return f"{plan.name} on {plan.dataset.name}, {ball.norm} {eps}"
