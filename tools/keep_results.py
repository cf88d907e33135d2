"""Copy what a run proved from one tree of run folders to another: settings, curves and verdicts, not weights.

    python tools/keep_results.py runs/paper docs/results/paper

A folder that is there already must hold the same run; nothing is overwritten.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

KEPT = ("training.json", "evaluation.json", "sweep.json", "analysis.json", "analysis.npz")
KEPT += ("verdicts.npz", "verdicts-selected.npz", "verdicts-last.npz", "curve.png")
OLD = ".old-"  # in the name of a folder that `reproduce` moved away
LAST = "run.json"  # it makes a folder finished


def keep(source: Path, target: Path) -> list[Path]:
    """Every finished run folder below a folder, by its relative place; those that were copied."""
    copied = []
    for run in sorted(source.rglob("run.json")):
        if OLD in run.parent.name:  # of weights that were trained anew since
            continue
        place = target / run.parent.relative_to(source)
        if (place / "run.json").exists():
            if settings(place) != settings(run.parent):
                raise SystemExit(f"{place} holds another run than {run.parent}: move one of them away")
            continue
        place.mkdir(parents=True, exist_ok=True)
        for name in (*KEPT, LAST):
            if (run.parent / name).exists():
                shutil.copyfile(run.parent / name, place / name)
        copied.append(place)
    return copied


def settings(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_text())["settings_sha256"])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    for folder in keep(Path(sys.argv[1]), Path(sys.argv[2])):
        print(folder)
