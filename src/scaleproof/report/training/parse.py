"""Turn training.json into records."""

from collections.abc import Mapping

from scaleproof.report.fields import Fields
from scaleproof.report.parse import parse_data, parse_threat, parse_verdict
from scaleproof.report.records import Data, Model, Threat
from scaleproof.report.training.records import BatchNorm, Checkpoint, Config, Epoch, Standing, Training

EPOCH_FIELDS = frozenset(
    [
        "epoch",
        "rate",
        "loss",
        "train_accuracy",
        "weight_norm",
        "validation",
        "test",
        "guard",
        "seconds",
        "images_per_second",
    ]
)


def parse_training(fields: Fields) -> Training:
    """Read training.json."""
    recipe, speed, model = fields.child("recipe"), fields.child("speed"), fields.child("model")
    checkpoints = parse_checkpoints(fields)
    defense = fields.child("defense")
    training = Training(
        label=fields.text("label"),
        recipe=recipe.text("name"),
        recipe_source=recipe.text("provenance"),
        defense=defense.values,
        batch_norm=parse_batch_norm(defense.child("batch_norm")),
        config=parse_config(fields.child("config")),
        architecture=model.text("architecture"),
        parameters=model.whole("parameters"),
        data=parse_data(fields.child("data")),
        test=parse_data(fields.child("test")),
        threat=parse_threat(fields.child("threat")),
        held_out=fields.whole("held_out"),
        precision=speed.text("precision"),
        attack_precision=speed.optional("attack_precision", speed.text),
        folded=speed.values.get("folded") is True,
        graph=speed.flag("graph"),
        notes=speed.texts("notes"),
        history=tuple(parse_epoch(row) for row in fields.children("history")),
        selected=checkpoints["selected"],
        last=checkpoints["last"],
        leaking=checkpoints.get("leaking"),
        stopped=fields.optional("stopped", fields.text),
    )
    check_history(fields, training)
    check_checkpoints(fields, training, checkpoints)
    return training


def parse_batch_norm(fields: Fields) -> BatchNorm:
    """Read the BatchNorm policy of a defense."""
    return BatchNorm(
        attack=fields.choice("attack", ("eval", "train")),
        attack_updates=fields.flag("attack_updates"),
        updates=fields.choice("updates", ("all", "clean", "adversarial")),
    )


def parse_config(fields: Fields) -> Config:
    """Read how the network was trained."""
    return Config(
        epochs=fields.whole("epochs"),
        rate=fields.number("rate"),
        schedule=fields.child("schedule").text("kind"),
        probe_steps=fields.whole("probe_steps"),
        test_probe=fields.whole("test_probe"),
        guard=fields.text("guard"),
        guard_drop=fields.number("guard_drop"),
        averaged=fields.get("average") is not None,
        settings=fields.values,
    )


def parse_epoch(fields: Fields) -> Epoch:
    """Read one line of the history, where every field of another name is a term of the loss."""
    return Epoch(
        number=fields.whole("epoch"),
        rate=fields.number("rate"),
        loss=fields.number("loss"),
        terms={name: fields.number(name) for name in fields.values if name not in EPOCH_FIELDS},
        train_accuracy=fields.fraction("train_accuracy"),
        weight_norm=fields.number("weight_norm", finite=False),
        validation=parse_standing(fields, "validation"),
        test=parse_standing(fields, "test"),
        guard=fields.optional("guard", fields.text),
        seconds=fields.number("seconds"),
        images_per_second=fields.number("images_per_second", finite=False),
    )


def parse_standing(fields: Fields, key: str) -> Standing | None:
    """Read a probe, where the epoch has one."""
    probe = fields.optional(key, fields.child)
    if probe is None:
        return None
    return Standing(
        clean=percentage(probe, "clean"),
        pgd=percentage(probe, "pgd"),
        feature_norm=probe.number("feature_norm", finite=False),
        true_cosine=probe.number("true_cosine", finite=False),
        zero_gradients=percentage(probe, "zero_gradients"),
    )


def percentage(fields: Fields, key: str) -> float:
    """Return a field that must be a number from 0 to 100."""
    value = fields.number(key)
    return value if 0.0 <= value <= 100.0 else fields.refuse(key, "a percentage from 0 to 100", value)


def parse_checkpoints(fields: Fields) -> dict[str, Checkpoint]:
    """Read the weights that were attacked: the selected, the last and, where the file has it, the leaking ones."""
    results, model = fields.child("results"), fields.child("model")
    data, threat = parse_data(fields.child("test")), parse_threat(fields.child("threat"))
    kinds = ["selected", "last", *(["leaking"] if results.values.get("leaking") is not None else [])]
    return {kind: parse_checkpoint(results.child(kind), kind, model, data, threat) for kind in kinds}


def parse_checkpoint(fields: Fields, kind: str, model: Fields, data: Data, threat: Threat) -> Checkpoint:
    """Read one set of weights with its evaluation."""
    classifier = Model(
        spec=fields.text("file"),
        architecture=model.text("architecture"),
        parameters=model.whole("parameters"),
        weights_sha256=fields.text("weights_sha256"),
        head=None,
    )
    evaluation = parse_verdict(fields.child("evaluation"), classifier, data, threat)
    return Checkpoint(kind=kind, epoch=fields.whole("epoch"), file=classifier.spec, evaluation=evaluation)


def check_history(fields: Fields, training: Training) -> None:
    """Refuse a history with gaps, or one that ends early without the guard."""
    numbers = [epoch.number for epoch in training.history]
    if not numbers:
        fields.refuse("history", "a list of at least one epoch", [])
    if numbers != list(range(1, len(numbers) + 1)):
        fields.refuse("history", f"one line for each epoch from 1 to {len(numbers)}, in order", numbers)
    planned = training.config.epochs
    if len(numbers) > planned or (len(numbers) < planned and training.stopped is None):
        rule = f"a list of config.epochs = {planned} epochs, unless stopped says why it is shorter"
        fields.refuse("history", rule, f"{len(numbers)} epochs")


def check_checkpoints(fields: Fields, training: Training, checkpoints: Mapping[str, Checkpoint]) -> None:
    """Refuse checkpoints of epochs that never were, or that cannot be compared with one another."""
    count = len(training.history)
    if training.last.epoch != count:
        fields.refuse("results.last.epoch", f"{count}, the last of the history", training.last.epoch)
    for kind, checkpoint in checkpoints.items():
        if not 1 <= checkpoint.epoch <= count:
            fields.refuse(f"results.{kind}.epoch", f"an epoch from 1 to {count}", checkpoint.epoch)
        if measured(checkpoint) != measured(training.selected):
            rule = f"by the attacks and on the images of results.selected, {measured(training.selected)}"
            fields.refuse(f"results.{kind}.evaluation", rule, measured(checkpoint))


def measured(checkpoint: Checkpoint) -> str:
    """Name the attacks and the number of images that a checkpoint was measured with."""
    names = ", ".join(attack.name for attack in checkpoint.evaluation.attacks)
    return f"{names} on {checkpoint.evaluation.worst_case.count} images"
