"""From the paper's rows to commands: what is run, in which folder, and what is left to do."""

from fractions import Fraction
from pathlib import Path

import pytest
import typer

from scaleproof.attacks.suites import SUITES, suite
from scaleproof.cli.main import app
from scaleproof.paper import claims, experiments, tables
from scaleproof.paper.scales import FULL, SMALL, scale
from scaleproof.paper.settings import own_models
from scaleproof.paper.stated import is_stated
from scaleproof.paper.steps import (
    ATTACK,
    CUT,
    DONE,
    MISSING,
    RAYS,
    SPSA,
    Chain,
    Place,
    Step,
    chain,
    folder_name,
)
from scaleproof.paper.targets import Wanted, wanted
from scaleproof.store import write_json
from scaleproof.threat import Threat

PLACE = Place(root=Path("root"))
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def all_chains(place: Place = PLACE, size: str = "full") -> tuple[Chain, ...]:
    return wanted(["all"]).chains(scale(size), place, [0])


def test_every_model_has_its_own_folder() -> None:
    names = [folder_name(one.model) for one in experiments()]
    assert len(set(names)) == len(names) == 76
    folders = [step.folder for one in all_chains() for step in one.steps]
    assert len(set(folders)) == len(folders)
    assert folder_name("cifar10/resnet18/trades-si/s=15/m=0.2/beta=0.2") == (
        "cifar10-resnet18-trades-si-s15-m0.2-beta0.2"
    )


@pytest.mark.parametrize("size", ["full", "small"])
def test_the_command_line_accepts_every_step(size: str) -> None:
    """Each command is parsed as a person's would be; its options say what the row of the paper says."""
    steps = [(one, step) for one in all_chains(size=size) for step in one.steps]
    assert len(steps) > 150
    for one, step in steps:
        name, *words = step.command
        given = COMMANDS[name].make_context(name, words).params
        assert given["out"] == step.folder
        assert given["seed"] == 0
        if name == "train":
            assert given["method"] == one.experiment.defense
            expected = (one.experiment.architecture, one.experiment.dataset)
            small = ("resnet-tiny", "sample-train")
            assert (given["model"], given["data"]) == (expected if size == "full" else small)
            assert given["epochs"] == (None if size == "full" else 1)


def test_only_the_small_scale_shortens_black_box_attacks() -> None:
    """As published at the full scale; else of the same names, samples and eps, and a label that says how long."""
    for size, steps, queries in (("full", 100, 10_000), ("small", 20, 1000)):
        found = [step for one in all_chains(size=size) for step in one.steps if step.kind in (*SPSA, RAYS)]
        assert {step.kind for step in found} == {*SPSA, RAYS}
        for step in found:
            given = COMMANDS["evaluate"].make_context("evaluate", list(step.words[1:])).params
            (attack,) = suite(given["attacks"], Threat(eps=float(Fraction(given["eps"]))))
            assert attack.name == step.kind
            assert attack.steps == (queries if step.kind == RAYS else steps)
            (published,) = suite(step.kind, attack.threat)
            assert {**attack.describe(), "steps": published.steps} == published.describe()
            assert (attack.label == published.label) == (size == "full")
            assert is_stated(step.kind, attack.name, attack.describe()) == (size == "full")
    assert "short black-box attacks" in SMALL.words


def zoo_of(folder: Path) -> Path:
    """A folder with a file for each published model that RobustBench has; nothing reads them."""
    for one in experiments():
        if one.published:
            path = folder / one.dataset / "Linf" / f"{one.published}.pt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return folder


def test_every_number_is_measured_by_a_step(tmp_path: Path) -> None:
    """Whatever the paper prints, the chain of its model holds the step whose business it is."""
    place = Place(root=Path("root"), checkpoints=zoo_of(tmp_path))
    chains = {one.experiment.model: one for one in all_chains(place)}
    for claim in claims():
        kinds = [step.kind for step in chains[claim.row.model].steps]
        attack = claim.column.attack
        if not claim.row.trained:
            assert kinds == ([ATTACK] if claim.row.published else [])
        elif attack == "standard":
            assert "standard" in kinds
        elif attack is not None and attack.startswith(("spsa", "rays")):
            assert attack in kinds
        else:
            assert kinds[0] == "train"


def test_a_table_asks_for_its_own_columns_alone() -> None:
    kinds = {
        table.id: {
            step.kind for one in wanted([f"table-{table.id}"]).chains(FULL, PLACE, [0]) for step in one.steps
        }
        for table in tables()
    }
    assert kinds["single-step"] == {"train"}
    assert kinds["black-box"] == {"train", "spsa-128", "spsa-256", "spsa-512", "rays"}
    assert kinds["multi-step"] == {"train", "standard"}
    assert kinds["attacks"] == {"train", "attack"}  # on our own models: no checkpoint was given


def test_published_models_come_from_a_folder(tmp_path: Path) -> None:
    one = next(found for found in experiments("attacks") if found.published)
    empty = Place(root=Path("root"), checkpoints=tmp_path)
    for place in (PLACE, empty):
        assert chain(one, FULL, place, [ATTACK]).steps == ()
        assert chain(one, FULL, place, [ATTACK]).absence == f"no {one.published}.pt: give --checkpoints"
    unknown = next(found for found in experiments("attacks") if not found.published and not found.trained)
    assert chain(unknown, FULL, empty, [ATTACK]).absence == "not on RobustBench"
    zoo = zoo_of(tmp_path)
    (step,) = chain(one, FULL, Place(root=Path("root"), checkpoints=zoo), [ATTACK]).steps
    assert step.words[:2] == ("evaluate", f"robustbench:cifar10/Linf/{one.published}@{zoo}")
    assert step.words[step.words.index("--restarts") + 1] == "5"
    (stand_in,) = chain(one, SMALL, PLACE, [ATTACK]).steps
    assert stand_in.words[1] == "undefended"


