"""Targets: what `reproduce` can be asked for, and the chains of commands that it takes."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch

from scaleproof.paper.claims import Column, Table, claims, tables
from scaleproof.paper.figures import Figure, figures
from scaleproof.paper.scales import Scale
from scaleproof.paper.settings import Experiment, experiments, own_models
from scaleproof.paper.steps import SPSA, Chain, Place, chain, kinds_of

ALL = "all"
TABLE = "table-"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A choice: the tables and figures asked for, and models by patterns with commas between."""

    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    models: str = "*"

    def experiments(self) -> tuple[Experiment, ...]:
        """The models of tables and figures, each once, and those of our own that stand beside published ones."""
        found: dict[str, Experiment] = {}
        for table in self.tables:
            for experiment in (*experiments(table.id), *own_models(table.id)):
                found.setdefault(experiment.model, experiment)
        shown = {model for figure in self.figures for model in figure.models}
        for experiment in experiments():
            if experiment.model in shown:
                found.setdefault(experiment.model, experiment)
        patterns = [pattern.strip() for pattern in self.models.split(",")]
        return tuple(
            one for one in found.values() if any(fnmatch(one.model, pattern) for pattern in patterns)
        )

    def kinds(self, experiment: Experiment) -> tuple[str, ...]:
        """Which evaluations of a model the tables need, and which figures it is in."""
        columns: list[Column] = []
        for table in self.tables:
            beside = {one.model for one in own_models(table.id)}
            of_model = any(claim.row.model == experiment.model for claim in claims(table.id))
            columns += table.columns if of_model or experiment.model in beside else ()
        drawn = [figure.id for figure in self.figures if experiment.model in figure.models]
        kinds = kinds_of(columns)
        dear = [kind for kind in kinds if kind in SPSA]  # last: a run that is cut has all the rest
        return (*(kind for kind in kinds if kind not in dear), *drawn, *dear)

    def chains(self, scale: Scale, place: Place, seeds: Sequence[int]) -> tuple[Chain, ...]:
        """Every model with its first seed, then with the next."""
        return tuple(
            chain(experiment, scale, place, self.kinds(experiment), seed)
            for seed in seeds
            for experiment in self.experiments()
        )


def wanted(names: Sequence[str], models: str = "*") -> Wanted:
    """Tables and figures by name: table-multi-step, fig-scale, or all."""
    every = {TABLE + table.id: table for table in tables()}
    drawn = {figure.id: figure for figure in figures()}
    known = [*every, *drawn, ALL]
    for name in names:
        if name not in known:
            numbered = [TABLE + table.id for table in tables() if name == f"{TABLE}{table.number}"]
            near = numbered or difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"nothing to reproduce is called {name!r}.{hint} There are: {', '.join(known)}")
    chosen = Wanted(
        tables=tuple(table for name, table in every.items() if name in names or ALL in names),
        figures=tuple(figure for name, figure in drawn.items() if name in names or ALL in names),
    )
    found = replace(chosen, models=models)
    if chosen.experiments() and not found.experiments():
        some = ", ".join(one.model for one in chosen.experiments()[:3])
        raise ValueError(f"--models must match a model of what was asked for ({some}, ...), got {models!r}")
    return found
