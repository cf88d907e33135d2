"""What a person reads of folders that cannot be written and of checkpoints that are damaged."""

from __future__ import annotations

import errno
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from scaleproof.cli.main import advice, main
from scaleproof.files import write_atomically
from scaleproof.training.checkpoint import files
from test_train_command import ENVIRONMENT, QUICK, TESTS, kill_at

QUIET = ["--no-report", "--checkpoint-seconds", "0"]


def train(*arguments: object) -> tuple[int, str]:
    command = [sys.executable, "-m", "scaleproof", "train", "standard", *QUICK, *QUIET, *map(str, arguments)]
    done = subprocess.run(command, cwd=TESTS, env=ENVIRONMENT, capture_output=True, text=True, timeout=200)
    return done.returncode, done.stderr


@pytest.mark.parametrize("below", ["", "run", "runs/run"])
def test_a_file_in_the_place_of_the_run_folder_is_named(below: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    code, said = train("--epochs", "1", "--out", file / below)
    assert code == 2
    wanted = (
        f"error: {file / below} cannot be a folder, for {file} is a file: give another path (--out, where"
    )
    assert wanted in said


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_folder_without_rights_is_named(number: int) -> None:
    said = advice(OSError(number, "Not allowed", "runs/x"))
    assert said.startswith(
        "runs/x may not be used (Not allowed): change its rights, or give another path (--out"
    )


def test_a_full_disk_is_named_by_the_file_that_was_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(tmp_path / "run.json", b"{}")
    assert advice(caught.value).startswith(
        f"the disk is full at {tmp_path / 'run.json'}; finished work is kept"
    )


def test_what_kept_a_file_from_being_written_is_told_where_nothing_can_be_removed_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="Read-only") as caught:
        write_atomically(tmp_path / "run.json", b"{}")
    assert advice(caught.value).startswith(f"{tmp_path / 'run.json'} may not be used (Read-only file system)")


def test_errors_that_nobody_foresaw_stay_as_they_are() -> None:
    assert advice(OSError(errno.EEXIST, "File exists", "nowhere/x")) == "[Errno 17] File exists: 'nowhere/x'"
    assert advice(OSError("broken")) == "broken"


def test_a_damaged_checkpoint_is_a_note(tmp_path: Path) -> None:
    kill_at(tmp_path / "run", 2, "standard", *QUICK, *QUIET)
    last = files(tmp_path / "run" / "units")[0]
    last.write_bytes(last.read_bytes()[:-1])
    code, said = train("--out", tmp_path / "run")
    assert code == 0
    assert f"note: {last.name} is damaged: " in said
    assert "UserWarning" not in said


def test_commands_of_one_process_leave_its_warnings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    show = warnings.showwarning
    monkeypatch.setattr(sys, "argv", ["scaleproof", "--version"])
    with pytest.raises(SystemExit):
        main()
    assert warnings.showwarning is show
