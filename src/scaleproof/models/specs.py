"""Loading a classifier by its spec: the demo, a run folder, a weights file, a factory, other people's models."""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from scaleproof.callables import raised
from scaleproof.files import UNFINISHED
from scaleproof.models.answers import check_answers
from scaleproof.models.architectures import (
    SETTINGS,
    Weights,
    build,
    fill,
    plain_names,
    read_weights,
    save_model,
    weights_digest,
)
from scaleproof.models.classifier import Classifier, LoadedModel, as_classifier, unwrapped
from scaleproof.models.huggingface import load_huggingface
from scaleproof.models.operators import make_torchvision_importable
from scaleproof.models.robustbench import load_robustbench

__all__ = ["LoadedModel", "load_model", "save_model", "weights_digest"]

ASSETS = Path(__file__).parent / "assets"
OWN = ("demo", "undefended")  # networks that come with the package: a robust one and one that is not
FORMS = (
    "demo, undefended, a run folder, a .safetensors file, module:factory, timm:NAME, timm:NAME@FILE.safetensors, "
    "robustbench:NAME@FOLDER or hf:FOLDER"
)
RULE = f"a model spec must be {FORMS}"
OTHERS = {"robustbench": load_robustbench, "hf": load_huggingface}  # what the rest of a spec means there
BEGINNINGS = ("timm:", *(f"{name}:" for name in OTHERS))  # of specs that mean neither a file nor a function


def load_model(spec: str, *, architecture: str | None = None, classes: int = 10) -> LoadedModel:
    """Load what a spec names; `architecture` and `classes` serve where a file does not say them itself."""
    if is_path(spec):
        return from_file(spec, weights_path(Path(spec).expanduser()), architecture)
    if architecture is not None:
        raise ValueError(f"architecture= goes with weights files only, got {architecture!r} with {spec!r}")
    if spec in OWN:
        return replace(from_file(spec, own_path(spec), None), notes=())
    name, colon, rest = spec.partition(":")
    if not colon or not name or not rest:
        raise ValueError(f"{RULE}, got {spec!r}{nearest_spec(spec)}")
    if name in OTHERS:
        classifier, found, notes = OTHERS[name](rest)
        return loaded(classifier, spec, found, notes)
    return from_timm(spec, rest, classes) if name == "timm" else from_factory(spec, name, rest)


def is_path(spec: str) -> bool:
    """Whether a spec means a file or folder: it exists, or has the ending of a weights file."""
    if spec in ("", *OWN) or spec.startswith(BEGINNINGS):
        return False
    path = Path(spec).expanduser()
    return path.exists() or path.suffix == ".safetensors"


def is_code(spec: str) -> bool:
    """Whether a spec means a function of somebody's module."""
    return ":" in spec and not is_path(spec) and not spec.startswith(BEGINNINGS)


