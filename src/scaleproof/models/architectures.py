"""The architectures that a checkpoint or a command may name, and the weights files that fill them."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from scaleproof.files import write_atomically
from scaleproof.models.classifier import Classifier, as_classifier
from scaleproof.models.hypersphere import HypersphereHead
from scaleproof.models.preact import preact_resnet18, wide_resnet
from scaleproof.models.resnet import resnet18, resnet50, resnet_small, resnet_tiny

ARCHITECTURES: Mapping[str, Callable[..., nn.Module]] = MappingProxyType(
    {  # each takes `classes=`
        "resnet18": resnet18,
        "resnet50": resnet50,
        "preact-resnet18": preact_resnet18,
        "wrn-28-10": partial(wide_resnet, 28, 10),
        "wrn-34-10": partial(wide_resnet, 34, 10),
        "resnet-small": resnet_small,
        "resnet-tiny": resnet_tiny,
    }
)
HYPERSPHERE = "+he"
LISTED = 4  # names that an error lists of each kind
PREFIXES = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before every name
SETTINGS = ("mean", "std", "logit_scale")  # of a Classifier, kept as JSON in the metadata


def build(name: str, classes: int = 10) -> nn.Module:
    """A network with fresh weights; a name that ends in +he has a hypersphere head."""
    if name.endswith(HYPERSPHERE):
        net: nn.Module = build(name.removesuffix(HYPERSPHERE), classes)
        assert isinstance(net.head, nn.Linear)
        net.head = HypersphereHead(net.head.in_features, net.head.out_features)
        return net
    checked_architecture(name)
    if classes < 2:
        raise ValueError(f"a classifier needs two classes or more, got {classes}")
    return ARCHITECTURES[name](classes=classes)


def checked_architecture(name: str, others: str = "") -> str:
    """The name of one of our architectures, with +he at its end or without, or an error; `others` may be given, too."""
    plain = name.removesuffix(HYPERSPHERE)
    if plain not in ARCHITECTURES:
        raise ValueError(
            f"architecture must be one of {', '.join(ARCHITECTURES)}{others}, got {name!r}{nearest(plain)}"
        )
    return name


def nearest(name: str) -> str:
    """The names that come nearest, to end an error message with; empty where none comes near."""
    asked = name.lower().replace("-", "").replace("_", "").replace("wideresnet", "wrn")
    alike = {
        known: difflib.SequenceMatcher(None, known.replace("-", ""), asked).ratio() for known in ARCHITECTURES
    }
    close = [repr(known) for known, share in alike.items() if share == max(0.5, *alike.values())]
    return f"; did you mean {' or '.join(close)}?" if close else ""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The content of a safetensors file."""

    path: Path
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]
    notes: tuple[str, ...] = ()


def read_weights(path: Path) -> Weights:
    """Tensors and metadata of a safetensors file; nothing in it is executed."""
    if not path.is_file():
        raise ValueError(f"weights must be an existing file, there is none at {path}{nearest_file(path)}")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return Weights(path=path, tensors=tensors, metadata=file.metadata() or {})
    except SafetensorError as error:
        raise ValueError(unreadable(path, str(error))) from error


def nearest_file(path: Path) -> str:
    """A suggestion among the weights files of the same folder."""
    beside = [file.name for file in path.parent.glob("*.safetensors")]
    close = difflib.get_close_matches(path.name, beside, n=1)
    return f"; did you mean {str(path.parent / close[0])!r}?" if close else ""


def unreadable(path: Path, reason: str) -> str:
    """Why a file is not safetensors, with the way to convert one that is a pickle."""
    start = path.read_bytes()[:4]
    if not (start == b"PK\x03\x04" or start[:1] == b"\x80"):
        return f"weights must be a safetensors file, {path} is damaged or something else ({reason})"
    return (
        f"weights must be a safetensors file, {path} is a pickle, which may run code: a file of RobustBench's is "
        f"robustbench:{path}; convert others in Python:\n"
        f'  state = torch.load("{path.name}", map_location="cpu", weights_only=True)\n'
        f'  safetensors.torch.save_file(state, "{path.stem}.safetensors", {{"architecture": "resnet18"}})'
    )


