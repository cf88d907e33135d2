"""Run folders of AT as `reproduce` leaves them, written by hand, for tests of what counts."""

import json
from pathlib import Path
from typing import Any

from scaleproof.attacks import suite
from scaleproof.attacks.suites import AUTOATTACK
from scaleproof.paper import claims, experiments
from scaleproof.store import write_json
from scaleproof.training import recipe

AT = next(one for one in experiments() if one.model == "cifar10/resnet18/at")
AT_RECIPE = recipe("at")
TEST = {"name": "cifar10", "split": "test", "count": 10_000}
SETTINGS = {attack.name: attack.describe() for attack in suite("pgd,standard")}


def some_claim() -> Any:
    return next(one for one in claims("multi-step") if one.measurement == f"{AT.model}/pgd/1/robust")


def share(correct: int, count: int = 10_000) -> dict[str, Any]:
    return {"correct": correct, "count": count, "accuracy": correct / count, "interval": [0, 1]}


def change(folder: Path, file: str, *keys: Any, to: object) -> None:
    """Another value at one place of a run's JSON."""
    document = json.loads((folder / file).read_text())
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    write_json(folder / file, document)


def trained(root: Path, variant: str, seed: int, pgd: float, stopped: str | None = None) -> Path:
    """A finished training of AT with a PGD accuracy in percent of 10,000 images."""
    folder = root / "cifar10-resnet18-at" / variant / f"seed-{seed}" / "train"
    left = share(round(100 * pgd))
    attack = {
        "name": "pgd",
        "restarts": 1,
        "robust": left,
        "robust_one_restart": left,
        "settings": SETTINGS["pgd"],
    }
    evaluation = {"mode": "independent", "clean": share(8000), "attacks": [attack]}
    folder.mkdir(parents=True)
    selected = {"evaluation": evaluation, "weights_sha256": "one"}
    document: dict[str, Any] = {
        "results": {"selected": selected},
        "stopped": stopped,
        "data": {"count": 50_000},
        "test": TEST,
    }
    document |= {
        "defense": AT_RECIPE.defense.describe(),
        "config": AT_RECIPE.config.describe() | {"seed": seed},
    }
    document["history"] = [{"weight_norm": 2.0, "validation": {"zero_gradients": 1.5}}]
    write_json(folder / "training.json", document)
    write_json(folder / "run.json", {"commit": "abc", "hardware": {"name": "chip"}, "seed": seed})
    return folder


def evaluated(folder: Path, weights: str, robust: int, count: int = 10_000, **other: object) -> None:
    folder.mkdir(parents=True)
    attacks = [{"name": name, "settings": SETTINGS[name]} for name in AUTOATTACK]
    facts: dict[str, Any] = {"mode": "cascade", "data": TEST, "attacks": attacks}
    facts |= {"clean": share(count // 2, count), "worst_case": share(robust, count)}
    write_json(folder / "evaluation.json", {**facts, "model": {"weights_sha256": weights}, **other})
    write_json(folder / "run.json", {"commit": "abc", "hardware": {"name": "chip"}, "seed": 0})
