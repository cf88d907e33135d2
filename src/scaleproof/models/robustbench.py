"""RobustBench's checkpoints: where they lie, and what they hold; nothing in a file is run."""

from __future__ import annotations

import difflib
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scaleproof.models.architectures import Weights, fill, shortened
from scaleproof.models.classifier import Classifier
from scaleproof.models.naming import recognised
from scaleproof.models.swish import STATED, SwishNet

VARIABLE = "SCALEPROOF_ROBUSTBENCH"
FOLDER = "models"  # where RobustBench itself keeps its files
FORM = "robustbench:NAME, robustbench:DATASET/THREAT/NAME, either with @FOLDER, or robustbench:FILE.pt"
NESTED = ("state_dict", "model_state_dict", "model", "net", "last")  # under which the weights may lie
MEANS, DEVIATIONS = ("mean", "mu"), ("std", "sigma")
UNUSED = "sub_block1."  # TRADES' code has this part and never runs it
TAKEN = "the names fit {}: its forward pass is taken for granted, a file of weights does not say it"

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]
HALF: Normalisation = ((0.5,) * 3, (0.5,) * 3)
CIFAR10: Normalisation = ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616))
CIFAR100: Normalisation = (
    (0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
    (0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
)
AUGUSTIN: Normalisation = (
    (0.4913997551666284, 0.48215855929893703, 0.4465309133731618),
    (0.24703225141799082, 0.24348516474564, 0.26158783926049628),
)
KNOWN: Mapping[
    tuple[str, str], Normalisation
] = {  # what RobustBench's code does before models whose files are silent
    ("cifar10", "Hendrycks2019Using"): HALF,
    ("cifar10", "Hendrycks2020AugMix_WRN"): HALF,
    ("cifar10", "Rice2020Overfitting"): CIFAR10,
    ("cifar10", "Chen2020Efficient"): CIFAR10,
    ("cifar10", "Engstrom2019Robustness"): (CIFAR10[0], (0.2023, 0.1994, 0.2010)),
    ("cifar10", "Rony2019Decoupling"): ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
    ("cifar10", "Augustin2020Adversarial"): AUGUSTIN,
    ("cifar10", "Augustin2020Adversarial_34_10"): AUGUSTIN,
    ("cifar10", "Augustin2020Adversarial_34_10_extra"): AUGUSTIN,
    **{
        ("cifar10", f"Kireev2021Effectiveness_{kind}"): CIFAR10
        for kind in ("Gauss50percent", "AugMixNoJSD", "RLAT", "RLATAugMixNoJSD", "RLATAugMix")
    },
    ("cifar100", "Hendrycks2019Using"): HALF,
    ("cifar100", "Hendrycks2020AugMix_WRN"): HALF,
    ("cifar100", "Rice2020Overfitting"): CIFAR100,
    ("cifar100", "Wu2020Adversarial"): CIFAR100,
    ("cifar100", "Chen2020Efficient"): ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
}
OTHERWISE = {"Ding2020MMA": "it standardises every image by itself"}  # what no weights file shows


def load_robustbench(rest: str) -> tuple[Classifier, str, tuple[str, ...]]:
    """The classifier of a spec's latter part, the name of its architecture, and notes."""
    path = checkpoint_path(rest)
    if path.stem in OTHERWISE:
        raise ValueError(f"{path.stem} is none of our architectures: {OTHERWISE[path.stem]}")
    tensors, notes = plain(read_checkpoint(path))
    tensors, found = without_normalisation(tensors)
    net, architecture, ours = recognised(tensors, path)
    notes += fill(net, Weights(path=path, tensors=ours, metadata={}))
    known = KNOWN.get((path.parent.parent.name, path.stem))
    stated = f"cifar{net.head.out_features}" if isinstance(net, SwishNet) else path.parent.parent.name
    if isinstance(net, SwishNet):
        known = STATED.get(net.head.out_features)
    if found is None and known is not None and stated == path.parent.parent.name:
        notes += ("normalised as RobustBench's code does for this model: the file does not say it",)
    elif found is None and known is not None:
        notes += (
            f"taken to be normalised as for {stated}, by its number of classes: the file does not say it",
        )
    mean, std = found or known or (None, None)
    if mean is None:
        notes += ("the file names no normalisation: images go in as they are, from 0 to 1",)
    told = TAKEN.format(architecture)
    return Classifier(net.eval(), mean=mean, std=std), architecture, (*notes, told)


def checkpoint_path(rest: str) -> Path:
    """The file that the latter part of a spec means."""
    name, at, folder = rest.partition("@")
    if not at and name.endswith(".pt"):
        return existing(Path(name).expanduser(), name)
    base = Path(folder if at else os.environ.get(VARIABLE, FOLDER)).expanduser()
    parts = name.split("/")
    if len(parts) == 3:
        return existing(base.joinpath(*parts[:-1], f"{parts[-1]}.pt"), name)
    if len(parts) != 1 or not name:
        raise ValueError(f"a RobustBench model must be {FORM}, got {rest!r}")
    found = sorted(base.glob(f"*/*/{name}.pt"))
    if len(found) > 1:
        told = ", ".join("/".join(path.with_suffix("").parts[-3:]) for path in found)
        raise ValueError(
            f"{name!r} must name one file below {base}, there are {len(found)}: say which of {told}"
        )
    return found[0] if found else existing(base / "DATASET" / "THREAT" / f"{name}.pt", name)


def existing(path: Path, name: str) -> Path:
    if path.is_file():
        return path
    beside = [file.stem for file in path.parents[2].glob("*/*/*.pt")] if len(path.parents) > 2 else []
    close = difflib.get_close_matches(Path(name).stem, beside, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f": give its folder with @FOLDER or in {VARIABLE}"
    raise ValueError(f"a RobustBench model must be a file that is there, there is none at {path}{hint}")


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """The tensors of a .pt file by name; a file that needs more than tensors and plain data is refused."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"{path} must hold tensors and plain data only, it is damaged or asks to run code, which is refused "
            f"({reason}): save its state dict anew where you trust it"
        ) from error
    while isinstance(content, Mapping) and not is_state(content):
        inner: Any = next((content[key] for key in NESTED if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            break
        content = inner
    if not isinstance(content, Mapping) or not is_state(content):
        keys = (
            shortened([str(key) for key in content])
            if isinstance(content, Mapping)
            else type(content).__name__
        )
        raise ValueError(
            f"{path} must hold a state dict, alone or under {', '.join(NESTED)}, it holds {keys}"
        )
    return {str(name): value for name, value in content.items()}


def is_state(content: Mapping[Any, Any]) -> bool:
    return len(content) > 0 and all(isinstance(value, Tensor) for value in content.values())


def plain(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Weights without the prefix that all of them share, and without what the forward pass never runs."""
    stats = [name for name in tensors if is_normalisation(name, tensors[name])]
    others = [name for name in tensors if name not in stats]
    prefix = ""
    while (
        others
        and all("." in name[len(prefix) :] for name in others)
        and len({name[len(prefix) :].partition(".")[0] for name in others}) == 1
    ):
        prefix += others[0][len(prefix) :].partition(".")[0] + "."
    found = {name.removeprefix(prefix) if name in others else name: value for name, value in tensors.items()}
    unused = [name for name in found if name.startswith(UNUSED)]
    notes = (f"{len(unused)} tensors of {UNUSED[:-1]}, which never runs, were left out",) if unused else ()
    return {name: value for name, value in found.items() if name not in unused}, notes


def is_normalisation(name: str, tensor: Tensor) -> bool:
    return name.rpartition(".")[2] in (*MEANS, *DEVIATIONS) and tensor.numel() == 3


def without_normalisation(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Normalisation | None]:
    """Weights apart from the mean and deviation of a normalising layer, and those two where both are there."""
    found = {name: value for name, value in tensors.items() if is_normalisation(name, value)}
    values = {
        name.rpartition(".")[2]: tuple(value.double().flatten().tolist()) for name, value in found.items()
    }
    means, deviations = ([values[key] for key in keys if key in values] for keys in (MEANS, DEVIATIONS))
    rest = {name: value for name, value in tensors.items() if name not in found}
    if len(means) != len(deviations) or len(found) > 2:
        raise ValueError(f"a normalisation must be one mean and one deviation, got {', '.join(found)}")
    return rest, (means[0], deviations[0]) if means else None
