"""Where a number comes from: commit, versions, hardware."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from scaleproof import __version__

PACKAGES = ("numpy", "timm")


def provenance(device: torch.device) -> dict[str, object]:
    """The facts that go with every run: when, with which code, on what."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": versions(),
        "hardware": hardware(device),
    }


def commit() -> str | None:
    """The commit of this source tree, with a + where it was changed since.

    A copy whose history is absent or behind is told by the variable SCALEPROOF_COMMIT; an installed package says None.
    """
    root = Path(__file__).resolve().parents[2]
    told = os.environ.get("SCALEPROOF_COMMIT")
    if told is not None or not (root / ".git").exists():
        return told
    head = git(root, "rev-parse", "--short=12", "HEAD")
    changed = git(root, "status", "--porcelain", "--untracked-files=no")
    return None if head is None else head + ("+" if changed else "")


def git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def versions() -> dict[str, str]:
    """With torch's own name for itself, which says for which CUDA it was built; its package may not."""
    found = {"python": platform.python_version(), "scaleproof": __version__, "torch": torch.__version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def hardware(device: torch.device) -> dict[str, object]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()
    return {"device": device.type, "name": name, "threads": torch.get_num_threads()}


def processor_name() -> str:
    """The processor as Linux calls it, or what the platform says."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
