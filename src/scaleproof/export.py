"""Export: a finished evaluation in the form in which RobustBench keeps models and their numbers."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from scaleproof.attacks import suite
from scaleproof.data.known import CLASS_COUNTS
from scaleproof.files import read_json, write_atomically
from scaleproof.models import LoadedModel, load_model
from scaleproof.models.naming import their_state
from scaleproof.models.specs import is_path
from scaleproof.store import write_json
from scaleproof.threat import Norm, Threat

PLAIN_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]+")
THREATS = {"linf": "Linf", "l2": "L2"}
BOARDS: Mapping[str, Mapping[str, float]] = {  # those that RobustBench has, and their eps
    "cifar10": {"linf": 8 / 255, "l2": 0.5},
    "cifar100": {"linf": 8 / 255},
    "imagenet": {"linf": 4 / 255},
}
EXACT = ("tf32", "float32")  # precisions of gradients that "standard" means
WIDE = {"wrn": "WideResNet", "resnet": "ResNet", "preact-resnet": "PreActResNet"}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a person says of a model for RobustBench; the rest follows from the run."""

    model: str  # RobustBench's name for it: the author, the year and the first word of the title
    title: str | None = None
    authors: str | None = None
    link: str | None = None
    venue: str | None = None
    reported: str | None = None  # robust accuracy in the paper, in percent
    additional_data: bool | None = None
    architecture: str | None = None
    footnote: str | None = None

    def __post_init__(self) -> None:
        if not self.model or "/" in self.model:
            raise ValueError(f"a model's name must be a word such as Me2026First, got {self.model!r}")


