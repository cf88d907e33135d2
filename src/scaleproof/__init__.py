"""scaleproof: measure adversarial robustness honestly.

    from scaleproof import Classifier, evaluate, suite
    evaluation = evaluate(Classifier(net), (images, labels), suite("paper"))
    print(evaluation.robust())

Names are loaded when first used, so that rendering a report needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from scaleproof.analysis import analyse, scale_sweep
    from scaleproof.attacks import PGD, Attack, attack_batch, fgsm, si_pgd, suite
    from scaleproof.checks import examine
    from scaleproof.data import Dataset, load
    from scaleproof.evaluation import Evaluation
    from scaleproof.evaluator import evaluate
    from scaleproof.models import Classifier, Output, load_model
    from scaleproof.oracle import Oracle
    from scaleproof.rng import Rng
    from scaleproof.speed import Speed
    from scaleproof.threat import Threat

HOMES = {
    "examine": "checks",
    "analyse": "analysis",
    "scale_sweep": "analysis",
    "PGD": "attacks",
    "Attack": "attacks",
    "attack_batch": "attacks",
    "fgsm": "attacks",
    "si_pgd": "attacks",
    "suite": "attacks",
    "Dataset": "data",
    "load": "data",
    "Evaluation": "evaluation",
    "evaluate": "evaluator",
    "Classifier": "models",
    "Output": "models",
    "load_model": "models",
    "Oracle": "oracle",
    "Rng": "rng",
    "Speed": "speed",
    "Threat": "threat",
}

__all__ = [
    "PGD",
    "Attack",
    "Classifier",
    "Dataset",
    "Evaluation",
    "Oracle",
    "Output",
    "Rng",
    "Speed",
    "Threat",
    "__version__",
    "analyse",
    "attack_batch",
    "evaluate",
    "examine",
    "fgsm",
    "load",
    "load_model",
    "scale_sweep",
    "si_pgd",
    "suite",
]


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"scaleproof has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"scaleproof.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