def test_our_own_models_stand_beside_them() -> None:
    names = [one.model for one in own_models("attacks")]
    assert names == [
        *("cifar10/resnet18/trades", "cifar10/resnet18/at", "cifar10/resnet18/mart", "cifar10/resnet50/at")
    ]
    assert own_models("scale") == ()
    wide = own_models("attacks")[-1]
    assert (wide.architecture, wide.defense, wide.claims) == ("resnet50", "at", ())


def test_variants_say_recipe_and_length() -> None:
    one = next(found for found in experiments() if found.model == "cifar10/resnet18/at")
    assert chain(one, FULL, PLACE, []).variant == "pang-120"
    short = chain(one, FULL, Place(root=Path("root"), epochs=30), [])
    assert (short.variant, short.epochs) == ("pang-30", 30)
    assert "--epochs" in short.steps[0].words
    literal = chain(one, FULL, Place(root=Path("root"), recipe="paper-literal"), [])
    assert literal.variant == "paper-literal-120"
    assert chain(one, SMALL, PLACE, []).variant == "small"
    assert chain(one, FULL, PLACE, [], seed=2).folder == Path("root/cifar10-resnet18-at/pang-120/seed-2")


def test_the_state_of_a_step_is_in_its_folder(tmp_path: Path) -> None:
    step = Step(kind="train", folder=tmp_path / "train", words=("train",))
    assert step.state == MISSING
    step.folder.mkdir()
    (step.folder / "unfinished.json").write_text("{}")
    assert step.state == CUT
    (step.folder / "run.json").write_text("{}")
    assert step.state == DONE


def test_results_kept_without_weights_are_noticed(tmp_path: Path) -> None:
    one = next(found for found in experiments() if found.model == "cifar10/resnet18/at")
    found = chain(one, FULL, Place(root=tmp_path), ["standard"])
    assert not found.lost_weights
    train = found.folder / "train"
    train.mkdir(parents=True)
    (train / "run.json").write_text("{}")
    assert found.lost_weights
    assert [step.kind for step in found.missing] == ["standard"]
    (train / "model.safetensors").touch()
    assert not found.lost_weights


def test_every_model_has_every_seed() -> None:
    """A published model is attacked with each: its numbers vary by the starts alone."""
    chains = wanted(["table-attacks"]).chains(FULL, PLACE, [0, 1])
    assert [one.seed for one in chains] == [0] * 11 + [1] * 11


def test_what_a_training_did_not_measure_is_measured_after_it(tmp_path: Path) -> None:
    """A training whose own attacks were fewer than the paper's gets the attacks as a step."""
    one = next(found for found in experiments() if found.model == "cifar10/resnet18/at")
    train = chain(one, FULL, Place(root=tmp_path), []).folder / "train"
    cases = (
        (["pgd", "pgd-cw"], 8 / 255, ["train", "attack"]),
        (SUITES["paper"], 8 / 255, ["train"]),
        (SUITES["paper"], 0.031, ["train", "attack"]),  # as some recipes train and measure
    )
    for names, eps, kinds in cases:
        evaluation = {"attacks": [{"name": name, "settings": {"eps": eps}} for name in names]}
        write_json(train / "training.json", {"results": {"selected": {"evaluation": evaluation}}})
        write_json(train / "run.json", {})
        assert [step.kind for step in chain(one, FULL, Place(root=tmp_path), []).steps] == kinds


def test_unknown_words() -> None:
    with pytest.raises(ValueError, match="--epochs must be >= 1, got 0"):
        Place(root=Path("root"), epochs=0)
    with pytest.raises(ValueError, match="--checkpoints must be a folder that is there, got zoo"):
        Place(root=Path("root"), checkpoints=Path("zoo"))
    with pytest.raises(
        ValueError, match=r"nothing to reproduce is called 'table-multistep'. Did you mean 'table-multi"
    ):
        wanted(["table-multistep"])
    with pytest.raises(ValueError, match=r"called 'table-6'. Did you mean 'table-multi-step'"):
        wanted(["table-6"])
    with pytest.raises(ValueError, match=r"a scale must be one of full, small, got 'tiny'"):
        scale("tiny")
    with pytest.raises(
        ValueError,
        match=r"--models must match a model of what was asked for \(cifar10/resnet18/.*got 'cifar11",
    ):
        wanted(["all"], "cifar11/*")
    chosen = wanted(["table-multi-step"], "cifar10/resnet18/*")
    assert isinstance(chosen, Wanted)
    assert len(chosen.experiments()) == 8


def test_the_dearest_steps_come_last() -> None:
    (found,) = [one for one in all_chains() if one.experiment.model == "cifar10/resnet18/trades"]
    kinds = [step.kind for step in found.steps]
    assert kinds[:4] == ["train", "attack", "standard", "rays"]
    assert kinds[-3:] == ["spsa-128", "spsa-256", "spsa-512"]
