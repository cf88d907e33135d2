"""Suites: named lists of attacks, with the settings behind each name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Literal

from scaleproof.attacks.adapters import named_attack
from scaleproof.attacks.apgd import APGD
from scaleproof.attacks.base import Attack
from scaleproof.attacks.fab import FAB
from scaleproof.attacks.pgd import PGD, Keep, fgsm
from scaleproof.attacks.rays import RayS
from scaleproof.attacks.sampled import Nearest, Sampled
from scaleproof.attacks.spsa import SPSA
from scaleproof.attacks.square import Square
from scaleproof.losses import (
    cosine_cross_entropy,
    cross_entropy,
    cw_margin,
    dlr,
    probability_margin,
    standardised_cross_entropy,
    standardised_margin,
)
from scaleproof.threat import Threat

Factory = Callable[[Threat, int, int, float | None], Attack]
OBJECTIVES = {
    "pgd": ("PGD", cross_entropy),
    "pgd-cw": ("PGD-CW", cw_margin),
    "pgd-dlr": ("PGD-DLR", dlr),
    "si-pgd": ("SI-PGD", cosine_cross_entropy()),
    "pgd-pm": ("PGD-PM", probability_margin),
    "pgd-std": ("PGD-STD", standardised_cross_entropy()),
    "pgd-sm": ("PGD-SM", standardised_margin()),
}


def single_attacks() -> Mapping[str, Factory]:
    """Every attack that can be asked for by name: (threat, steps, restarts, step size) -> attack.

    Those of AutoAttack and the black-box ones have their published settings, whatever steps and restarts are asked for.
    """
    return {
        "fgsm": lambda threat, *_: fgsm(threat),
        **{name: pgd_factory(name) for name in OBJECTIVES},
        "pgd-sm": pgd_factory("pgd-sm", keep="best"),
        "apgd-ce": lambda threat, *_: APGD(threat=threat),
        "apgd-dlr": lambda threat, *_: APGD(threat=threat, objective=dlr, name="apgd-dlr", label="APGD-DLR"),
        "apgd-si": lambda threat, *_: APGD(
            threat=threat, objective=cosine_cross_entropy(), name="apgd-si", label="APGD-SI"
        ),
        "apgd-t": lambda threat, *_: APGD(
            threat=threat, objective=dlr, targets=9, name="apgd-t", label="APGD-T"
        ),
        "apgd-cw-t": lambda threat, *_: APGD(
            threat=threat, objective=cw_margin, targets=9, steps=20, name="apgd-cw-t", label="APGD-CW-T"
        ),
        "fab-t": lambda threat, *_: FAB(threat=threat),
        "square": lambda threat, *_: Square(threat=threat),
        **{f"spsa-{samples}": spsa_factory(samples) for samples in (128, 256, 512)},
        "rays": lambda threat, *_: RayS(threat=threat),
        "fab-t-audit": lambda threat, *_: Sampled(FAB(threat=threat)),
        "square-audit": lambda threat, *_: Sampled(Square(threat=threat)),
    }


def spsa_factory(samples: int) -> Factory:
    name, label = f"spsa-{samples}", f"SPSA-{samples}"
    return lambda threat, *_: SPSA(threat=threat, samples=samples, name=name, label=label)


def pgd_factory(name: str, keep: Keep = "last") -> Factory:
    label, objective = OBJECTIVES[name]
    return lambda threat, steps, restarts, step_size: PGD(
        threat=threat,
        objective=objective,
        steps=steps,
        step_size=step_size,
        restarts=restarts,
        keep=keep,
        name=name,
        label=label,
    )


OTHER_NAMES = {"autoattack": "standard", "aa": "standard", "cw": "pgd-cw", "fab": "fab-t", "spsa": "spsa-128"}
AUTOATTACK = ("apgd-ce", "apgd-t", "fab-t", "square")  # "standard", in its order
SUITES: Mapping[str, tuple[str, ...]] = {
    "paper": ("pgd", "pgd-cw", "pgd-dlr", "si-pgd"),
    "objectives": ("pgd", "pgd-cw", "pgd-dlr", "si-pgd", "pgd-pm", "pgd-std"),
    "standard": AUTOATTACK,
    "standard-bf16": AUTOATTACK,
    "quick": ("pgd-sm", "apgd-cw-t"),
    "fast": ("pgd-pm", "pgd-std", "apgd-t", "fab-t-audit", "square-audit"),
    "rand": ("apgd-ce", "apgd-dlr"),
    "blackbox": ("square", "spsa-128", "spsa-256", "spsa-512", "rays"),
}


@dataclass(frozen=True)
class Preset:
    """How a suite is meant to be run: its mode, and the precision of its gradients where none is asked for."""

    mode: str
    precision: Literal["auto", "tf32", "float32"]
    draws: int = 1


PRESETS: Mapping[str, Preset] = {
    "standard": Preset("cascade", "tf32"),
    "standard-bf16": Preset("cascade", "auto"),
    "quick": Preset("cascade", "auto"),
    "fast": Preset("cascade", "auto"),
    "blackbox": Preset("cascade", "auto"),
    "rand": Preset("cascade", "float32", draws=20),
}
OTHERWISE = Preset("independent", "auto")


PRECISIONS = ("auto", "tf32", "float32")  # of presets, from coarse to fine


def preset(names: str) -> Preset:
    """The preset of a suite, or the usual one; of several suites the strictest in everything."""
    found = [PRESETS[name] for name in spelled(names) if name in PRESETS]
    if not found:
        return OTHERWISE
    precision = max((one.precision for one in found), key=PRECISIONS.index)
    return Preset(found[0].mode, precision, max(one.draws for one in found))


def spelled(names: str) -> list[str]:
    """The names between commas: ours whatever their case, those of others as they are."""
    parts, known = [part.strip() for part in names.split(",")], {*SUITES, *single_attacks()}
    return [part.lower() if part.lower() in known else part for part in parts]


class Suite(tuple[Attack, ...]):
    """Attacks that were asked for by name, with how they are meant to be run."""

    preset: Preset = OTHERWISE


def suite(
    names: str,
    threat: Threat | None = None,
    *,
    steps: int | None = None,
    restarts: int | None = None,
    step_size: float | None = None,
) -> Suite:
    """Attacks by name: a suite ("paper"), an attack ("si-pgd"), or several with commas between.

    Their case does not matter. A name with a colon is an attack from elsewhere: see `adapters.named_attack`. Our PGD
    takes 20 steps and one start unless told otherwise.
    """
    singles, threat = single_attacks(), threat or Threat()
    wanted = [one for name in spelled(names) for one in SUITES.get(name, (name,))]
    for name in wanted:
        if name not in singles and ":" not in name:
            raise ValueError(unknown(name, [*SUITES, *singles]))
    pgd = (20 if steps is None else steps, 1 if restarts is None else restarts, step_size)
    made = [
        named_attack(name, threat, steps=steps, restarts=restarts, step_size=step_size)
        if ":" in name
        else singles[name](threat, *pgd)
        for name in wanted
    ]
    if (pgd[1] > 1 or step_size is not None) and all(
        name not in OBJECTIVES and ":" not in name for name in wanted
    ):
        raise ValueError(f"restarts and step sizes are for pgd attacks, got {names!r}, which has its own")
    found = Suite(unique(made))
    found.preset = preset(names)
    return found


AnyAttacks = Attack | Sequence[Attack] | Sequence[str] | str


def as_attacks(attacks: AnyAttacks) -> tuple[Attack, ...]:
    """Attacks by name, one name or several, or made already, checked; a suite stays one."""
    if isinstance(attacks, str):
        return suite(attacks)
    if isinstance(attacks, Suite):
        return attacks
    if isinstance(attacks, list | tuple) and attacks and all(isinstance(one, str) for one in attacks):
        return suite(",".join(attacks))
    several = isinstance(attacks, Iterable) and not isinstance(attacks, type)
    return unique(tuple(attacks) if several else (attacks,))  # type: ignore[arg-type]


def cheap_first(attacks: AnyAttacks) -> tuple[Attack, ...]:
    """Attacks for images that come in blocks, the one with the fewest steps first."""
    found = as_attacks(attacks)
    near = [attack.name for attack in found if isinstance(attack, Nearest)]
    if near:
        raise ValueError(
            f"{near[0]} takes the nearest of all images, which here come in blocks: leave it out"
        )
    return tuple(sorted(found, key=lambda attack: attack.steps * attack.restarts))


def unique(attacks: Sequence[Attack]) -> tuple[Attack, ...]:
    """Attacks that may share an evaluation: ready to run, each with a name of its own, all within one threat."""
    for attack in attacks:
        check_attack(attack)
    names = [attack.name for attack in attacks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not attacks:
        cure = f": give one {twice[0]} another name=, or ask for a name once" if twice else ""
        raise ValueError(
            f"attack names must be unique and at least one, got {', '.join(names) or 'none'}{cure}"
        )
    if any(attack.threat != attacks[0].threat for attack in attacks):
        found = ", ".join(f"{one.name} {one.threat.norm} eps {one.threat.eps}" for one in attacks)
        raise ValueError(
            f"attacks of one evaluation must share one threat, for they share one worst case, got {found}: "
            "evaluate each threat on its own"
        )
    return tuple(attacks)


def check_attack(attack: object) -> None:
    if isinstance(attack, FunctionType):
        raise ValueError(
            f"a function is given as Foreign({attack.__name__}, name=..., threat=...), got it bare"
        )
    if isinstance(attack, type):
        name = attack.__name__
        raise ValueError(
            f"attacks must be made before they are given, got the class {name}: give {name}(...)"
        )
    if isinstance(attack, str):
        raise ValueError(
            f"a list must hold attacks, got the name {attack!r}: give suite({attack!r}), or all names in one text"
        )
    if not all(hasattr(attack, part) for part in ("name", "threat", "init", "step", "finish")):
        raise ValueError(
            f"attacks must be such as PGD(...), names such as 'pgd,si-pgd', or Foreign(function, name=...), "
            f"got {type(attack).__name__}"
        )


def unknown(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(OTHER_NAMES.get(name.lower(), name.lower()), known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"no attack or suite is called {name!r}.{hint} There are: {', '.join(known)}"