def nearest_spec(spec: str) -> str:
    """A suggestion among the demo and the models in this folder, empty where nothing comes near."""
    if "." in spec and (Path().joinpath(*spec.split(".")).with_suffix(".py")).is_file():
        return f"; a function of that module? {spec}:FUNCTION"
    here = [entry.name for entry in Path().iterdir() if entry.suffix == ".safetensors" or entry.is_dir()]
    close = difflib.get_close_matches(spec, [*OWN, *here], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def own_path(spec: str) -> Path:
    path = ASSETS / f"{spec}.safetensors"
    if not path.is_file():
        raise ValueError(
            f"{spec} needs the weights file {path.name}, which this installation lacks: reinstall"
        )
    return path


def weights_path(path: Path) -> Path:
    """The weights file that a path means: itself, or the one inside a run folder."""
    if not path.is_dir():
        return path
    missing = [name for name in ("run.json", "model.safetensors") if not (path / name).is_file()]
    if missing:
        inside = sorted(found.parent.name for found in path.glob("*/model.safetensors"))
        hint = f": give one of the runs in it, {', '.join(inside)}" if inside else ""
        if (path / UNFINISHED).is_file():
            hint = ": the run is not finished, run its command again"
        raise ValueError(
            f"a run folder must hold run.json and model.safetensors, {path} lacks {missing}{hint}"
        )
    return path / "model.safetensors"


def from_file(spec: str, path: Path, architecture: str | None) -> LoadedModel:
    """One of our architectures with the weights of a file."""
    weights = plain_names(read_weights(path))
    name = architecture or weights.metadata.get("architecture")
    if name is None:
        raise ValueError(f"{path} does not say its architecture: give it, as --arch or architecture=")
    net = network_of(name, weights)
    settings = {key: json.loads(weights.metadata[key]) for key in SETTINGS if key in weights.metadata}
    trained = [f"trained as {weights.metadata['trained']}"] if "trained" in weights.metadata else []
    notes = (*weights.notes, *filled(net, weights, name), *trained)
    classifier = Classifier(net.eval(), **settings)
    check_answers(classifier, weights.metadata, str(path))
    return loaded(classifier, spec, name, notes)


def filled(net: nn.Module, weights: Weights, name: str) -> tuple[str, ...]:
    """What `fill` says; where weights do not fit the architecture asked for, what the file says it is."""
    said = weights.metadata.get("architecture", name)
    try:
        return fill(net, weights)
    except ValueError as error:
        if said == name:
            raise
        raise ValueError(
            f"the weights must fit the architecture, {weights.path} says that its own are those of {said!r}, got "
            f"{name!r}, which they do not fit: leave out --arch (architecture=)"
        ) from error


def network_of(name: str, weights: Weights) -> nn.Module:
    """One of our architectures, or what the spec gives that a network was trained from."""
    if ":" in name:
        return load_model(name).classifier.net
    head = weights.tensors.get("head.weight")
    return build(name, classes=10 if head is None or head.dim() != 2 else len(head))


def loaded(classifier: Classifier, spec: str, architecture: str, notes: tuple[str, ...] = ()) -> LoadedModel:
    """A classifier with the digest of its weights."""
    digest = weights_digest(classifier)
    return LoadedModel(
        classifier=classifier, spec=spec, architecture=architecture, sha256=digest, notes=notes
    )


def from_factory(spec: str, module_name: str, factory_name: str) -> LoadedModel:
    """What a function of the user's own module returns."""
    with importing_from_here():
        module = imported(spec, module_name)
        net = called(spec, factory_in(spec, module, factory_name))
    if not isinstance(net, nn.Module):
        raise ValueError(f"{spec!r} must return a torch.nn.Module or a Classifier, got {type(net).__name__}")
    return loaded(as_classifier(net), spec, type(unwrapped(net)).__name__)


def called(spec: str, factory: Callable[[], Any]) -> Any:
    """What a factory returns; what it raises is told with its place."""
    try:
        return factory()
    except Exception as error:
        raise raised(repr(spec), error) from error


@contextmanager
def importing_from_here() -> Iterator[None]:
    """The current folder is on the import path, for as long as this lasts."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)


def imported(spec: str, name: str, rule: str = RULE) -> ModuleType:
    """A module by name; only its own absence is our error to explain, by the rule for such specs."""
    check_module_name(spec, name, rule)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        close = difflib.get_close_matches(name, ["timm", *OTHERS], n=1) if rule == RULE else []
        hint = f"; did you mean '{close[0]}:'?" if close else ""
        if name.endswith(".py"):
            hint = f"; did you mean {spec.replace('.py:', ':')!r}, without the ending?"
        raise ValueError(f"{rule}, got {spec!r}: no module {name!r} here or installed{hint}") from error


def check_module_name(spec: str, name: str, rule: str) -> None:
    """Not a path: a module is looked for in the current folder, where it finds those that it imports."""
    path = Path(name.removesuffix(".py"))
    if path.name != path.as_posix() or name.startswith("."):
        there = "" if path.parent == Path() else f"cd {path.parent} and "
        wanted = spec.replace(name, path.name, 1)
        raise ValueError(f"{rule}, got {spec!r}: a module is no path, so {there}give {wanted!r}")


def factory_in(spec: str, module: ModuleType, name: str) -> Callable[[], Any]:
    """A callable of a module that needs no arguments, or an error."""
    if name not in vars(module):
        close = difflib.get_close_matches(name, vars(module), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{spec!r} must name a function of {module.__name__}, which has no {name!r}{hint}")
    factory: Callable[[], Any] = vars(module)[name]
    if not callable(factory):
        raise ValueError(f"{spec!r} must name a function without arguments, got {type(factory).__name__}")
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise ValueError(f"{spec!r} must be callable without arguments: {error}") from error
    return factory


def from_timm(spec: str, rest: str, classes: int) -> LoadedModel:
    """A timm model with fresh weights, or with those of a local file, and its own normalisation."""
    timm = import_timm()
    name, at, file = rest.partition("@")
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=1)
        hint = f"; did you mean 'timm:{close[0]}'?" if close else ""
        raise ValueError(f"timm has no model named {name!r}{hint}")
    net: nn.Module = timm.create_model(name, pretrained=False, num_classes=classes)
    notes: tuple[str, ...] = ("no weights were given: they are random",)
    if at:
        weights = plain_names(read_weights(Path(file).expanduser()))
        resize_classifier(net, weights)
        notes = (*weights.notes, *fill(net, weights))
    settings = importlib.import_module("timm.data").resolve_model_data_config(net)
    return loaded(Classifier(net.eval(), mean=settings["mean"], std=settings["std"]), spec, name, notes)


def resize_classifier(net: Any, weights: Weights) -> None:
    """Give a timm model as many classes as the weights have."""
    names = net.default_cfg["classifier"]
    name = names if isinstance(names, str) else names[0]
    head = weights.tensors.get(f"{name}.weight")
    if head is not None and len(head) != net.num_classes:
        net.reset_classifier(len(head))


def import_timm() -> Any:
    """The timm package, also where torchvision's compiled operators do not load."""
    make_torchvision_importable()
    try:
        return importlib.import_module("timm")
    except ModuleNotFoundError as error:
        missing = "timm" if error.name == "timm" else f"timm with {error.name}, which is not installed"
        raise ValueError(
            f"specs that begin with timm: need {missing}: pip install -e '.[zoo]' in the folder of scaleproof"
        ) from error
