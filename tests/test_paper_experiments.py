"""The paper's experiments as data: each can be built from what we have, with the settings the paper states."""

import pytest
import typer

from scaleproof.attacks.suites import SUITES, single_attacks, suite
from scaleproof.cli.main import app
from scaleproof.data import catalog
from scaleproof.defenses import METHODS, NAMES, defense, hypersphere, scale_invariant
from scaleproof.models.architectures import checked_architecture
from scaleproof.paper import claims, experiments
from scaleproof.paper.settings import SINGLE_STEP, STATED, STEPS
from scaleproof.threat import Threat
from scaleproof.training import Steps, recipe

# What the paper's text says about training.
INNER_STEPS = 10  # of the attack
STEPS_TO_EDGE = 4  # a step is eps over it
BATCH_SIZE = 128
TERM_WEIGHTS = {"trades": 6.0, "alp": 3.0, "mart": 6.0}  # lambda
SCHEDULES = {  # rate, momentum, weight decay, epochs, and the epochs of decays
    "resnet18": (0.01, 0.9, 5e-4, 120, (75, 90, 100)),
    "preact-resnet18": (0.01, 0.9, 5e-4, 120, (75, 90, 100)),
    "wrn-34-10": (0.1, 0.9, 7e-4, 90, (75,)),
}


def test_every_name_is_one_of_ours() -> None:
    known = {*SUITES, *single_attacks()}
    for one in experiments():
        assert one.dataset in catalog.names()
        checked_architecture(one.architecture)
        assert {name for name, _ in one.attacks} <= known
        assert one.defense in NAMES or not one.trained
    assert {method.name for method in METHODS if method().single_step} == set(SINGLE_STEP)


def test_every_training_can_be_built() -> None:
    """Recipe, SI and HE accept what the rows say, and the command line accepts the words."""
    train = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    for one in (found for found in experiments() if found.trained):
        for name in (one.recipe, STATED):
            found = recipe(one.defense, name=name, architecture=one.architecture)
            assert found.name == name
        if one.mechanism == "si":
            changed = scale_invariant(found.defense, scale=one.scale, margin=one.margin, weight=one.beta)
            assert (changed.margin.scale, changed.margin.margin, changed.margin.weight) == (
                *(one.scale, one.margin, one.beta),
            )
        if one.mechanism == "he":
            assert hypersphere(found.defense).label_margin > 0
        given = train.make_context("train", list(one.command()[1:])).params
        assert (given["method"], given["model"], given["data"]) == (
            one.defense,
            one.architecture,
            one.dataset,
        )
        assert (given["si"], given["he"]) == (one.mechanism == "si", one.mechanism == "he")
        if one.mechanism == "si":
            assert (given["scale"], given["margin"], given["beta"]) == (one.scale, one.margin, one.beta)
    published = [one for one in experiments() if not one.trained]
    assert {one.tables for one in published} == {("attacks",)}
    assert len(published) == 7
    with pytest.raises(ValueError, match="others published"):
        published[0].command()


def test_our_defaults_are_the_papers_settings() -> None:
    eight = Threat()
    for name, weight in TERM_WEIGHTS.items():
        assert defense(name).weight == weight  # type: ignore[attr-defined]
    for name in ("at", *TERM_WEIGHTS):
        inner = defense(name).inner
        assert inner is not None
        assert (inner.steps, inner.threat.eps) == (INNER_STEPS, eight.eps)
        assert inner.step_size == pytest.approx(eight.eps / STEPS_TO_EDGE)
    for attack in suite("paper"):
        assert attack.steps == STEPS  # type: ignore[attr-defined]
    for architecture, (*said, decays) in SCHEDULES.items():
        config = recipe("at", name=STATED, architecture=architecture).config
        assert [config.rate, config.momentum, config.weight_decay, config.epochs] == said
        assert (config.batch_size, config.schedule) == (BATCH_SIZE, Steps(decays))
    assert set(SCHEDULES) == {one.architecture for one in experiments() if one.trained}


def test_experiments_settle_every_number_once() -> None:
    keys = [one.key for found in experiments() for one in found.claims]
    assert sorted(keys) == sorted(one.key for one in claims())
    names = [found.model for found in experiments()]
    assert len(set(names)) == len(names)
    assert {found.model for found in experiments("svhn")} == {one.row.model for one in claims("svhn")}
    trades = next(found for found in experiments("scale") if found.mechanism == "none")
    assert trades.tables == ("scale", "margin", "beta", "multi-step", "black-box", "hypersphere")
    attacked = next(found for found in experiments("attacks") if found.published == "Carmon2019Unlabeled")
    assert attacked.attacks == (("pgd", 5), ("pgd-cw", 5), ("pgd-dlr", 5), ("si-pgd", 5))
    assert attacked.weights == "robustbench:cifar10/Linf/Carmon2019Unlabeled"