def export_robustbench(folder: Path, entry: Entry, out: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Write model_info/DATASET/THREAT/NAME.json and models/DATASET/THREAT/NAME.pt; the paths, and warnings."""
    run, evaluation = finished(folder)
    info, warnings = model_info(run, evaluation, entry)
    loaded = measured_model(evaluation)
    if loaded.classifier.logit_scale != 1:
        raise ValueError(
            f"a checkpoint cannot say that logits are scaled by {loaded.classifier.logit_scale:g}"
        )
    name = evaluation["data"]["name"]
    if not PLAIN_NAME.fullmatch(name) or not PLAIN_NAME.fullmatch(entry.model):
        raise ValueError(
            f"names of data and model become files: letters, digits, - _ and . only, got {name!r}, {entry.model!r}"
        )
    place = Path(name) / THREATS[evaluation["threat"]["norm"]]
    described = out / "model_info" / place / f"{entry.model}.json"
    weights = out / "models" / place / f"{entry.model}.pt"
    taken = [str(path) for path in (described, weights) if path.exists()]
    if taken:
        raise ValueError(
            f"nothing is overwritten, there is already {' and '.join(taken)}: give another --out"
        )
    buffer = io.BytesIO()
    torch.save(their_state(loaded.classifier), buffer)
    write_atomically(weights, buffer.getvalue())
    write_json(described, info)
    return [described, weights], warnings


def finished(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """run.json and evaluation.json of a finished evaluation."""
    paths = [folder / name for name in ("run.json", "evaluation.json")]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise ValueError(
            f"the folder of a finished evaluation must hold {' and '.join(missing)}, {folder} does not"
        )
    run, evaluation = (read_json(path) for path in paths)
    return run, evaluation


def model_info(
    run: Mapping[str, Any], evaluation: Mapping[str, Any], entry: Entry
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """RobustBench's record of a model, and in words what is left out of it and why."""
    threat, data = evaluation["threat"], evaluation["data"]
    found, silence = doubts(evaluation), unexamined(evaluation)
    footnotes = [text.removesuffix(".") for text in (entry.footnote, *found, silence) if text]
    info: dict[str, Any] = {
        "link": entry.link,
        "name": entry.title,
        "authors": entry.authors,
        "additional_data": entry.additional_data,
        "number_forward_passes": run["settings"].get("draws", 1),
        "dataset": data["name"],
        "venue": entry.venue,
        "architecture": entry.architecture or their_architecture(evaluation["model"]["architecture"]),
        "eps": their_eps(threat),
        "reported": entry.reported,
        "footnote": ". ".join(footnotes) if footnotes else None,
        "unreliable": bool(found),
    }
    reasons = {
        "clean_acc": partial_data(data),
        "autoattack_acc": partial_data(data) or other_suite(run, evaluation),
    }
    shares = {"clean_acc": "clean", "autoattack_acc": "worst_case"}
    for name, reason in reasons.items():
        if reason is None:
            info[name] = f"{100 * evaluation[shares[name]]['accuracy']:.2f}"
    warnings = [f"{name} is left out: {reason}" for name, reason in reasons.items() if reason is not None]
    unsaid = [name for name, value in info.items() if value is None and name not in ("reported", "footnote")]
    if unsaid:
        warnings.append(f"RobustBench wants {', '.join(unsaid)} too: give them as options or fill them in")
    if found:
        warnings.append(f"the number is exported as unreliable: {'; '.join(found)}")
    if silence is not None:
        warnings.append(f"{silence}: run the evaluation without --no-checks")
    warnings += other_board(data["name"], threat)
    return {name: value for name, value in info.items() if value is not None}, tuple(warnings)


def doubts(evaluation: Mapping[str, Any]) -> list[str]:
    """Why the number may not be real, in words: the run's warnings, and the checks of its own that failed."""
    said = [finding["meaning"] for finding in evaluation["findings"] if finding["severity"] == "warning"]
    failed = [check for check in evaluation.get("checks") or () if check["passed"] is False]
    said += [f"check failed, {check['label']}: {check['meaning']}" for check in failed]
    if evaluation.get("reliable") is False and not failed:
        said.append("the run calls its own number unreliable")
    return said


def unexamined(evaluation: Mapping[str, Any]) -> str | None:
    """That nobody asked whether the number is real, or None."""
    known = evaluation.get("reliable") is not None or evaluation.get("checks") is not None
    return None if known else "the model was not examined: no check asked whether the number is real"


def other_board(name: str, threat: Mapping[str, Any]) -> list[str]:
    """That RobustBench has no board for such data and threat, in a sentence, or nothing."""
    boards = BOARDS.get(name)
    if boards is None:
        return [f"RobustBench has {', '.join(BOARDS)}, this model was measured on {name}"]
    eps = boards.get(threat["norm"])
    if eps is not None and math.isclose(eps, threat["eps"], rel_tol=1e-4):
        return []
    has = " and ".join(board_name(norm, value) for norm, value in boards.items())
    return [
        f"RobustBench's boards of {name} are for {has}, this run had {board_name(**threat)}: none of them"
    ]


def board_name(norm: str, eps: float) -> str:
    return f"{THREATS[norm]} {their_eps({'norm': norm, 'eps': eps})}"


def partial_data(data: Mapping[str, Any]) -> str | None:
    """Why these are not all test images of a published set, or None."""
    whole = sum(CLASS_COUNTS.get((data["name"], "test"), ()))
    if data["split"] == "test" and data["count"] == whole:
        return None
    told = f"all {whole} test images" if whole else "all test images of a published set"
    return f"it takes {told}, this run had {data['count']} of {data['name']}/{data['split']}"


def other_suite(run: Mapping[str, Any], evaluation: Mapping[str, Any]) -> str | None:
    """Why this was not AutoAttack's standard ensemble, or None."""
    threat, settings = evaluation["threat"], run["settings"]
    wanted = suite("standard", Threat(norm=cast(Norm, threat["norm"]), eps=threat["eps"]))
    described = json.loads(json.dumps([attack.describe() for attack in wanted]))
    if settings["attacks"] != described or evaluation["mode"] != "cascade":
        names = ", ".join(attack["name"] for attack in evaluation["attacks"])
        return f"it takes the suite standard as it is, this run had {names} ({evaluation['mode']})"
    if settings["precision"] not in EXACT:
        return f"it takes gradients in {' or '.join(EXACT)}, this run had {settings['precision']}"
    if settings.get("draws", 1) != 1:
        return f"it takes a model that always answers the same, this run had {settings['draws']} draws"
    return None


def measured_model(evaluation: Mapping[str, Any]) -> LoadedModel:
    """The model of an evaluation, loaded again; one that has changed since is an error."""
    model = evaluation["model"]
    architecture = (
        model["architecture"] if is_path(model["spec"]) and not Path(model["spec"]).is_dir() else None
    )
    loaded = load_model(model["spec"], architecture=architecture, classes=len(evaluation["data"]["classes"]))
    if loaded.sha256 != model["weights_sha256"]:
        raise ValueError(
            f"the weights of {model['spec']} must be those that were measured, they have changed since"
        )
    return loaded


def their_architecture(name: str) -> str:
    """WideResNet-34-10 for wrn-34-10, ResNet-18 for resnet18; another name stays as it is."""
    for ours, theirs in WIDE.items():
        rest = name.removeprefix(ours).removeprefix("-")
        if name.startswith(ours) and rest[:1].isdigit():
            return f"{theirs}-{rest}"
    return name


def their_eps(threat: Mapping[str, Any]) -> str:
    """8/255 where eps is a whole number of grey levels, otherwise as a decimal."""
    levels = 255 * threat["eps"]
    whole = threat["norm"] == "linf" and abs(levels - round(levels)) < 1e-6 and levels > 0.5
    return f"{round(levels)}/255" if whole else f"{threat['eps']:g}"
