"""The digest of a callable's source follows its own file, whatever wraps the callable and wherever the file lies."""

import importlib
import linecache
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from scaleproof.callables import source_digest

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


def test_a_module_in_an_archive_has_a_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("archived_callables.py", "def attack(model, x, y):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path / "a.zip")
    assert source_digest(importlib.import_module("archived_callables").attack) is not None


def test_what_has_no_source_has_no_digest() -> None:
    assert source_digest(len) is None
