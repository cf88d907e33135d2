"""Killed at any moment and resumed: the same verdicts, bit for bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from scaleproof.files import write_atomically
from scaleproof.store import FolderStore, changes, open_run, read_arrays, write_arrays, write_json

ROOT = Path(__file__).parent
OTHER_IMAGES = "its images are others: other data, or another number of them"
COMMAND = [
    *(sys.executable, "-m", "scaleproof", "evaluate", "demo", "--data", "sample", "--limit", "40"),
    *("--attacks", "pgd,si-pgd", "--steps", "2", "--restarts", "2", "--batch-size", "4", "--device", "cpu"),
    "--no-checks",
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}


def start(folder: Path, mode: str) -> subprocess.Popen[bytes]:
    words = [*COMMAND, "--mode", mode, "--out", str(folder)]
    return subprocess.Popen(
        words,
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(folder: Path, mode: str) -> dict[str, np.ndarray]:
    process = start(folder, mode)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
    return verdicts(folder)


def verdicts(folder: Path) -> dict[str, np.ndarray]:
    arrays = read_arrays(folder / "verdicts.npz")
    assert arrays is not None
    return arrays


def kill_when(folder: Path, mode: str, wanted: int, how: int, delay: float) -> None:
    """Kill a run a moment after so many units are on the disk; `delay` moves it into a unit or a write."""
    process = start(folder, mode)
    while process.poll() is None and len(list(folder.glob("units/*.npz"))) < wanted:
        time.sleep(0.001)
    time.sleep(delay)
    if process.poll() is None:
        os.killpg(process.pid, how)
    process.communicate(timeout=60)


def killed_and_resumed(tmp_path: Path, mode: str, moments: list[int]) -> None:
    whole = finish(tmp_path / "whole", mode)
    chance = random.Random(0)
    for number, moment in enumerate(moments):
        folder = tmp_path / f"cut-{number}"
        how = chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        kill_when(folder, mode, moment, how, chance.random() * 0.01)
        kill_when(folder, mode, moment + chance.randint(0, 6), signal.SIGKILL, chance.random() * 0.01)
        resumed = finish(folder, mode)
        assert whole.keys() == resumed.keys()
        for name, values in whole.items():
            np.testing.assert_array_equal(
                values, resumed[name], err_msg=f"{name}, killed after {moment} units"
            )


def test_killed_and_resumed(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, "cascade", [1, 9])


@pytest.mark.long
@pytest.mark.parametrize("mode", ["independent", "cascade"])
def test_killed_at_twenty_moments(tmp_path: Path, mode: str) -> None:
    killed_and_resumed(tmp_path, mode, random.Random(1).choices(range(25), k=20))


DYING_RUN = """
import os, signal, sys
calls, real = 0, os.replace
def replace(source, target):
    global calls
    calls += 1
    if calls == {number}:
        os.kill(os.getpid(), signal.SIGKILL)
    real(source, target)
