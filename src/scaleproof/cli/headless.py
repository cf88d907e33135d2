"""Networks without a head that can be found, under attacks that nobody asked for by name."""

from __future__ import annotations

from dataclasses import replace

import typer

from scaleproof.attacks import Attack
from scaleproof.contract import understood
from scaleproof.images import Images
from scaleproof.look import first_rows
from scaleproof.models import Classifier, LoadedModel
from scaleproof.models.classifier import device_of


def by_default(context: typer.Context, option: str) -> bool:
    """Whether an option has its value because nobody gave one."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "DEFAULT"


def possible(
    attacks: tuple[Attack, ...], loaded: LoadedModel, images: Images
) -> tuple[tuple[Attack, ...], LoadedModel]:
    """The attacks without those that need a head where none is found, and the model with a note that says so."""
    able = tuple(attack for attack in attacks if not attack.needs_features)
    doubt = None if able == attacks else head_doubt(loaded.classifier, images)
    if doubt is None or not able:
        return attacks, loaded
    left = ", ".join(attack.label for attack in attacks if attack.needs_features)
    note = f"{left} left out: {doubt}; give --head NAME or ask for it by name"
    return able, replace(loaded, notes=(*loaded.notes, note))


def head_doubt(classifier: Classifier, images: Images) -> str | None:
    """Why no head is found, or None where one is."""
    x, _ = first_rows(images, device_of(classifier))
    with understood(x, classifier):
        try:
            Classifier(classifier).find_head(x)
        except ValueError as error:
            return str(error).partition("; modules seen")[0].splitlines()[0]
    return None
