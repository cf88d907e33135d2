"""The runner: chains of commands, several side by side, each held by a lock while somebody works on it.

A step is a command in a process of its own, so that it can be killed, resumed, and repeated by hand.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import Queue
from runpy import run_module
from typing import IO

from scaleproof.locks import locked
from scaleproof.paper.steps import DONE, STALE, Chain, Step

Tell = Callable[[str], None]
LOCK = "lock"  # in a chain's folder, with the number of the process that holds it
WAIT = 0.2  # seconds between two looks at a lock
INTERRUPTED = 130  # the exit code of a command that Ctrl-C ended
LOG_COLUMNS = "140"  # of what is printed into a file
LOG_LINES = 12  # of a failed step that are shown


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A step that ended with an error, and the end of what it printed."""

    step: Step
    code: int
    words: str


@contextmanager
def held(folder: Path, tell: Tell, given_up: Callable[[], bool] = lambda: False) -> Iterator[IO[str]]:
    """The lock of a chain's folder: whoever comes second waits. It ends with the process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as stream:
        if not locked(stream.fileno()):
            stream.seek(0)
            tell(f"{folder}: another process works here ({stream.read().strip()}); waiting for it")
            while not locked(stream.fileno()):
                if given_up():
                    raise KeyboardInterrupt from None
                time.sleep(WAIT)
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield stream


class Runner:
    """Runs chains on this machine; a step that fails ends its own chain alone.

    Each step has a fresh process, unless they are so small that starting one would take longer (`fresh=False`).
    """

    def __init__(
        self, *, jobs: int = 1, fresh: bool = True, tell: Tell = print, gpus: Sequence[str] = ()
    ) -> None:
        if jobs < 1:
            raise ValueError(f"jobs must be >= 1, got {jobs}")
        self.jobs, self.fresh, self.tell = jobs, fresh or jobs > 1, tell
        self.places: Queue[str | None] = Queue()  # a GPU for each job, as CUDA names it; or whatever it finds
        for job in range(jobs):
            self.places.put(gpus[job % len(gpus)] if gpus else None)
        self.processes: set[subprocess.Popen[bytes]] = set()
        self.stopped = threading.Event()

    def run(
        self, chains: Sequence[Chain], after: Callable[[Chain], None] = lambda chain: None
    ) -> list[Failure]:
        """Every chain once; `after` is called with each that ended, in this thread."""
        if not self.fresh:
            return [failure for chain in chains for failure in self.run_here(chain, after)]
        with ThreadPoolExecutor(self.jobs) as pool:
            futures = {pool.submit(self.run_chain, chain): chain for chain in chains}
            try:
                failures: list[Failure] = []
                for future in as_completed(futures):
                    failures += future.result()
                    after(futures[future])
                return failures
            except BaseException:
                self.stop()
                pool.shutdown(cancel_futures=True)
                raise

    def run_here(self, chain: Chain, after: Callable[[Chain], None]) -> list[Failure]:
        with held(chain.folder, self.tell):
            failures = run_steps(chain.steps, in_this_process, self.tell)
        after(chain)
        return failures

    def run_chain(self, chain: Chain) -> list[Failure]:
        if self.stopped.is_set():
            return []
        gpu = self.places.get()
        try:
            with held(chain.folder, self.tell, self.stopped.is_set) as lock:
                return run_steps(
                    chain.steps,
                    lambda step: self.in_a_process(step, lock, gpu),
                    self.tell,
                    self.stopped.is_set,
                )
        finally:
            self.places.put(gpu)

    def in_a_process(self, step: Step, lock: IO[str], gpu: str | None = None) -> tuple[int, str]:
        """One command in a process of its own, which holds the lock too; side by side each prints into a file."""
        with log_of(step).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "scaleproof", *step.command],
                stdin=subprocess.DEVNULL,
                stdout=log if self.jobs > 1 else None,
                stderr=log if self.jobs > 1 else None,
                pass_fds=(lock.fileno(),),
                env=environment(gpu, wide=self.jobs > 1),
            )
            self.processes.add(process)
            if self.stopped.is_set():  # it was started while all were being stopped
                process.send_signal(signal.SIGTERM)
            try:
                code = process.wait()
            finally:
                self.processes.discard(process)
        return code, last_lines(log_of(step)) if self.jobs > 1 else ""  # else it was printed already

    def stop(self) -> None:
        """Ask what runs to stop; every step goes on from its last checkpoint the next time."""
        self.stopped.set()
        for process in list(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)


def environment(gpu: str | None, *, wide: bool) -> dict[str, str]:
    """What a step sees: one GPU where one is given, and wide lines where it prints into a file."""
    own = {"CUDA_VISIBLE_DEVICES": gpu} if gpu is not None else {}
    return {**os.environ, **own, **({"COLUMNS": LOG_COLUMNS} if wide else {})}


def run_steps(
    steps: Iterable[Step],
    execute: Callable[[Step], tuple[int, str]],
    tell: Tell,
    stopped: Callable[[], bool] = lambda: False,
) -> list[Failure]:
    """Steps one after the other, those done left out, until one fails or all are stopped."""
    for step in steps:
        if stopped():
            return []
        if step.state == DONE:
            continue
        if step.state == STALE:
            tell(
                f"{step.folder} is of other weights than were trained since: moved to {moved_away(step.folder)}"
            )
        tell(f"{step.kind}: {step.folder}")
        code, words = execute(step)
        if code != 0 and stopped():
            return []
        if code != 0:
            tell(f"{step.kind} ended with code {code}: {step.folder}")
            return [Failure(step=step, code=code, words=words)]
    return []


def moved_away(folder: Path) -> Path:
    """Give a folder another name, the first that is free, so that its run can be done again."""
    names = (folder.with_name(f"{folder.name}.old-{number}") for number in count(1))
    free = next(path for path in names if not path.exists())
    return folder.rename(free)


def in_this_process(step: Step) -> tuple[int, str]:
    """One command in this process, as `python -m scaleproof` runs it, printing into its file."""
    words, log = sys.argv, log_of(step)
    with log.open("a", encoding="utf-8") as stream, redirect_stdout(stream), redirect_stderr(stream):
        sys.argv = ["scaleproof", *step.command]
        try:
            run_module("scaleproof", run_name="__main__")
            code: object = 0
        except SystemExit as end:
            code = end.code
        except Exception:
            traceback.print_exc()
            code = 1
        finally:
            sys.argv = words
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return (code if isinstance(code, int) else 0 if code is None else 1), last_lines(log)


def log_of(step: Step) -> Path:
    return step.folder.with_suffix(".log")


def last_lines(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", errors="replace").splitlines()[-LOG_LINES:])
