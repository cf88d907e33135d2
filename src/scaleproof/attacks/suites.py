"""Suites: named lists of attacks, with the settings behind each name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

from scaleproof.attacks.base import Attack
from scaleproof.attacks.pgd import PGD, fgsm, si_pgd
from scaleproof.losses import cw_margin, dlr, probability_margin, standardised_cross_entropy
from scaleproof.threat import Threat

Factory = Callable[[Threat, int, int], PGD]


def single_attacks() -> Mapping[str, Factory]:
    """Every attack that can be asked for by name: (threat, steps, restarts) -> attack."""
    return {
        "fgsm": lambda threat, steps, restarts: fgsm(threat),
        "pgd": lambda threat, steps, restarts: PGD(threat=threat, steps=steps, restarts=restarts),
        "pgd-cw": lambda threat, steps, restarts: PGD(
            threat=threat, objective=cw_margin, steps=steps, restarts=restarts, name="pgd-cw", label="PGD-CW"
        ),
        "pgd-dlr": lambda threat, steps, restarts: PGD(
            threat=threat, objective=dlr, steps=steps, restarts=restarts, name="pgd-dlr", label="PGD-DLR"
        ),
        "si-pgd": lambda threat, steps, restarts: si_pgd(threat, steps=steps, restarts=restarts),
        "pgd-pm": lambda threat, steps, restarts: PGD(
            threat=threat,
            objective=probability_margin,
            steps=steps,
            restarts=restarts,
            name="pgd-pm",
            label="PGD-PM",
        ),
        "pgd-std": lambda threat, steps, restarts: PGD(
            threat=threat,
            objective=standardised_cross_entropy(),
            steps=steps,
            restarts=restarts,
            name="pgd-std",
            label="PGD-STD",
        ),
    }


SUITES: Mapping[str, tuple[str, ...]] = {
    "paper": ("pgd", "pgd-cw", "pgd-dlr", "si-pgd"),
    "objectives": ("pgd", "pgd-cw", "pgd-dlr", "si-pgd", "pgd-pm", "pgd-std"),
}


def suite(
    names: str, threat: Threat | None = None, *, steps: int = 20, restarts: int = 1
) -> tuple[Attack, ...]:
    """Attacks by name: a suite ("paper"), an attack ("si-pgd"), or several with commas between."""
    singles, threat = single_attacks(), threat or Threat()
    wanted: list[str] = []
    for name in (part.strip() for part in names.split(",")):
        wanted += SUITES.get(name, (name,))
    for name in wanted:
        if name not in singles:
            raise ValueError(unknown(name, [*SUITES, *singles]))
    return unique([singles[name](threat, steps, restarts) for name in wanted])


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
