"""Recipes: a defense's settings and a TrainConfig under a name, with where they come from."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from scaleproof.defenses import (
    AdversarialTraining,
    BatchNormPolicy,
    Defense,
    Divergence,
    Free,
    Inner,
    LogitPairing,
    Mart,
    Trades,
    defense,
)
from scaleproof.threat import Threat
from scaleproof.training.config import TrainConfig
from scaleproof.training.schedule import Cyclic, Steps

TRADES_EPS = Threat(eps=0.031)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to train with, and whose settings they are."""

    name: str
    defense: Defense
    config: TrainConfig
    provenance: str
    moved: str = ""  # how its length and schedule were changed since

    def with_config(self, config: TrainConfig) -> Recipe:
        """The same recipe by another TrainConfig; a length or a schedule of its own is told in the provenance."""
        now = moved(self.config, config)
        if not now:
            return replace(self, config=config)
        provenance = f"{self.provenance} {now[0].upper()}{now[1:]}."
        return replace(
            self, config=config, provenance=provenance, moved="; ".join(filter(None, (self.moved, now)))
        )


def moved(before: TrainConfig, after: TrainConfig) -> str:
    """How the length and the schedule of a training differ from those of its recipe, empty where they do not."""
    if (before.epochs, before.schedule) == (after.epochs, after.schedule):
        return ""
    own = "" if after.schedule == before.lasting(after.epochs).schedule else ", by another schedule"
    length = f"{after.epochs} epochs as before"
    if before.epochs != after.epochs:
        verb = "shrunk" if after.epochs < before.epochs else "stretched"
        length = f"{verb} from {before.epochs} to {plural(after.epochs, 'epoch')}"
    warm_up = before.eps_warm_up or after.eps_warm_up
    grows = f", eps grows over {plural(after.eps_warm_up, 'epoch')}" if warm_up else ""
    return f"{length}{own}: {after.schedule.told()}{grows}"


def plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def is_wide(architecture: str) -> bool:
    return architecture.startswith("wrn")


NARROW = TrainConfig(rate=0.01, weight_decay=5e-4, epochs=120, schedule=Steps((75, 90, 100)))
WIDE = TrainConfig(rate=0.1, weight_decay=7e-4, epochs=90, schedule=Steps((75,)))


def pang(method: Defense, architecture: str) -> Recipe:
    return Recipe(
        name="pang",
        defense=method,
        config=replace(NARROW, rate=0.1),
        provenance="Learning rate and weight decay of Pang et al. 2021, which the SI paper cites for its setup; "
        "its 120 epochs and decays at 75, 90 and 100.",
    )


def paper_literal(method: Defense, architecture: str) -> Recipe:
    return Recipe(
        name="paper-literal",
        defense=method,
        config=WIDE if is_wide(architecture) else NARROW,
        provenance="The SI paper's section 5.1, word for word.",
    )


def mart(method: Defense, architecture: str) -> Recipe:
    return Recipe(
        name="mart",
        defense=method,
        config=WIDE if is_wide(architecture) else replace(NARROW, weight_decay=3.5e-3),
        provenance="The schedule of MART's published code (Wang et al. 2020).",
    )


def svhn(method: Defense, architecture: str) -> Recipe:
    base = paper_literal(method, architecture)
    return replace(
        base,
        name="svhn",
        config=replace(base.config, rate=0.01, augment=False, eps_warm_up=5),
        provenance="The SI paper's schedule as usual for SVHN: rate 0.01, no augmentation, eps grows over 5 epochs.",
    )


def original(method: Defense, architecture: str) -> Recipe:
    """Each method as its own authors ran it."""
    if method.name not in ORIGINALS:
        raise ValueError(f"no original recipe is known for {method.name}: give pang, mart or paper-literal")
    return ORIGINALS[method.name](method, architecture)


def original_at(method: Defense, architecture: str) -> Recipe:
    return Recipe(
        name="original",
        defense=replace(method, batch_norm=BatchNormPolicy(attack="train", attack_updates=True)),
        config=TrainConfig(epochs=200, schedule=Steps((101, 151))),
        provenance="Rice et al. 2020: 200 epochs, learning rate 0.1 over 10 after 100 and 150, attack in train mode.",
    )


TRADES_CONFIG = TrainConfig(epochs=76, weight_decay=2e-4, schedule=Steps((75,)))


