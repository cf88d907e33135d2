"""Copy what a run proved from one tree of run folders to another: settings, curves and verdicts, not weights.

    python tools/keep_results.py runs/paper docs/results/paper

A folder that is there already must hold the same run; nothing is overwritten but the paper's figures, which are drawn
from all that is kept.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np

from scaleproof.cli.reproduced import drawn
from scaleproof.paper.scales import FULL
from scaleproof.paper.settings import experiments
from scaleproof.paper.steps import Place, folder_name
from scaleproof.paper.targets import ALL, wanted
from scaleproof.report import figure_files, load_run
from scaleproof.store import write_arrays

KEPT = ("training.json", "evaluation.json", "sweep.json", "analysis.json", "analysis.npz")
VERDICTS = ("verdicts.npz", "verdicts-selected.npz", "verdicts-last.npz")
UNNEEDED = "digest__"  # of examples, which are not kept; they do not compress
CURVE = "curve.png"
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
        copy(run.parent, place)
        copied.append(place)
    return copied


def copy(run: Path, place: Path) -> None:
    for name in VERDICTS:
        if (run / name).exists():
            with np.load(run / name, allow_pickle=False) as arrays:
                kept = {key: arrays[key] for key in arrays.files if not key.startswith(UNNEEDED)}
            write_arrays(place / name, kept)
    if (run / "training.json").exists():
        (place / CURVE).write_bytes(figure_files(load_run(run))[CURVE])
    for name in (*KEPT, LAST):
        if (run / name).exists():
            shutil.copyfile(run / name, place / name)


def settings(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_text())["settings_sha256"])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    root = Path(sys.argv[2])
    kept, paper = keep(Path(sys.argv[1]), root), {folder_name(one.model) for one in experiments()}
    figures = (
        drawn(wanted([ALL]), FULL, Place(root=root)) if paper & {one.name for one in root.iterdir()} else []
    )
    for path in (*kept, *figures):
        print(path)
