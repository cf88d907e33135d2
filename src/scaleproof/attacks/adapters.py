"""Attacks of other packages, and functions of the user's own modules, as Foreign attacks."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from scaleproof.attacks.base import Attack
from scaleproof.attacks.foreign import Foreign
from scaleproof.models.specs import called, check_module_name, importing_from_here
from scaleproof.threat import DEFAULT_THREAT, Threat

NORMS = {"linf": "Linf", "l2": "L2"}  # as AutoAttack and torchattacks write them
POWERS = {"linf": math.inf, "l2": 2}
STRIDES = ("alpha", "step_size", "abs_stepsize")  # what a step size is called
SPEC = "torchattacks:NAME, foolbox:NAME or module:function"


def named_attack(
    spec: str,
    threat: Threat = DEFAULT_THREAT,
    *,
    steps: int | None = None,
    restarts: int | None = None,
    step_size: float | None = None,
) -> Attack:
    """The attack that a spec such as torchattacks:PGD, foolbox:LinfPGD or my_module:my_attack names.

    A function is told eps and the norm where it takes them, and steps and a step size where it takes both; a class of
    this package's own kind is given the threat, and what was asked for where it takes it. The rest is their own.
    """
    package, _, name = spec.partition(":")
    if not package or not name:
        raise ValueError(f"an attack from elsewhere must be {SPEC}, got {spec!r}")
    known = {"torchattacks": from_torchattacks, "foolbox": from_foolbox}
    offered = {
        "eps": threat.eps,
        "norm": NORMS[threat.norm],
        "steps": 20 if steps is None else steps,
        **dict.fromkeys(STRIDES, step_size),
    }
    starts = 1 if restarts is None else restarts
    if package in known:
        return known[package](spec, threat, starts, offered)
    asked = {"steps": steps, "restarts": restarts, "step_size": step_size}
    check_module_name(spec, package, f"an attack from elsewhere must be {SPEC}")
    with importing_from_here():
        found = attribute(spec, imported(package), name)
        own = own_attack(spec, found, threat, {k: v for k, v in asked.items() if v is not None})
    return own or from_function(spec, found, threat, starts, offered)


def from_torchattacks(spec: str, threat: Threat, restarts: int, offered: Mapping[str, Any]) -> Foreign:
    name = spec.partition(":")[2]
    kind = attribute(spec, imported("torchattacks"), name)
    taken = wanted(kind, offered)
    return Foreign(
        Torchattack(kind, taken),
        name=f"torchattacks-{name}",
        label=f"torchattacks {name}",
        threat=threat,
        restarts=restarts,
        minimal="eps" not in taken,
        settings={"spec": spec, "package": installed("torchattacks"), **taken},
    )


def from_foolbox(spec: str, threat: Threat, restarts: int, offered: Mapping[str, Any]) -> Foreign:
    name = spec.partition(":")[2]
    kind = attribute(spec, imported("foolbox").attacks, name)
    attack = kind(**wanted(kind, offered))
    return foolbox_attack(
        attack, name=f"foolbox-{name}", label=f"foolbox {name}", threat=threat, restarts=restarts
    )


def from_function(
    spec: str, function: Any, threat: Threat, restarts: int, offered: Mapping[str, Any]
) -> Foreign:
    if inspect.isclass(function) or not callable(function):
        raise ValueError(
            f"{spec!r} must name a function (model, x, y) -> x_adv, an Attack, or what makes one of a threat, "
            f"got a {type(function).__name__}"
        )
    taken = wanted(function, {**offered, "norm": threat.norm})
    try:
        inspect.signature(function).bind(None, None, None, **taken)
    except TypeError as error:
        raise ValueError(f"{spec!r} must be callable as (model, x, y): {error}") from error
    return Foreign(
        partial(function, **taken),
        name=spec.replace(":", "-"),
        label=spec.partition(":")[2],
        threat=threat,
        restarts=restarts,
        settings={"spec": spec, **taken},
    )


def own_attack(spec: str, found: Any, threat: Threat, asked: Mapping[str, Any]) -> Attack | None:
    """An attack of this package's own kind: one that is made, or by a class of such or a function of a threat."""
    if not is_attack(found):
        offered = {"threat": threat, **asked}
        if not makes_attacks(found, offered):
            return None
        made = called(spec, partial(found, **accepted(found, offered), **passed_on(found, threat)))
        if not is_attack(made):
            raise ValueError(f"{spec!r} must give an Attack, got a {type(made).__name__}")
        found = made
    attack: Attack = found
    if attack.threat != threat:
        raise ValueError(f"{spec!r} attacks within {vars(attack.threat)}, the others within {vars(threat)}")
    return attack