def plain_names(weights: Weights) -> Weights:
    """Weights without the prefixes that DataParallel and torch.compile put before every name."""
    tensors, notes = dict(weights.tensors), list(weights.notes)
    while tensors and (prefix := common_prefix(tensors)):
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
        notes.append(f"the prefix {prefix!r} was taken off every name in the weights")
    return Weights(path=weights.path, tensors=tensors, metadata=weights.metadata, notes=tuple(notes))


def common_prefix(tensors: Mapping[str, Tensor]) -> str:
    """The wrapper's prefix that every name has, or nothing."""
    return next((prefix for prefix in PREFIXES if all(name.startswith(prefix) for name in tensors)), "")


def fill(net: nn.Module, weights: Weights) -> tuple[str, ...]:
    """Copy weights that fit exactly into a network, in the network's precision, with notes."""
    wanted, given = net.state_dict(), weights.tensors
    other = [name for name in wanted if name in given and layout(wanted[name]) != layout(given[name])]
    problems = {
        "missing": [name for name in wanted if name not in given],
        "unexpected": [name for name in given if name not in wanted],
        "another shape": [f"{name} {layout(given[name])} for {layout(wanted[name])}" for name in other],
    }
    if any(problems.values()):
        text = "; ".join(f"{kind}: {shortened(names)}" for kind, names in problems.items() if names)
        raise ValueError(f"the weights must fit {type(net).__name__}, those of {weights.path} do not: {text}")
    net.load_state_dict(dict(given))
    stored = {given[name].dtype for name in wanted if given[name].dtype != wanted[name].dtype}
    return tuple(sorted(f"weights stored as {short(dtype)} were converted to float32" for dtype in stored))


def layout(tensor: Tensor) -> str:
    """The shape of a tensor, and its type where that is no floating one."""
    return f"{tuple(tensor.shape)}{'' if tensor.is_floating_point() else ' ' + short(tensor.dtype)}"


def short(dtype: torch.dtype) -> str:
    """The name of a type without its package."""
    return str(dtype).removeprefix("torch.")


def shortened(names: list[str]) -> str:
    """A count and the first few names."""
    more = ", ..." if len(names) > LISTED else ""
    return f"{len(names)} ({', '.join(names[:LISTED])}{more})"


def renamed(tensors: Mapping[str, Tensor], names: Mapping[str, str], path: Path) -> dict[str, Tensor]:
    """These tensors of a file under other names, each under one of its own."""
    times = Counter(names.values())
    twice = [name for name in tensors if times[names[name]] > 1]
    if twice:
        raise ValueError(
            f"{path} must hold every weight under one name, leave out all but one of: {shortened(twice)}"
        )
    return {names[name]: tensor for name, tensor in tensors.items()}


def save_model(
    path: Path | str, net: nn.Module, architecture: str, metadata: Mapping[str, str] | None = None
) -> str:
    """Write a network's weights as safetensors, whole or not at all, and return their digest."""
    header = {**(metadata or {}), "architecture": architecture, **settings_of(as_classifier(net))}
    wrong = [key for key, value in header.items() if not isinstance(value, str)]
    if wrong:
        raise ValueError(f"metadata must be strings, those of {wrong} are not: write them as JSON")
    tensors = {name: tensor.cpu().contiguous().clone() for name, tensor in state_of(net).items()}
    write_atomically(Path(path), in_order(save(tensors, header)))
    return weights_digest(net)


def in_order(data: bytes) -> bytes:
    """The same safetensors file, its metadata in the order of their names: equal weights are equal bytes."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight bytes
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def settings_of(classifier: Classifier) -> dict[str, str]:
    """Normalisation and scale of the logits, where they do something, as JSON."""
    settings: dict[str, str] = {}
    if classifier.mean is not None and classifier.std is not None:
        settings = {"mean": json.dumps(classifier.mean.tolist()), "std": json.dumps(classifier.std.tolist())}
    return (
        settings if classifier.logit_scale == 1 else settings | {"logit_scale": f"{classifier.logit_scale}"}
    )


def state_of(net: nn.Module) -> dict[str, Tensor]:
    """The tensors of a network's state dict, by their names in the unwrapped network."""
    state = as_classifier(net).unwrapped.state_dict()
    return {name: value.detach() for name, value in state.items() if isinstance(value, Tensor)}


def weights_digest(net: nn.Module) -> str:
    """The sha256 of every tensor's name, type, shape and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state_of(net).items()):
        digest.update(f"{name} {short(tensor.dtype)} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
