"""How long steps take on one H200 that each has to itself, roughly: what a plan shows before anything starts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from scaleproof.paper.settings import TEST_IMAGES, TRAINING_IMAGES
from scaleproof.paper.steps import ATTACK, DONE, FIGURE, RAYS, SPSA, STANDARD, TRAIN, Chain, Step, recipe_of

REFERENCE = "resnet18"
# Milliseconds of one step of 128 images (GAT: 64) of 32 x 32 with a ResNet-18 in bf16: AT, GAT and RFGSM as
# docs/results has them; what it has of FreeAT and GradAlign shared the chip.
STEP = {"at": 13.5, "trades": 17.0, "alp": 16.5, "mart": 16.6, "free": 24.0, "gat": 8.0, "rfgsm": 5.4}
STEP |= {"gradalign": 12.8}
MOST = max(STEP.values())
# Seconds for 1000 images of the same network, as docs/results has them; SPSA-512 from the number of its queries.
# A training attacks three of its weights by the four attacks of the paper: selected, last, and best on test images.
MEASURED = {ATTACK: 2.5, STANDARD: 15.0, **dict(zip(SPSA, (53.0, 98.0, 190.0), strict=True)), RAYS: 23.0}
MEASURED |= {TRAIN: 2.0}
FIGURE_SECONDS = 60.0


@cache
def size(architecture: str) -> float:
    """Multiplications of one forward pass, with those of a ResNet-18 as the unit."""
    return operations(architecture) / operations(REFERENCE)


@cache
def operations(architecture: str) -> int:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from scaleproof.models import build

    with torch.device("meta"):
        net = build(architecture, 10).eval()
        image = torch.zeros(1, 3, 32, 32)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(image)
    return int(counter.get_total_flops())


def minutes(step: Step, chain: Chain) -> float:
    """Of one step that is not done, on an H200; nothing for what is done or is no full run."""
    if step.state == DONE or chain.scale.architecture is not None:
        return 0.0
    experiment = chain.experiment
    factor = size(experiment.architecture)
    if step.kind.startswith(FIGURE):
        return FIGURE_SECONDS * factor / 60
    black_box = chain.scale.black_box_images if step.kind in (*SPSA, RAYS) else None
    images = black_box or TEST_IMAGES[experiment.dataset]
    attacks = MEASURED[step.kind] * factor * images / 1000 / 60
    return attacks + (epoch_minutes(chain) if step.kind == TRAIN else 0.0)


def epoch_minutes(chain: Chain) -> float:
    """Of all epochs of a training, without the attacks that follow them."""
    experiment = chain.experiment
    batch = recipe_of(experiment, chain.recipe).config.batch_size
    steps = (chain.epochs or 0) * TRAINING_IMAGES[experiment.dataset] / batch
    return steps * STEP.get(experiment.defense, MOST) * size(experiment.architecture) / 60_000


def total_minutes(chains: Iterable[Chain]) -> float:
    return sum(minutes(step, chain) for chain in chains for step in chain.steps)
