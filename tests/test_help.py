"""What `--help` names and what errors name are the same."""

import re
from dataclasses import fields

import pytest
import typer

from scaleproof import load_model, suite
from scaleproof.attacks.suites import SUITES, single_attacks
from scaleproof.cli.main import app
from scaleproof.models.architectures import ARCHITECTURES
from scaleproof.models.specs import OWN
from scaleproof.training import TrainConfig


def named_in(command: str, option: str) -> list[str]:
    """The words of an option's help that might be names, in their order."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    (text,) = [item.help for item in commands[command].params if item.name == option]
    return re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", text)


def test_attacks_and_suites() -> None:
    known = [*SUITES, *single_attacks()]
    with pytest.raises(ValueError, match=r"There are: ") as caught:
        suite("nothing")
    assert str(caught.value).partition("There are: ")[2].split(", ") == known
    for command in ("evaluate", "sweep", "train"):
        words = named_in(command, "attacks")
        assert [word for word in words if word in known] == known, "each once, in the same order"


def test_options_of_a_training_that_the_recipe_sets_say_so() -> None:
    """What the recipe sets is in its defense and its config; a seed is nobody's recipe."""
    options = typer.main.get_command(app).commands["train"].params  # type: ignore[attr-defined]
    said = {option.name for option in options if option.show_default == "from the recipe"}
    trained = {item.name for item in fields(TrainConfig)} & {option.name for option in options} - {"seed"}
    assert said == trained | {"decays", "norm", "eps", "steps", "step_size", "attack_mode", "weight"}


def test_models_and_architectures() -> None:
    with pytest.raises(ValueError, match="a model spec must be") as caught:
        load_model("nothing-of-this-name")
    for command in ("evaluate", "sweep", "gate", "analyse"):
        words = named_in(command, "model")
        assert words[: len(OWN)] == list(OWN)
        assert all(name in str(caught.value) for name in OWN)
        assert set(ARCHITECTURES) <= set(named_in(command, "arch"))
