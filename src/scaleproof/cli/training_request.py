"""What `scaleproof train` was asked for, turned into plans: every word checked before anything is computed."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from scaleproof.cli import options
from scaleproof.cli.training_words import check_model, resized, schedule

if TYPE_CHECKING:
    from scaleproof.data import Dataset
    from scaleproof.defenses import Defense
    from scaleproof.speed import Speed
    from scaleproof.speed.backends import Precision
    from scaleproof.threat import Norm
    from scaleproof.train import Plan
    from scaleproof.training import Recipe, TrainConfig


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """The options as they were typed."""

    method: str
    si: bool
    si_half: str
    scale: float
    margin: float
    beta: float
    he: bool
    model: str
    data: str
    data_folder: Path | None
    limit: int | None
    test_data: str | None
    test_limit: int | None
    recipe: str | None
    epochs: int | None
    decays: str | None
    rate: float | None
    weight_decay: float | None
    batch_size: int | None
    schedule: str | None
    weight: float | None
    norm: str | None
    eps: str | None
    steps: int | None
    step_size: str | None
    eps_warm_up: int | None
    average: float | None
    validation: int | None
    augment: bool | None
    attack_mode: str | None
    guard: str | None
    attacks: str
    seed: int
    seeds: str | None
    precision: str
    graph: bool | None
    sync_batch_norm: bool
    checkpoint_seconds: float
    out: Path | None

    def plans(self, device: Any) -> list[Plan]:
        """One plan a seed, every word checked."""
        from scaleproof.attacks import suite
        from scaleproof.evaluator import checked_mode
        from scaleproof.train import Plan
        from scaleproof.training import checks
        from scaleproof.training.guard import check_guard

        check_model(self.model, he=self.he)
        self.check_si()
        if not self.checkpoint_seconds >= 0:
            raise ValueError(
                f"--checkpoint-seconds must be >= 0, got {self.checkpoint_seconds:g}: 0 writes one after every epoch"
            )
        found, config = self.adapted, self.adapted.config
        defense = self.defense(found.defense)
        checks.plain_settings(defense)
        attacks = suite(self.attacks, checks.probe_threat(defense))
        checked_mode(attacks.preset.mode, attacks)  # now, not after the training
        dataset, test = self.images()
        check_guard(config, len(dataset))
        held_out = checks.checked_validation(config, len(dataset))
        checks.check_batch(config.batch_size, len(dataset) - held_out)
        seeds = self.seed_list()
        name = defense.label + ("-SI" if self.si else "") + ("-HE" if self.he else "")
        called = re.sub("[^a-z0-9]+", "-", name.lower())  # the label of one's own may have spaces
        words = f"{called}-{Path(self.model).name.replace(':', '-')}-{dataset.name}-{found.name}"
        plans = [
            Plan(
                name=name,
                architecture=self.model + ("+he" if self.he else ""),
                defense=defense,
                config=replace(config, seed=seed),
                recipe=found.name,
                provenance=found.provenance,
                dataset=dataset,
                test=test,
                attacks=attacks,
                speed=self.speed(),
                device=device,
                folder=self.out or Path("runs") / words,
                sync_batch_norm=self.sync_batch_norm,
                checkpoint_seconds=self.checkpoint_seconds,
                command=" ".join(["scaleproof", *sys.argv[1:]]),
            )
            for seed in seeds
        ]
        return [replace(plan, folder=self.folder(plan, len(seeds))) for plan in plans]

    @cached_property
    def adapted(self) -> Recipe:
        """The recipe, by the config that was asked for and with its defense stretched to it."""
        from scaleproof.training import recipe

        found = recipe(self.method, name=self.recipe, architecture=self.model)
        config = self.config(found)
        stretched = found.defense.stretched(partial(found.config.place, config.epochs))
        return replace(found.with_config(config), defense=stretched)

    def folder(self, plan: Plan, seeds: int) -> Path:
        """What was asked for, with one folder a seed in it for several; else a name with the settings in it."""
        from scaleproof.store import settings_digest

        if self.out is None:
            seed = f"seed-{plan.config.seed}-" if seeds > 1 else ""
            return plan.folder.with_name(f"{plan.folder.name}-{seed}{settings_digest(plan.settings())[:8]}")
        return plan.folder / f"seed-{plan.config.seed}" if seeds > 1 else plan.folder

    def images(self) -> tuple[Dataset, Dataset]:
        """Images to train on and to test on, which fit each other."""
        from scaleproof.cli.setup import limited
        from scaleproof.data import load
        from scaleproof.training.checks import check_alike

        whole = load(self.data, split="train", folder=self.data_folder)
        dataset = limited(whole, self.limit)
        test = self.test(whole, dataset)
        check_alike(dataset, test, self.model)
        return dataset, test

    def test(self, *training: Dataset) -> Dataset:
        """Test images, which must not be those that are trained on, nor those of the whole training set."""
        from scaleproof.cli.setup import limited
        from scaleproof.data import load

        own = "sample" if self.data == "sample-train" else self.data
        whole = load(self.test_data or own, split="test", folder=self.data_folder)
        if whole.digest() in [one.digest() for one in training]:
            raise ValueError(f"the test images are the training images of {self.data}: give --test-data")
        return limited(whole, self.test_limit, "--test-limit")

    def speed(self) -> Speed:
        from scaleproof.speed import Speed
        from scaleproof.training.step import check_precision

        check_precision(self.precision)
        fast = self.precision != "float32"
        graph = fast if self.graph is None else self.graph
        return Speed(precision=cast("Precision", self.precision), fold=fast, graph=graph)

    def check_si(self) -> None:
        """What changes SI is an error without it."""
        from scaleproof.defenses.base import check_weights

        defaults = {"si_half": "both", "scale": 15.0, "margin": 0.2, "beta": 0.2}
        given = [name for name, value in defaults.items() if getattr(self, name) != value]
        given = [name for name in given if not (self.he and name == "margin")]
        if given and not self.si:
            raise ValueError(f"--{given[0].replace('_', '-')} changes the SI mechanism: give --si too")
        check_weights(**{"--beta": self.beta})

    def seed_list(self) -> list[int]:
        if self.seeds is not None and self.seed != 0:
            raise ValueError("--seed and --seeds are two ways to say one thing: give one of them")
        found = [self.seed] if self.seeds is None else options.whole_numbers(self.seeds, "seeds")
        if len(set(found)) != len(found):
            raise ValueError(f"--seeds must differ, got {self.seeds!r}")
        return list(found)

    def defense(self, base: Defense) -> Defense:
        from scaleproof.defenses import BatchNormPolicy, hypersphere, scale_invariant

        base = self.attacked(base)
        if self.weight is not None:
            if "weight" not in vars(base):
                raise ValueError(f"--weight is for methods with a weighted term, {base.name} has none")
            base = replace(base, weight=self.weight)  # type: ignore[call-arg]
        if self.attack_mode is not None:
            if base.inner is None:
                raise ValueError(
                    f"--attack-mode is for methods whose attack has passes of its own, {base.name} has none"
                )
            updates = base.batch_norm.attack_updates and self.attack_mode == "train"
            policy = BatchNormPolicy(attack=self.attack_mode, attack_updates=updates)  # type: ignore[arg-type]
            base = replace(base, batch_norm=policy)
        if self.si and self.he:
            raise ValueError("--si and --he are two ways to do one thing: give one of them")
        if self.he:
            return hypersphere(base, margin=self.margin)
        if not self.si:
            return base
        halves = {"both": (True, True), "inner": (True, False), "outer": (False, True)}
        if self.si_half not in halves:
            raise ValueError(f"--si-half must be one of {', '.join(halves)}, got {self.si_half!r}")
        inner, outer = halves[self.si_half]
        return scale_invariant(
            base, scale=self.scale, margin=self.margin, weight=self.beta, inner=inner, outer=outer
        )

    def attacked(self, base: Defense) -> Defense:
        """The defense with the training attack that was asked for: its ball, then its steps."""
        from scaleproof.threat import Threat

        wanted = None if self.eps is None else options.number(self.eps, "eps")
        if wanted is not None and wanted <= 0:
            raise ValueError(
                f"--eps of a training must be > 0, got {self.eps}; standard trains without an attack"
            )
        if self.norm is not None and wanted is None:
            raise ValueError("--norm needs --eps: a size under one norm means nothing under the other")
        given = self.norm is not None and wanted is not None
        asked = Threat(norm=cast("Norm", self.norm), eps=cast("float", wanted)) if given else None
        if asked is not None and (base.ball is None or asked.norm != base.ball.norm):
            if base.inner is None or base.inner.start == "signs":
                raise ValueError(f"--norm is for methods whose attack fits any ball, not for {base.name}")
            step_size = base.inner.step_size / base.inner.threat.eps * asked.eps
            base = replace(base, inner=replace(base.inner, threat=asked, step_size=step_size))
        elif wanted is not None:
            base = resized(base, wanted)
        changes: dict[str, Any] = {} if self.steps is None else {"steps": self.steps}
        if self.step_size is not None:
            changes["step_size"] = options.number(self.step_size, "step-size")
        if changes and base.inner is None:
            raise ValueError(f"--steps and --step-size are for methods with an inner attack, got {base.name}")
        return replace(base, inner=replace(base.inner, **changes)) if changes and base.inner else base

    def config(self, found: Recipe) -> TrainConfig:
        """The recipe's, with what was asked for in its place; a schedule follows the number of epochs."""
        config = found.config
        if self.epochs is not None:
            config = config.lasting(self.epochs)  # refuses what is no number of epochs
        asked = schedule(self.schedule, self.decays)
        config = config if asked is None else replace(config, schedule=asked)
        given = {
            "rate": self.rate,
            "weight_decay": self.weight_decay,
            "batch_size": self.batch_size,
            "eps_warm_up": self.eps_warm_up,
            "average": self.average,
            "validation": self.validation,
            "augment": self.augment,
            "guard": self.guard,
        }
        changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        return replace(config, **changes)
