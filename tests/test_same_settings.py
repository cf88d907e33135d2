"""Two runs are the same where no leaf of their settings differs: a folder, its units and an analysis agree on that."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers import LinearNet, decisions, images
from scaleproof import Threat, evaluate
from scaleproof.attacks.base import attack_settings
from scaleproof.attacks.foreign import Foreign
from scaleproof.store import FolderStore, open_run, read_arrays, write_arrays

NET = LinearNet(4).eval()
X = images(12)
Y = decisions(NET, X)


def nothing(model: object, x: object, y: object) -> object:
    return x


PLAIN = Foreign(nothing, name="theirs", threat=Threat(norm="l2", eps=1), settings={"steps": 3})
OTHER_FORM = replace(PLAIN, threat=Threat(norm="l2", eps=1.0), settings={"steps": 3.0, "start": None})
CHANGED = replace(PLAIN, settings={"steps": 4})


def claimed(folder: Path, attack: Foreign) -> FolderStore:
    return open_run(folder, {"attacks": [attack_settings(attack)]})


def test_settings_in_another_form_go_on_where_the_folder_takes_them(tmp_path: Path) -> None:
    first = evaluate(NET, (X, Y), [PLAIN], store=claimed(tmp_path, PLAIN))
    kept = {path.name: path.read_bytes() for path in (tmp_path / "units").iterdir()}
    again = evaluate(NET, (X, Y), [OTHER_FORM], store=claimed(tmp_path, OTHER_FORM))
    assert all(
        np.array_equal(first.arrays()[name], again.arrays()[name], equal_nan=True) for name in first.arrays()
    )
    assert {path.name: path.read_bytes() for path in (tmp_path / "units").iterdir()} == kept, (
        "nothing was done again"
    )
    with pytest.raises(ValueError, match=r"other settings \(attacks\[0\].settings.steps was 3, is 4\)"):
        claimed(tmp_path, CHANGED)
    with pytest.raises(ValueError, match="the store holds units of another run"):
        evaluate(NET, (X, Y), [CHANGED], store=FolderStore(tmp_path / "units"))


def test_units_that_do_not_say_their_settings_go_by_their_digest(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    evaluate(NET, (X, Y), [PLAIN], store=store)
    clean = read_arrays(store.path("clean"))
    assert clean is not None
    write_arrays(store.path("clean"), {name: values for name, values in clean.items() if name != "settings"})
    evaluate(NET, (X, Y), [PLAIN], store=store)
    with pytest.raises(ValueError, match="the store holds units of another run"):
        evaluate(NET, (X, Y), [OTHER_FORM], store=store)