os.replace = replace
sys.argv[0] = "scaleproof"
from scaleproof.cli import main
main()
"""


def die_in_write(folder: Path, number: int) -> None:
    """Run until the rename that ends the n-th write, and die there: the new file is beside its place."""
    code = DYING_RUN.format(number=number)
    words = [sys.executable, "-c", code, *COMMAND[3:], "--out", str(folder)]
    done = subprocess.run(words, cwd=ROOT, env=ENVIRONMENT, capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def test_killed_during_writes(tmp_path: Path) -> None:
    whole = finish(tmp_path / "whole", "independent")
    folder = tmp_path / "cut"
    for number in (1, 2, 9):  # the claim, the clean pass, then a unit
        die_in_write(folder, number)
    resumed = finish(folder, "independent")
    for name, values in whole.items():
        np.testing.assert_array_equal(values, resumed[name])


@pytest.mark.long
def test_killed_during_every_last_write(tmp_path: Path) -> None:
    """The last writes of a run: evaluation.json, verdicts.npz, gallery.npz, run.json, the reports."""
    whole = finish(tmp_path / "whole", "independent")
    writes = 2 + 32 + 4 + 4
    for number in range(writes - 8, writes):
        die_in_write(tmp_path / f"cut-{number}", number)
        resumed = finish(tmp_path / f"cut-{number}", "independent")
        for name, values in whole.items():
            np.testing.assert_array_equal(values, resumed[name])


def test_a_resume_does_not_start_over(tmp_path: Path) -> None:
    kill_when(tmp_path / "run", "independent", 8, signal.SIGKILL, 0)
    units = {path: path.stat().st_mtime_ns for path in tmp_path.glob("run/units/*.npz")}
    assert len(units) >= 8
    kill_when(tmp_path / "run", "independent", len(units) + 2, signal.SIGKILL, 0)
    assert units == {path: path.stat().st_mtime_ns for path in units}, "finished units are not touched"
    words = start(tmp_path / "run", "independent").communicate(timeout=120)[1].decode()
    assert "Going on with the run in" in words
    assert not (tmp_path / "run" / "units").exists()


def test_a_damaged_unit_is_done_again(tmp_path: Path) -> None:
    whole = finish(tmp_path / "whole", "independent")
    kill_when(tmp_path / "run", "independent", 8, signal.SIGKILL, 0)
    for number, path in enumerate(sorted(tmp_path.glob("run/units/*.npz"))[:3]):
        data = path.read_bytes()
        path.write_bytes([b"", data[: len(data) // 2], data[:-80] + bytes(80)][number])
    resumed = finish(tmp_path / "run", "independent")
    for name, values in whole.items():
        np.testing.assert_array_equal(values, resumed[name])


def test_files_are_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "a.json", {"n": 1})

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "a.json", b"half")
    assert json.loads((tmp_path / "a.json").read_text()) == {"n": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_is_claimed_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert open_run(folder, {"seed": 0}) == FolderStore(folder / "units")
    assert open_run(folder, {"seed": 0}) == FolderStore(folder / "units")
    (folder / "units").mkdir()
    assert open_run(folder, {"seed": 1}) == FolderStore(folder / "units"), (
        "nothing was done yet: the claim moves on"
    )
    write_arrays(folder / "units" / "clean.npz", {"x": np.zeros(1)})
    with pytest.raises(ValueError, match=r"other settings \(seed was 1, is 0\): give another --out"):
        open_run(folder, {"seed": 0})
    scrap = tmp_path / "scrap"
    scrap.mkdir()
    (scrap / ".unfinished.json.77.part").touch()
    open_run(scrap, {"seed": 0})
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.png").touch()
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        open_run(other, {"seed": 0})


def test_settings_in_another_form_are_the_same_run(tmp_path: Path) -> None:
    """A field that came later and says nothing, or 1 in place of 1.0, makes no other run."""
    store = open_run(tmp_path, {"eps": 1, "attacks": [{"norm": "l2"}]})
    write_arrays(store.folder / "clean.npz", {"x": np.zeros(1)})
    before = (tmp_path / "unfinished.json").read_bytes()
    assert open_run(tmp_path, {"eps": 1.0, "attacks": [{"norm": "l2", "start": None}]}) == store
    assert (tmp_path / "unfinished.json").read_bytes() == before
    with pytest.raises(ValueError, match=r"other settings \(eps was 1, is 2\)"):
        open_run(tmp_path, {"eps": 2, "attacks": [{"norm": "l2", "start": None}]})


def test_other_answers_are_told_without_their_numbers_and_only_where_nothing_explains_them() -> None:
    before = {"settings": {"first_logits": [[1.0, 2.0], [3.0, 4.0]], "pixels": "a", "weights": "c"}}
    answers: dict[str, object] = {"first_logits": [[2.0, 1.0], [4.0, 3.0]], "pixels": "a"}
    otherwise = "the model answers otherwise than then (its weights or code changed; does its factory "
    assert changes(before, answers | {"weights": "c"}) == f"{otherwise}load or seed them?)"
    assert changes(before, answers | {"weights": "d"}).endswith("seed them?); weights was 'c', is 'd'")
    assert changes(before, answers | {"weights": "c", "pixels": "b"}) == OTHER_IMAGES
    before["settings"]["device"] = "cuda"  # the third digit of an answer may be another one there
    assert changes(before, answers | {"weights": "c", "device": "cpu"}) == "device was 'cuda', is 'cpu'"


def test_fewer_images_are_told_without_their_digest_and_switches_are_on_or_off() -> None:
    before = {
        "settings": {"images": 60, "pixels": "54c1", "keep_examples": True, "checks": False, "head": "fc"}
    }
    now: dict[str, object] = {"images": 50, "pixels": "20db", "checks": True, "head": None}
    told = "checks was off, is on; head was 'fc', is not given; images was 60, is 50"
    assert changes(before, now | {"keep_examples": True}) == told
    now |= {"checks": False, "head": "fc"}
    assert changes(before, now) == "images was 60, is 50; keep_examples was on, is off"
    assert changes(before, now | {"images": 60}) == f"keep_examples was on, is off; {OTHER_IMAGES}"


def attack(**settings: object) -> dict[str, object]:
    usual = {"attack": "pgd", "norm": "linf", "eps": 8 / 255, "objective": "cross_entropy"}
    return usual | {"steps": 20, "step_size": 2 / 255, "start": "uniform"} | settings


LONG = "def theirs(model, x, y): return the_same_long_beginning_of_a_text_of_over_sixty_letters(x) + "


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ([attack()], (attack(),), ""),
        (
            [attack()],
            (attack(eps=4 / 255),),
            "attacks[0].eps was 0.03137254901960784, is 0.01568627450980392",
        ),
        (
            [attack(), attack(steps=10)],
            (attack(), attack(steps=40)),
            "attacks[1].steps was 10, is 40",
        ),
        ([attack()], (attack(), attack()), "attacks.length was 1, is 2"),
        (
            [attack()],
            (attack(attack="apgd", eps=1, norm="l2", steps=3),),
            "attacks[0].attack was 'pgd', is 'apgd'; attacks[0].eps was 0.03137254901960784, is 1; "
            "attacks[0].norm was 'linf', is 'l2'; and 1 more",
        ),
        (
            [{"source": LONG + "1"}],
            ({"source": LONG + "2"},),
            "attacks[0].source was ...y_letters(x) + 1', is ...y_letters(x) + 2'",
        ),
    ],
)
def test_what_differs_is_told_by_its_place(before: object, now: object, message: str) -> None:
    assert changes({"settings": {"attacks": before}}, {"attacks": now}) == message


def test_damaged_arrays_read_as_absent(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", {"x": np.arange(1000)})
    assert read_arrays(tmp_path / "a.npz") is not None
    data = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(data[:200])
    assert read_arrays(tmp_path / "a.npz") is None
    for position in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[position] ^= 0x55
        (tmp_path / "a.npz").write_bytes(flipped)
        stored = read_arrays(tmp_path / "a.npz")
        assert stored is None or "x" not in stored or (stored["x"] == np.arange(1000)).all()
    assert read_arrays(tmp_path / "b.npz") is None
