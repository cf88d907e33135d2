"""Mistakes in a defense of one's own, and in how it is trained, are told in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scaleproof.defenses import AdversarialTraining, Defense, scale_invariant
from scaleproof.defenses.base import Batch, Learner, Memory, Outcome
from scaleproof.losses import logits
from scaleproof.models.output import Output
from scaleproof.report.training.parse import EPOCH_FIELDS
from scaleproof.training import Trainer
from scaleproof.training.checkpoint import read_checkpoint
from training_helpers import QUICK, finished, network, small


def found(answer: Callable[[Tensor, Output], Any]) -> Defense:
    """A defense without a training attack that makes something of the loss of each image."""

    @dataclass(frozen=True, kw_only=True)
    class Own(Defense):
        name = "own"
        label = "Own"

        def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
            output = learner.outputs(batch.x, "clean")
            made: Outcome = answer(F.cross_entropy(logits(output), batch.y, reduction="none"), output)
            return made

    return Own()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda loss, output: loss.mean(), r"outcome of Own must return named terms, got Tensor: return self.fin"),
        (lambda loss, output: {"loss": loss.mean()}, "must return named terms, got dict"),
        (lambda loss, output: Outcome({}, output), "at least one term and at most 14, got none"),
        (
            lambda loss, output: Outcome({f"{number}": loss.mean() for number in range(15)}, output),
            "Own must return at least one term and at most 14, got 15: add some up",
        ),
        (lambda loss, output: Outcome({"loss": loss.mean(), "own": loss.mean()}, output), "Own gives loss, own: give"),
        (lambda loss, output: Outcome({"clean": loss}, output), r"of one number, got shape \(24,\) for 'clean'"),
        (lambda loss, output: Outcome({"clean": 1.5}, output), "of one number, got float for 'clean'"),  # type: ignore[dict-item]
    ],
)  # fmt: skip
def test_what_a_defense_returns_must_be_named_terms(
    answer: Callable[[Tensor, Output], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        finished(Trainer(network(), small(), found(answer), QUICK))


@pytest.mark.parametrize("name", sorted(EPOCH_FIELDS - {"loss"} | {"schema"}))
def test_no_term_is_called_as_another_field_of_a_record(name: str) -> None:
    method = found(lambda loss, output: Outcome({"clean": loss.mean(), name: 0 * loss.mean()}, output))
    with pytest.raises(
        ValueError, match=f"'{name}' stands for something else in the record of an epoch, Own"
    ):
        finished(Trainer(network(), small(), method, QUICK))


def test_as_many_terms_as_there_may_be_are_all_recorded() -> None:
    names = [f"part {number}" for number in range(14)]
    method = found(lambda loss, output: Outcome({name: loss.mean() / 14 for name in names}, output))
    training = Trainer(network(), small(), method, replace(QUICK, epochs=1))
    finished(training)
    assert set(names) <= training.history[0].keys()


@dataclass(frozen=True, kw_only=True)
class Turning(Defense):
    """Has a term in one epoch alone, and one in every second step."""

    name, label = "turning", "Turning"
    when: tuple[int, int] = (0, 0)

    def at(self, epoch: int, step: int) -> Self:
        return replace(self, when=(epoch, step))

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        (epoch, step), output = self.when, learner.outputs(batch.x, "clean")
        nothing = 0 * output.logits.sum()
        found = {"hundred": nothing + 100} if step == 1 else {"one": nothing + 1, "two": nothing + 2}
        return self.finished(found | ({"four": nothing + 4} if epoch == 1 else {}), output, batch.y)


def test_terms_of_some_steps_alone_keep_their_names(tmp_path: Path) -> None:
    """58 images in batches of 24: the second of three has one term, the others have two."""

    def records(folder: Path | None, cut: int = 9) -> list[dict[str, Any]]:
        training = Trainer(
            network(), small(), Turning(), replace(QUICK, epochs=3), folder=folder, checkpoint_seconds=0
        )
        for progress in training.run():
            if progress.epoch == cut:
                break
        names = ("one", "two", "hundred", "four", "loss")
        return [{name: record[name] for name in names if name in record} for record in training.history]

    whole, wanted = records(None), {"one": 34 / 58, "two": 68 / 58, "hundred": 2400 / 58}
    extra = [wanted, wanted | {"four": 4.0}, wanted | {"four": 0.0}]
    assert whole == [pytest.approx(terms | {"loss": sum(terms.values())}) for terms in extra]
    records(tmp_path, cut=3)
    assert records(tmp_path) == whole


class Renaming(Turning):
    """Its terms have other names in each step, once `loss`."""

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        name, output = "loss" if self.when == (0, 1) else repr(self.when), learner.outputs(batch.x, "clean")
        return self.finished({name: 0 * output.logits.sum() + 3}, output, batch.y)


def test_terms_that_change_their_names() -> None:
    """The loss of an epoch is the sum of all of them; more than there are places for are refused."""
    training = Trainer(network(), small(), Renaming(), replace(QUICK, epochs=5))
    with pytest.raises(
        ValueError, match=r"at most 14 terms in all steps together, got 15, of late '\(4, 2\)'"
    ):
        finished(training)
    assert [record["loss"] for record in training.history] == [pytest.approx(3.0)] * 4


def test_si_needs_an_attack_to_change() -> None:
    plain = found(lambda loss, output: Outcome({"clean": loss.mean()}, output))
    message = r"training attack, Own has none: give it inner=Inner\(threat=...\), or --si-half outer \(scale_invariant"
    with pytest.raises(ValueError, match=message):
        scale_invariant(plain)
    assert scale_invariant(plain, inner=False).margin is not None


def test_adversarial_examples_need_an_attack() -> None:
    method = replace(AdversarialTraining(), inner=None)
    with pytest.raises(
        ValueError, match="need a training attack, AdversarialTraining has none: give it inner="
    ):
        finished(Trainer(network(), small(), method, QUICK))


def test_a_folder_may_be_given_as_text(tmp_path: Path) -> None:
    method = found(lambda loss, output: Outcome({"clean": loss.mean()}, output))
    finished(Trainer(network(), small(), method, replace(QUICK, epochs=1), folder=str(tmp_path / "kept")))
    assert read_checkpoint(tmp_path / "kept") is not None


@dataclass(frozen=True, kw_only=True)
class Weighted(AdversarialTraining):
    weights: Any = None


def test_settings_that_are_no_plain_data_need_words_where_a_folder_keeps_them(tmp_path: Path) -> None:
    defense = Weighted(inner=AdversarialTraining().inner, weights=torch.ones(10))
    assert Trainer(network(), small(), defense, QUICK).defense is defense
    with pytest.raises(ValueError, match=r"plain data, Weighted has others .*: let its describe\(\) give"):
        Trainer(network(), small(), defense, QUICK, folder=tmp_path)
