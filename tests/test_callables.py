"""The digest of a callable's source follows its own file, whatever wraps the callable and wherever the file lies."""

import gc
import importlib
import itertools
import json
import linecache
import sys
import weakref
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from scaleproof import PGD, Threat
from scaleproof.attacks import Attack, Nearest, Sampled
from scaleproof.attacks.base import attack_settings
from scaleproof.callables import is_foreign, name_of, raised, source_digest, sources
from scaleproof.defenses import AdversarialTraining, Inner, defense_settings
from scaleproof.differences import differences
from scaleproof.losses import cross_entropy

NAME = "own_callables"
TEXT = """
import torch
STEPS = {steps}
@torch.no_grad()
def attack(model, x, y): return x + STEPS
"""


def imported(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (folder / f"{NAME}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    linecache.clearcache()
    importlib.invalidate_caches()
    return importlib.import_module(NAME)


def test_constants_beside_a_wrapped_function_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for steps in (1, 22, 22):
        digests.add(source_digest(imported(TEXT.format(steps=steps), tmp_path, monkeypatch).attack))
    assert None not in digests
    assert len(digests) == 2


@pytest.mark.parametrize("edited", [TEXT.format(steps=33), "def attack(x:\nSTEPS = (1\n"])
def test_a_file_that_is_edited_while_its_code_runs_leaves_the_digest_of_that_code(
    edited: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = imported(TEXT.format(steps=2), tmp_path, monkeypatch)
    first = source_digest(module.attack)
    (tmp_path / f"{NAME}.py").write_text(edited)
    assert source_digest(module.attack) == first
    if "return" in edited:
        importlib.invalidate_caches()
        assert source_digest(importlib.reload(module).attack) != first


def test_a_module_in_an_archive_has_a_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("archived_callables.py", "def attack(model, x, y):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path / "a.zip")
    assert source_digest(importlib.import_module("archived_callables").attack) is not None


PARTS = """
from dataclasses import dataclass
from scaleproof.losses import Objective, logits, margin
def form(scores, y): return {sign} * margin(scores, y)
@dataclass(frozen=True)
class Score:
    shift: float = 0.0
    def __call__(self, output): return logits(output) + self.shift
mine = Objective("mine", score=Score(), form=form)
"""


def test_parts_that_are_not_ours_are_told_with_their_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for sign in (1, 2):
        objective = imported(PARTS.format(sign=sign), tmp_path, monkeypatch).mine
        told.append(attack_settings(PGD(objective=objective)))
        assert set(told[-1]["sources"]) == {f"{NAME}.Score(shift=0.0)", f"{NAME}.form"}
        assert "source_sha256" not in told[-1], "PGD itself is ours"
        defense = AdversarialTraining(inner=Inner(threat=Threat(), objective=objective))
        assert defense_settings(defense)["sources"] == told[-1]["sources"]
        inside = {"list": [partial(max, objective.form)], "other": (1, "text", None)}
        assert set(sources(inside)["sources"]) == {f"{NAME}.form"}
    changed = {name for name, _, _ in differences("", *told)}
    assert changed == {f"sources.{NAME}.Score(shift=0.0)", f"sources.{NAME}.form"}, "they share a file"


def test_what_a_part_was_given_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = imported(PARTS.format(sign=1), tmp_path, monkeypatch)
    objectives = [replace(module.mine, score=module.Score(shift)) for shift in (0.0, 1.0)]
    one, two = (attack_settings(PGD(objective=objective)) for objective in objectives)
    assert differences("", one, two), "one name, two objectives"


@dataclass(frozen=True, kw_only=True)
class Quiet(PGD):
    name: str = "quiet"

    def describe(self) -> dict[str, object]:
        return {"attack": "quiet"}


@pytest.mark.parametrize("around", [lambda attack: attack, Sampled, Nearest])
@pytest.mark.parametrize("given", [{"steps": 3}, {"restarts": 2}, {"step_size": 0.5}, {"keep": "best"}])
def test_what_an_own_attack_forgets_to_say_is_said_for_it(
    around: Callable[[PGD], Attack], given: dict[str, Any]
) -> None:
    assert attack_settings(around(Quiet())) == attack_settings(around(Quiet()))
    assert attack_settings(around(Quiet())) != attack_settings(around(Quiet(**given)))


def test_a_name_is_the_same_in_every_process() -> None:
    first, second = (partial(sources, [lambda: 0], by=object()) for _ in range(2))
    assert repr(first) != repr(second)
    assert name_of(first) == name_of(second)
    names = set("abcdefgh")
    assert name_of(partial(sources, names)) == f"scaleproof.callables.sources({{{str(sorted(names))[1:-1]}}})"
    assert name_of(partial(sources, 3, by="text")) == "scaleproof.callables.sources(3, by='text')"


def test_what_is_ours_has_no_sources() -> None:
    assert sources(PGD(objective=cross_entropy)) == {}
    assert attack_settings(PGD()) == PGD().describe()


def test_a_file_that_is_called_as_one_of_pythons_is_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "antigravity.py").write_text("def attack(x): return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "antigravity", None)  # which is put back afterwards
    del sys.modules["antigravity"]
    assert is_foreign(importlib.import_module("antigravity").attack)
    assert [is_foreign(thing) for thing in (json.dumps, Path, len, itertools.chain, 3)] == [False] * 5


def test_what_has_no_source_has_no_digest() -> None:
    assert source_digest(len) is None


def test_a_digest_keeps_nothing_alive() -> None:
    """A notebook makes attacks by the hundred, each of which may hold a network."""

    def attack(x: float) -> float:
        return x

    digest, gone = source_digest(attack), weakref.ref(attack)
    assert digest is not None
    assert source_digest(attack) == digest
    del attack
    gc.collect()
    assert gone() is None


def calls_torch() -> None:
    torch.nn.Linear(2, 3)(torch.ones(5))


def test_what_a_function_raised_is_told_with_its_own_line() -> None:
    with pytest.raises(RuntimeError) as caught:
        calls_torch()
    line = calls_torch.__code__.co_firstlineno + 1
    assert f"theirs raised RuntimeError (test_callables.py, line {line}): mat" in str(
        raised("theirs", caught.value)
    )
