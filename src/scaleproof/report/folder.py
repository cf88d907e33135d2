"""Read a run folder and refuse one that is incomplete, damaged or foreign."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from scaleproof.report.analysis.parse import parse_analysis
from scaleproof.report.analysis.records import Analysis
from scaleproof.report.arrays import REMEDY, read_arrays, take
from scaleproof.report.fields import Fields
from scaleproof.report.parse import parse_evaluation, parse_provenance, parse_sweep
from scaleproof.report.records import Array, Evaluation, Gallery, Provenance, Run, Verdicts
from scaleproof.report.training.parse import parse_training

Parsed = TypeVar("Parsed")
GALLERY_FIELDS = ("label", "clean_prediction", "prediction", "attack", "index")


def load_run(folder: Path) -> Run:
    """Read and validate a run folder."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"A run folder must be a folder, but {folder} is not; pass the folder with run.json")
    run = required(folder, "run.json", "scaleproof.run/1", parse_provenance)
    if run.kind == "training":
        return load_training(folder, run)
    analysis = read_analysis(folder)
    if run.kind == "analysis" and analysis is None:
        raise missing("analysis.json", f"a run of kind {run.kind!r} needs it")
    if run.kind == "analysis":
        return Run(run=run, evaluation=None, sweep=None, verdicts=None, gallery=None, analysis=analysis)
    evaluation = optional(folder, "evaluation.json", "scaleproof.evaluation/1", parse_evaluation)
    sweep = optional(folder, "sweep.json", "scaleproof.sweep/1", parse_sweep)
    wanted = {"evaluation": ("evaluation.json", evaluation), "scale-sweep": ("sweep.json", sweep)}[run.kind]
    if wanted[1] is None:
        raise missing(wanted[0], f"a run of kind {run.kind!r} needs it")
    verdicts = read_verdicts(folder / "verdicts.npz", evaluation)
    measured = evaluation or sweep
    gallery = read_gallery(folder, len(measured.data.classes) if measured else 0)
    return Run(
        run=run, evaluation=evaluation, sweep=sweep, verdicts=verdicts, gallery=gallery, analysis=analysis
    )


def read_analysis(folder: Path) -> Analysis | None:
    """Read analysis.json with the arrays that go with it, where the folder has one."""
    if not (folder / "analysis.json").is_file():
        return None
    if not (folder / "analysis.npz").is_file():
        raise missing("analysis.npz", "analysis.json needs it")
    arrays = read_arrays(folder / "analysis.npz")
    return parse_analysis(read_fields(folder / "analysis.json", "scaleproof.analysis/1"), arrays)


def load_training(folder: Path, run: Provenance) -> Run:
    """Read a run of kind training, with the verdicts on the selected weights where they are kept."""
    name = "training.json"
    training = optional(folder, name, "scaleproof.training/1", parse_training)
    if training is None:
        raise missing(name, f"a run of kind {run.kind!r} needs it")
    kept = [training.selected, training.last, *([training.leaking] if training.leaking else [])]
    verdicts = [read_verdicts(folder / f"verdicts-{one.kind}.npz", one.evaluation, name) for one in kept]
    return Run(run=run, evaluation=None, sweep=None, verdicts=verdicts[0], gallery=None, training=training)


def missing(name: str, reason: str) -> ValueError:
    """Say which file is missing, why it matters and what to do."""
    return ValueError(f"{name} is missing from the run folder: {reason}; let the run finish, or {REMEDY}")


def required(folder: Path, name: str, schema: str, parse: Callable[[Fields], Parsed]) -> Parsed:
    """Read a JSON file that a run folder must have."""
    if not (folder / name).is_file() and (folder / "unfinished.json").is_file():
        raise ValueError(
            f"the run in {folder} is not finished: run its command again, it goes on where it was"
        )
    if not (folder / name).is_file():
        raise without(folder, name)
    return parse(read_fields(folder / name, schema))


def without(folder: Path, name: str) -> ValueError:
    """Say that a folder is no run folder, with the runs in it where it holds some."""
    inside = sorted(found.parent.name for found in folder.glob(f"*/{name}"))
    if not inside:
        return missing(name, "every run folder has it")
    return ValueError(
        f"a run folder must hold {name}, {folder} lacks it: give one of the runs in it, {', '.join(inside)}"
    )


def optional(folder: Path, name: str, schema: str, parse: Callable[[Fields], Parsed]) -> Parsed | None:
    """Read a JSON file that a run folder may have."""
    return parse(read_fields(folder / name, schema)) if (folder / name).is_file() else None


