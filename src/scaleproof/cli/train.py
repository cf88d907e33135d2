"""`scaleproof train`: a robust network, with a run folder behind every number."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import typer

from scaleproof.cli import options
from scaleproof.cli import training_options as chosen

if TYPE_CHECKING:
    from scaleproof.training.plan import Plan


def command(
    method: chosen.Method,
    si: chosen.Si = False,
    si_half: chosen.SiHalf = "both",
    scale: chosen.Scale = 15.0,
    margin: chosen.Margin = 0.2,
    beta: chosen.Beta = 0.2,
    he: chosen.He = False,
    model: chosen.Model = "resnet-small",
    data: options.Data = "sample-train",
    data_folder: options.DataFolder = None,
    limit: options.Limit = None,
    test_data: chosen.TestData = None,
    test_limit: chosen.TestLimit = None,
    recipe: chosen.Recipe = None,
    epochs: chosen.Epochs = None,
    decays: chosen.Decays = None,
    rate: chosen.Rate = None,
    weight_decay: chosen.WeightDecay = None,
    batch_size: chosen.BatchSize = None,
    schedule: chosen.Schedule = None,
    weight: chosen.Weight = None,
    norm: chosen.Norm = None,
    eps: chosen.Eps = None,
    steps: chosen.Steps = None,
    step_size: chosen.StepSize = None,
    eps_warm_up: chosen.EpsWarmUp = None,
    average: chosen.Average = None,
    validation: chosen.Validation = None,
    augment: chosen.Augment = None,
    attack_mode: chosen.AttackMode = None,
    guard: chosen.Guard = None,
    attacks: options.Attacks = "pgd,pgd-cw,si-pgd",
    seed: options.Seed = 0,
    seeds: chosen.Seeds = None,
    device: options.Device = "auto",
    precision: chosen.Precision = "auto",
    graph: chosen.Graph = None,
    sync_batch_norm: chosen.SyncBatchNorm = False,
    checkpoint_seconds: chosen.CheckpointSeconds = 60.0,
    tensorboard: chosen.Tensorboard = False,
    dry_run: chosen.DryRun = False,
    report: options.Report = True,
    out: options.Out = None,
) -> None:
    """Train a network to be robust; run the same command again to go on where a run was cut."""
    carry_out(locals())


def preview(plan: Plan) -> str:
    """What would be trained, by which settings and where."""
    import json

    from scaleproof.defenses import defense_settings
    from scaleproof.training.checks import checked_validation

    held_out = checked_validation(plan.config, len(plan.dataset))
    images = {"trained on": len(plan.dataset) - held_out, "held out": held_out, "tested on": len(plan.test)}
    sets = {
        "data": f"{plan.dataset.name}/{plan.dataset.split}",
        "test": f"{plan.test.name}/{plan.test.split}",
    }
    told = {
        "recipe": plan.provenance,
        "architecture": plan.architecture,
        **sets,
        "images": images,
        "attacks": [attack.label for attack in plan.attacks],
        "device": plan.device.type,
        "speed": plan.speed.settings(),
        "defense": defense_settings(plan.defense),
        "config": plan.config.describe(),
    }
    return f"{plan.name} into {plan.folder}\n{json.dumps(told, indent=2)}"


def carry_out(words: dict[str, Any]) -> None:
    """Train what was asked for, with a bar, and show what came of it."""
    from scaleproof.cli.live import training_bar
    from scaleproof.cli.setup import checked_device
    from scaleproof.cli.show import show_training
    from scaleproof.cli.training_request import TrainRequest
    from scaleproof.parallel import joined, local_device
    from scaleproof.speed import waking
    from scaleproof.store import is_finished
    from scaleproof.train import DivergenceError, train

    request = TrainRequest(**{item.name: words[item.name] for item in fields(TrainRequest)})
    place = local_device(checked_device(words["device"]))
    with joined(place) as group:
        with waking(place):
            plans = request.plans(place)
        if group.writes and request.adapted.moved:
            typer.echo(f"Recipe {request.adapted.name} {request.adapted.moved}.", err=True)
        if words["dry_run"]:
            for plan in plans if group.writes else ():
                typer.echo(preview(plan))
            return
        done = [plan.folder for plan in plans if is_finished(plan.folder)]
        failure: DivergenceError | None = None
        try:
            with training_bar(group.writes, words["tensorboard"]) as (watch, attacked):
                train(plans, watch=watch, attacked=attacked, group=group)
        except DivergenceError as error:  # the others are shown
            failure = error
        if group.writes:
            for folder in done:
                typer.echo(f"{folder} holds this run already, finished: nothing was run for it.")
        finished = [plan.folder for plan in plans if is_finished(plan.folder)]
        if group.writes and finished:
            show_training(finished, report=words["report"])
        if failure is not None:
            raise failure
