"""How long steps take on one H200, roughly: what a plan shows before anything starts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from scaleproof.paper.settings import TEST_IMAGES, TRAINING_IMAGES
from scaleproof.paper.steps import ATTACK, DONE, FIGURE, RAYS, SPSA, STANDARD, TRAIN, Chain, Step, recipe_of

REFERENCE = "resnet18"
# Milliseconds of one step of 128 images of 32 x 32 with a ResNet-18 in bf16, as docs/results has them.
STEP = {"at": 13.5, "trades": 17.0, "alp": 16.5, "mart": 16.6, "free": 24.0, "gat": 7.2, "rfgsm": 4.6}
STEP |= {"gradalign": 12.8}
MOST = max(STEP.values())
# Seconds for 1000 images of the same network, likewise; SPSA-512 from the number of its queries.
MEASURED = {ATTACK: 2.5, STANDARD: 15.0, **dict(zip(SPSA, (53.0, 98.0, 190.0), strict=True)), RAYS: 23.0}
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
    if step.kind == TRAIN:
        batch = recipe_of(experiment, chain.recipe).config.batch_size
        steps = (chain.epochs or 0) * TRAINING_IMAGES[experiment.dataset] / batch
        return steps * STEP.get(experiment.defense, MOST) * factor / 60_000
    if step.kind.startswith(FIGURE):
        return FIGURE_SECONDS * factor / 60
    black_box = chain.scale.black_box_images if step.kind in (*SPSA, RAYS) else None
    images = black_box or TEST_IMAGES[experiment.dataset]
    return MEASURED[step.kind] * factor * images / 1000 / 60


def total_minutes(chains: Iterable[Chain]) -> float:
    return sum(minutes(step, chain) for chain in chains for step in chain.steps)