def read_fields(path: Path, schema: str) -> Fields:
    """Read a JSON object of the schema that this version of scaleproof writes."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} must be JSON, but is damaged ({error}); {REMEDY}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path.name} must be a JSON object, but is a {type(values).__name__}; {REMEDY}")
    if values.get("schema") != schema:
        raise ValueError(
            f"{path.name} must have schema {schema!r}, but has {values.get('schema')!r}; "
            "render it with the version of scaleproof that wrote it"
        )
    return Fields(file=path.name, place="", values=values)


def read_verdicts(
    path: Path, evaluation: Evaluation | None, source: str = "evaluation.json"
) -> Verdicts | None:
    """Read the verdicts on each image and check that they tell the same story as the file of the shares."""
    if evaluation is None or not path.is_file():
        return None
    arrays, count = read_arrays(path), evaluation.worst_case.count
    names = [attack.name for attack in evaluation.attacks]
    verdicts = Verdicts(
        labels=take(arrays, path.name, "labels", (count,)),
        clean_correct=take(arrays, path.name, "clean_correct", (count,)).astype(bool),
        broken={
            name: take(arrays, path.name, f"broken__{name}", (None, count)).astype(bool) for name in names
        },
        size={name: take(arrays, path.name, f"size__{name}", (None, count)) for name in names},
        attacked={
            name: values.astype(bool) for name, values in spare(arrays, path.name, "attacked", names, count)
        },
        margin=dict(spare(arrays, path.name, "margin", names, count)),
        prediction=dict(spare(arrays, path.name, "prediction", names, count)),
        clean_prediction=take(arrays, path.name, "clean_prediction", (count,))
        if "clean_prediction" in arrays
        else None,
    )
    check_labels(path.name, verdicts.labels, len(evaluation.data.classes))
    for found in (*verdicts.prediction.values(), verdicts.clean_prediction):
        if found is not None:
            check_labels(path.name, found[found != -1], len(evaluation.data.classes))
    check_agreement(verdicts, evaluation, path.name, source)
    return verdicts


def spare(
    arrays: dict[str, Array], file: str, kind: str, names: list[str], count: int
) -> list[tuple[str, Array]]:
    """Return the arrays of one kind, by attack, that a file of verdicts may have."""
    found = [name for name in names if f"{kind}__{name}" in arrays]
    return [(name, take(arrays, file, f"{kind}__{name}", (None, count))) for name in found]


def survivors(verdicts: Verdicts) -> Array:
    """Return which images are classified correctly clean and under every attack and restart."""
    alive = verdicts.clean_correct.copy()
    for broken in verdicts.broken.values():
        alive &= ~broken.any(axis=0)
    return alive


def check_agreement(verdicts: Verdicts, evaluation: Evaluation, file: str, source: str) -> None:
    """Refuse verdicts whose counts differ from those of the evaluation."""
    pairs = (
        ("clean", int(verdicts.clean_correct.sum()), evaluation.clean.correct),
        ("worst_case", int(survivors(verdicts).sum()), evaluation.worst_case.correct),
    )
    for name, counted, stated in pairs:
        if counted != stated:
            raise ValueError(
                f"{file} must agree with {source}, but counts {counted} correct images for "
                f"{name} where {source} states {stated}; the folder mixes two runs: {REMEDY}"
            )


def check_labels(file: str, labels: Array, classes: int) -> None:
    """Refuse labels that name no class."""
    if labels.dtype.kind not in "iu" or (labels.size and not 0 <= labels.min() <= labels.max() < classes):
        raise ValueError(
            f"{file}: classes must be whole numbers from 0 to {classes - 1}, but are {labels.dtype} "
            f"such as {labels[:5].tolist()}; {REMEDY}"
        )


def read_gallery(folder: Path, classes: int) -> Gallery | None:
    """Read gallery.npz, where the folder has one."""
    path = folder / "gallery.npz"
    if not path.is_file():
        return None
    arrays = read_arrays(path)
    clean = take(arrays, path.name, "clean", (None, None, None, None))
    perturbed = take(arrays, path.name, "perturbed", clean.shape)
    if clean.dtype != np.uint8 or clean.shape[1] not in (1, 3) or not np.isfinite(perturbed).all():
        raise ValueError(
            f"{path.name}: clean must be uint8 with 1 or 3 channels and perturbed finite, but clean is "
            f"{clean.dtype} of shape {clean.shape}; {REMEDY}"
        )
    columns = {name: take(arrays, path.name, name, clean.shape[:1]) for name in GALLERY_FIELDS}
    for name in ("label", "clean_prediction", "prediction"):
        check_labels(path.name, columns[name], classes)
    return Gallery(clean=clean, perturbed=perturbed, **columns)
