"""The runner on a Ray cluster: one chain a task, one GPU each, on folders that every machine sees."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from scaleproof.paper.runner import Failure, Tell, held, in_this_process, run_steps
from scaleproof.paper.steps import Chain

VARIABLES = ("SCALEPROOF_DATA", "SCALEPROOF_COMMIT", "PYTHONPATH")  # that workers must see
PATIENCE = 10.0  # seconds until an address that does not answer is given up
RETRIES = 5  # of a chain whose worker died; what was done stays done


def run_on_ray(
    chains: Sequence[Chain],
    *,
    address: str | None,
    tell: Tell,
    after: Callable[[Chain], None] = lambda chain: None,
) -> list[Failure]:
    """Every chain once, spread over the cluster at an address (None: one that is running, or a new one here)."""
    try:
        ray: Any = import_module("ray")  # its types are of no use here
    except ImportError:
        raise ValueError("--ray needs Ray: pip install -e '.[cluster]' in the folder of scaleproof") from None
    if not chains:
        return []
    started = not ray.is_initialized()
    if started:
        check_reachable(address)
        told = {name: os.environ[name] for name in VARIABLES if name in os.environ}
        ray.init(
            address=address, log_to_driver=False, logging_level="warning", runtime_env={"env_vars": told}
        )
    try:
        gpus = 1 if ray.cluster_resources().get("GPU", 0) else 0
        # A worker serves one chain and goes: the next one finds the memory of its GPU empty.
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, max_calls=1)(work)
        pending = {task.remote(chain): chain for chain in chains}
        tell(f"{len(pending)} chains on {int(ray.cluster_resources().get('CPU', 0))} workers")
        failures: list[Failure] = []
        while pending:
            (done, *_), _ = ray.wait(list(pending), num_returns=1)
            chain = pending.pop(done)
            try:
                failures += ray.get(done)
            except ray.exceptions.RayError as error:  # its workers died too often: the others go on
                step = next(iter(chain.missing), chain.steps[0])
                failures.append(Failure(step=step, code=1, words=str(error)))
            tell(f"ended: {chain.folder}")
            after(chain)
        return failures
    finally:
        if started:
            ray.shutdown()


def check_reachable(address: str | None) -> None:
    """Ask for a cluster that answers: Ray itself would wait for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise ValueError(f"--ray-address must be that of a running cluster, {address}: {error}") from None


def work(chain: Chain) -> list[Failure]:
    """A chain inside a worker: a killed worker leaves nothing running behind, and the next one resumes."""
    with held(chain.folder, silent):
        return run_steps(chain.steps, in_this_process, silent)


def silent(words: str) -> None:
    """Nobody listens inside a worker."""
