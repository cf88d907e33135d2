"""Suites: named lists of attacks, with the settings behind each name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

from scaleproof.attacks.base import Attack
from scaleproof.attacks.pgd import PGD, fgsm
from scaleproof.losses import (
    cosine_cross_entropy,
    cross_entropy,
    cw_margin,
    dlr,
    probability_margin,
    standardised_cross_entropy,
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
}


def single_attacks() -> Mapping[str, Factory]:
    """Every attack that can be asked for by name: (threat, steps, restarts, step size) -> attack."""
    return {"fgsm": lambda threat, *_: fgsm(threat), **{name: pgd_factory(name) for name in OBJECTIVES}}


def pgd_factory(name: str) -> Factory:
    label, objective = OBJECTIVES[name]
    return lambda threat, steps, restarts, step_size: PGD(
        threat=threat,
        objective=objective,
        steps=steps,
        step_size=step_size,
        restarts=restarts,
        name=name,
        label=label,
    )


SUITES: Mapping[str, tuple[str, ...]] = {
    "paper": ("pgd", "pgd-cw", "pgd-dlr", "si-pgd"),
    "objectives": ("pgd", "pgd-cw", "pgd-dlr", "si-pgd", "pgd-pm", "pgd-std"),
}


def suite(
    names: str,
    threat: Threat | None = None,
    *,
    steps: int = 20,
    restarts: int = 1,
    step_size: float | None = None,
) -> tuple[Attack, ...]:
    """Attacks by name: a suite ("paper"), an attack ("si-pgd"), or several with commas between."""
    singles, threat = single_attacks(), threat or Threat()
    wanted: list[str] = []
    for name in (part.strip() for part in names.split(",")):
        wanted += SUITES.get(name, (name,))
    for name in wanted:
        if name not in singles:
            raise ValueError(unknown(name, [*SUITES, *singles]))
    return unique([singles[name](threat, steps, restarts, step_size) for name in wanted])


def unique(attacks: Sequence[Attack]) -> tuple[Attack, ...]:
    names = [attack.name for attack in attacks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not attacks:
        raise ValueError(f"attack names must be unique and at least one, got {', '.join(names) or 'none'}")
    return tuple(attacks)


def unknown(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"no attack or suite is called {name!r}.{hint} There are: {', '.join(known)}"
