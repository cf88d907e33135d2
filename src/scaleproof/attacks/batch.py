"""One attack on one batch, as other libraries do it: images in, adversarial examples out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scaleproof.attacks.base import Attack
from scaleproof.attacks.loop import perturb
from scaleproof.attacks.oracles import Oracles
from scaleproof.contract import buffers_kept, check_images, check_labels, full_precision
from scaleproof.losses import misclassified
from scaleproof.models.classifier import as_classifier
from scaleproof.oracle import Oracle
from scaleproof.rng import Rng
from scaleproof.speed import Speed


def attack_batch(
    attack: Attack, model: nn.Module, x: Tensor, y: Tensor, *, seed: int = 0, speed: Speed | None = None
) -> Tensor:
    """Adversarial examples for one batch: `attack(model, x, y)` in other libraries.

    Samples are numbered 0, 1, ... in the order given. Of several restarts a sample keeps the first that breaks it.
    """
    classifier, x, y = as_classifier(model), full_precision(x.detach()), y.long()
    check_images(x, y)
    with buffers_kept(classifier):
        oracles = Oracles(Oracle(classifier, speed=speed, images=x))
        classes = oracles.main.judge(x[:1]).shape[1]
        check_labels(y, classes)
        fitted, _ = attack.for_classes(classes)
        oracles.look([fitted], x)
        oracle = oracles.suited(fitted)
        index = torch.arange(len(x), device=x.device)
        result, open_rows = x.clone(), index
        for restart in range(fitted.restarts):
            rng = Rng(seed, attack.name, restart)
            found = perturb(fitted, oracle, x[open_rows], y[open_rows], index[open_rows], rng)
            result[open_rows] = found
            open_rows = open_rows[~misclassified(oracle.judge(found), y[open_rows])]
            if len(open_rows) == 0:
                break
    return result