def original_trades(method: Defense, architecture: str) -> Recipe:
    own = Inner(threat=TRADES_EPS, objective=Divergence(), step_size=0.007, start="normal", start_size=0.001)
    return Recipe(
        name="original",
        defense=replace(method, inner=own),
        config=TRADES_CONFIG,
        provenance="The published code of TRADES (Zhang et al. 2019): 76 epochs, decay at 75, weight decay 2e-4, "
        "eps 0.031, steps of 0.007, a normal start of 0.001.",
    )


def original_alp(method: Defense, architecture: str) -> Recipe:
    assert isinstance(method, LogitPairing)
    return Recipe(
        name="original",
        defense=replace(method, weight=0.5),
        config=TRADES_CONFIG,
        provenance="Kannan et al. 2018 pair logits with a weight of 0.5; the schedule is that of TRADES' code.",
    )


def original_mart(method: Defense, architecture: str) -> Recipe:
    own = Inner(threat=TRADES_EPS, step_size=0.007, start="normal", start_size=0.001)
    weight = 6.0 if is_wide(architecture) else 5.0
    changes: dict[str, object] = {"inner": own, "weight": weight}
    base = mart(method, architecture)
    return replace(
        base,
        name="original",
        defense=replace(method, **changes),  # type: ignore[arg-type]
        provenance="The published code of MART: its schedule, eps 0.031, steps of 0.007, a normal start of 0.001.",
    )


def original_free(method: Defense, architecture: str) -> Recipe:
    assert isinstance(method, Free)
    epochs = max(1, 96 // method.replay)
    return Recipe(
        name="original",
        defense=method,
        config=TrainConfig(epochs=epochs, rate=0.04, schedule=Cyclic(0.5), guard="stop"),
        provenance="Shafahi et al. 2019 with 8 replays, in the cyclic form of Wong et al. 2020 (rate up to 0.04); "
        "96 passes over the data.",
    )


def original_gat(method: Defense, architecture: str) -> Recipe:
    return Recipe(
        name="original",
        defense=method,
        config=TrainConfig(epochs=100, batch_size=64, schedule=Steps((72, 87)), guard="stop"),
        provenance="The published code of Sriramanan et al. 2020: batches of 64, 100 epochs, learning rate 0.1 over 10 "
        "after 71 and 86 of them (numbers 70 and 85, counted from 0).",
    )


def original_rfgsm(method: Defense, architecture: str) -> Recipe:
    return Recipe(
        name="original",
        defense=method,
        config=TrainConfig(epochs=15, rate=0.2, schedule=Cyclic(0.5), guard="stop"),
        provenance="Wong et al. 2020: 15 epochs, cyclic learning rate up to 0.2 in the middle.",
    )


def original_gradalign(method: Defense, architecture: str) -> Recipe:
    return Recipe(
        name="original",
        defense=method,
        config=TrainConfig(epochs=30, rate=0.3, schedule=Cyclic(0.4), guard="stop"),
        provenance="Andriushchenko and Flammarion 2020: 30 epochs, cyclic learning rate up to 0.3 after 12 of them.",
    )


Maker = Callable[[Defense, str], Recipe]
ORIGINALS: Mapping[str, Maker] = MappingProxyType(
    {
        AdversarialTraining.name: original_at,
        Trades.name: original_trades,
        LogitPairing.name: original_alp,
        Mart.name: original_mart,
        "free": original_free,
        "gat": original_gat,
        "rfgsm": original_rfgsm,
        "gradalign": original_gradalign,
    }
)
RECIPES: Mapping[str, Maker] = MappingProxyType(
    {"pang": pang, "paper-literal": paper_literal, "mart": mart, "svhn": svhn, "original": original}
)


def recipe(method: str, *, name: str | None = None, architecture: str = "resnet18") -> Recipe:
    """A recipe by name; without one, `pang` for multi-step methods and one's own, else each method's own."""
    chosen, own = defense(method), ":" in method
    if name is None:
        name = "original" if chosen.single_step and not own else "pang"
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"a recipe must be one of {', '.join(RECIPES)}, got {name!r}{hint}")
    if name == "original" and own:
        others = ", ".join(other for other in RECIPES if other != "original")
        raise ValueError(
            f"a recipe for a method of your own must be one of {others}, got 'original' for {method}"
        )
    found = RECIPES[name](chosen, architecture)
    if name == "original" or chosen.replays == 1:
        return found
    return found.with_config(found.config.lasting(max(1, found.config.epochs // chosen.replays)))
