"""Captured attacks and training steps on a pretended GPU: replays find what plain calls find, bit for bit."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from networks import (
    Averaging,
    Caching,
    Counting,
    Drifting,
    Dropping,
    Listing,
    Missing,
    Queueing,
    Remembering,
    Showing,
    Skipping,
    Tallying,
)
from own_defenses import Smooth
from scaleproof import Speed, evaluate, suite
from scaleproof.attacks import APGD, Attack, Scouting, Scouts
from scaleproof.defenses import BatchNormPolicy, Defense
from scaleproof.losses import cw_margin
from scaleproof.models import Classifier, as_classifier
from scaleproof.museum.healthy import WithoutNorm
from scaleproof.threat import Threat
from scaleproof.training import TrainConfig, Trainer
from training_helpers import COMBINATIONS, QUICK, chosen, finished, hesitant, network, same, small

pytestmark = pytest.mark.usefixtures("a_gpu")
NEAR = Threat(eps=2 / 255)
STEPS = {"fab-t": 4, "apgd-t": 4, "rays": 60}
ATTACKS: dict[str, Attack] = {
    **{
        attack.name: replace(attack, threat=NEAR, steps=STEPS.get(attack.name, 10))  # type: ignore[call-arg]
        for attack in suite("pgd,apgd-ce,apgd-t,fab-t,square,rays")
    },
    "scouted": APGD(
        threat=NEAR,
        objective=cw_margin,
        targets=2,
        ranking=Scouts(),
        steps=10,
        name="scouted",
        label="scouted",
    ),
    "scouting": Scouting(threat=NEAR),
}
SLOW = {"apgd-t", "fab-t", "scouted"}
OFTEN = {"standard", "at", "free-si", "gradalign", "alp-he"}  # one of each kind of step


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        *(("cascade", name) for name in ATTACKS),
        *(pytest.param("independent", name, marks=[pytest.mark.long] * (name in SLOW)) for name in ATTACKS),
    ],
)
def test_attacks_find_in_graphs_what_they_find_without(mode: str, name: str) -> None:
    x, _ = small(24, "test").batch(0, 24)
    classifier, found = hesitant(x), []
    y = classifier(x).argmax(1)
    classifier.cuda()
    for graph in (True, False):
        speed = Speed(precision="float32", graph=graph)
        result = evaluate(classifier, (x, y), [ATTACKS[name]], mode=mode, batch_size=16, speed=speed)  # type: ignore[arg-type]
        assert (result.speed["graph"], result.speed["notes"]) == (graph, [])
        found.append(result.attacks[0])
    assert 0 < found[1].broken().sum() < len(x), "a mixed verdict shows more"
    assert (found[0].verdicts["digest"] == found[1].verdicts["digest"]).all()


def same_both_ways(
    make: Callable[[], Classifier], defense: Defense, config: TrainConfig = QUICK, *, streams: int = 1
) -> bool:
    """Whether captured steps leave what plain ones do."""
    found, told = [], []
    for graph in (True, False):
        speed = Speed(graph=graph, streams=streams)
        run = Trainer(make().cuda(), small(70), defense, config, test=small(8, "test"), speed=speed)
        found.append(finished(run))
        assert run.stepper.notes()["graph"] == graph, run.stepper.notes()
        told.append([without_clocks(record) for record in run.history])
    return same(*found) and told[0] == told[1]


def without_clocks(record: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in record.items() if "second" not in name}


@pytest.mark.parametrize(
    "combination", [c if c in OFTEN else pytest.param(c, marks=pytest.mark.long) for c in COMBINATIONS]
)
def test_captured_training_gives_the_weights_of_plain_training(combination: str) -> None:
    assert same_both_ways(partial(network, sphere=combination.endswith("-he")), chosen(combination))


def test_attacks_in_train_mode_and_an_average_of_the_weights() -> None:
    policy = BatchNormPolicy(attack="train", attack_updates=True)
    assert same_both_ways(network, replace(chosen("at"), batch_norm=policy), replace(QUICK, average=0.9))


def test_a_ball_that_grows_and_images_as_they_are() -> None:
    assert same_both_ways(network, chosen("at"), replace(QUICK, epochs=3, eps_warm_up=2, augment=False))


def test_layers_that_draw() -> None:
    assert same_both_ways(partial(always, Dropping), chosen("at"))


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (Skipping, "the network draws random numbers from Python or numpy"),
        (Averaging, "the network puts other tensors in the place of its buffers"),
        (Counting, "the network keeps passes from pass to pass"),
        (Remembering, "the network keeps mean from pass to pass"),
        (Listing, "the network keeps passes from pass to pass"),
        (Tallying, "the network keeps passes from pass to pass"),
        (Queueing, "the network keeps means from pass to pass"),
        (Drifting, "the network keeps mean from pass to pass"),
    ],
)
def test_what_a_graph_could_not_repeat_is_not_captured(network: type[WithoutNorm], reason: str) -> None:
    found, notes = [], []
    for graph in (True, False):
        torch.manual_seed(3)
        own = as_classifier(network()).cuda()
        run = Trainer(own, small(), chosen("standard"), QUICK, speed=Speed(graph=graph))
        found.append(finished(run))
        notes.append(run.stepper.notes())
    assert same(*found)
    assert not notes[0]["graph"]
    assert f"graph capture failed, eager in its place: {reason}" in "; ".join(notes[0]["notes"])  # type: ignore[call-overload]


def always(network: type[WithoutNorm]) -> Classifier:
    """The same weights every time."""
    torch.manual_seed(3)
    return as_classifier(network())


@pytest.mark.parametrize("network", [Showing, Missing, Caching])
def test_networks_that_keep_what_no_pass_reads_or_changes(network: type[WithoutNorm]) -> None:
    assert same_both_ways(partial(always, network), chosen("standard"))


def test_a_defense_without_a_hash() -> None:
    """Every second step has other settings, and a graph of its own."""

    class Turning(Smooth):
        def at(self, epoch: int, step: int) -> Smooth:
            return replace(self, shares=[1.0, 0.5], smoothing=0.4) if step % 2 else self

    with pytest.raises(TypeError, match="unhashable"):
        hash(Turning())
    assert same_both_ways(network, Turning())


def test_parts_side_by_side() -> None:
    assert same_both_ways(network, chosen("at"), replace(QUICK, batch_size=64), streams=2)
