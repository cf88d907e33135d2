"""What a plan says about minutes, held against the trainings that are kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from scaleproof.paper import experiments
from scaleproof.paper.estimate import MEASURED, epoch_minutes, minutes, size
from scaleproof.paper.scales import FULL
from scaleproof.paper.settings import TEST_IMAGES, TRAINING_IMAGES
from scaleproof.paper.steps import TRAIN, Chain, Place, folder_name
from scaleproof.paper.targets import wanted

KEPT = Path(__file__).resolve().parents[1] / "docs" / "results" / "paper"
SIDE_BY_SIDE = 4  # trainings on one chip at most, when those that are kept were made
ROUGHLY = 0.3
CHAINS = {one.experiment.model: one for one in wanted(["all"]).chains(FULL, Place(root=Path("root")), [0])}
KEPT_MODELS = [one.model for one in experiments() if (KEPT / folder_name(one.model)).exists()]


def kept(model: str, name: str) -> Any:
    one = CHAINS[model]
    return json.loads(
        (KEPT / folder_name(model) / one.variant / "seed-0" / TRAIN / f"{name}.json").read_text()
    )


def attack_seconds(training: dict[str, Any]) -> float:
    weights = [found["evaluation"]["attacks"] for found in training["results"].values()]
    return sum(float(attack["seconds"]) for attacks in weights for attack in attacks)


def estimated(one: Chain) -> float:
    """Seconds of a chain's training, with its own attacks."""
    return 60 * minutes(one.steps[0], one)


def test_the_estimate_follows_size_and_length() -> None:
    """A ResNet-18 forward at 32 x 32 is 0.56 billion multiplications; a WRN-34-10's is 6.7 (both well known)."""
    assert size("resnet18") == 1
    assert size("wrn-34-10") == pytest.approx(6.7 / 0.56, rel=0.03)
    at, deep = CHAINS["cifar10/resnet18/at"], CHAINS["cifar10/wrn-34-10/at"]
    assert epoch_minutes(at) == pytest.approx(120 * 50_000 / 128 * 13.5e-3 / 60)
    assert epoch_minutes(deep) == pytest.approx(epoch_minutes(at) * size("wrn-34-10") * 90 / 120)
    assert estimated(at) == pytest.approx(60 * epoch_minutes(at) + 10 * MEASURED[TRAIN])
    datasets = {one.dataset for one in experiments()}
    assert datasets == set(TRAINING_IMAGES) == set(TEST_IMAGES)


@pytest.mark.parametrize("model", KEPT_MODELS)
def test_a_training_took_as_long_as_estimated_or_longer_with_company(model: str) -> None:
    took = kept(model, "run")["seconds"] + attack_seconds(kept(model, "training"))
    assert 1 - ROUGHLY < took / estimated(CHAINS[model]) < SIDE_BY_SIDE