def is_attack(found: object) -> bool:
    return hasattr(found, "init") and hasattr(found, "step") and not inspect.isclass(found)


def makes_attacks(found: Any, offered: Mapping[str, Any]) -> bool:
    """Whether it is a class of attacks, or a function that takes a threat and needs no more than what is offered."""
    if inspect.isclass(found):
        return hasattr(found, "init") and hasattr(found, "step")
    if not inspect.isfunction(found) or "threat" not in inspect.signature(found).parameters:
        return False
    try:
        inspect.signature(found).bind(**accepted(found, offered))
    except TypeError:
        return False
    return True


def accepted(function: Any, offered: Mapping[str, Any]) -> dict[str, Any]:
    """What a callable takes of what is offered, by name."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in offered.items() if name in names}


def passed_on(function: Any, threat: Threat) -> dict[str, Any]:
    """The threat, for what takes any keyword to hand it on."""
    parameters = inspect.signature(function).parameters
    anything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return {"threat": threat} if anything and "threat" not in parameters else {}


def wanted(function: Any, offered: Mapping[str, Any]) -> dict[str, Any]:
    """What a callable takes of what is offered; steps only with a step size, and eps / 4 as one only with steps."""
    found = accepted(function, offered)
    strides = [name for name in STRIDES if name in found]
    if "steps" in found:
        found |= {name: offered["eps"] / 4 for name in strides if found[name] is None}
    return {
        name: value for name, value in found.items() if value is not None and (name != "steps" or strides)
    }


def attribute(spec: str, module: Any, name: str) -> Any:
    """What a module calls by this name, or an error with the nearest name."""
    if name not in vars(module):
        close = difflib.get_close_matches(name, [key for key in vars(module) if not key.startswith("_")], n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{spec!r} must name something in {module.__name__}, which has no {name!r}{hint}")
    return vars(module)[name]


def imported(name: str) -> Any:
    """A module by name; only its own absence is our error to explain."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(
            f"an attack from elsewhere must be {SPEC}: no module {name!r} here or installed"
        ) from error


def installed(package: str) -> str:
    return f"{package} {version(package)}"


@dataclass(frozen=True)
class Torchattack:
    """Build a torchattacks attack around the model and run it; its seed follows the global one."""

    kind: Any
    settings: Mapping[str, Any]

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Any:
        names = inspect.signature(self.kind).parameters
        late: dict[str, int] = {}
        if "n_classes" in names:
            late["n_classes"] = model(x[:1]).shape[1]
        if "seed" in names:
            late["seed"] = int(torch.randint(2**31 - 1, ()))
        return self.kind(model, **self.settings, **late)(x, y)


def torchattacks_attack(
    factory: Callable[[nn.Module], Any],
    *,
    name: str,
    threat: Threat = DEFAULT_THREAT,
    label: str = "",
    restarts: int = 1,
    minimal: bool = False,
    settings: Mapping[str, object] | None = None,
) -> Foreign:
    """A torchattacks attack from a factory such as `lambda model: torchattacks.PGD(model, eps=8/255)`."""
    return Foreign(
        Built(factory),
        name=name,
        threat=threat,
        label=label,
        restarts=restarts,
        minimal=minimal,
        settings={"package": installed("torchattacks"), **(settings or {})},
    )


@dataclass(frozen=True)
class Built:
    """Build an attack around the model, then call it with images and labels."""

    factory: Callable[[nn.Module], Any]

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Any:
        return self.factory(model)(x, y)


def foolbox_attack(
    attack: Any, *, name: str, threat: Threat = DEFAULT_THREAT, label: str = "", restarts: int = 1
) -> Foreign:
    """A foolbox attack such as `foolbox.attacks.LinfPGD(steps=20)`; eps is the threat's."""
    power = getattr(getattr(attack, "distance", None), "p", None)
    if power != POWERS[threat.norm]:
        raise ValueError(
            f"the threat is {threat.norm}, {type(attack).__name__} measures with p = {power}: match them"
        )
    return Foreign(
        Foolbox(attack, threat.eps),
        name=name,
        threat=threat,
        label=label,
        restarts=restarts,
        settings={"package": installed("foolbox"), "foolbox": repr(attack)},
    )


@dataclass(frozen=True)
class Foolbox:
    """Wrap the model as foolbox wants it and return the examples that it has clipped to the budget."""

    attack: Any
    eps: float

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Any:
        wrapped = imported("foolbox").PyTorchModel(model, bounds=(0, 1), device=x.device)
        _, clipped, _ = self.attack(wrapped, x, y, epsilons=self.eps)
        return clipped
