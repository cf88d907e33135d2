"""In what two nested settings differ, leaf by leaf, and how to say it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST = 60  # of a setting in a message
MOST_TOLD = 3  # settings in a message
ANSWERS = "first_logits"  # a model's answers to the first images: numbers that tell nobody anything
OTHERWISE = (
    "the model answers otherwise than then (its weights or code changed; does its factory load or seed them?)"
)
CAUSES = {"allow_train_mode", "architecture", "device", "logit_scale", "model", "normalisation", "pixels"}
FOLLOWS = {  # what is not told where another setting explains it
    "pixels": {"images"},
    "network_source_sha256": {"architecture"},
    "first_weights": {"architecture", "config.seed", "data", "network_source_sha256", "pixels"},
    "held_out": {"config.validation", "pixels"},
    "config.schedule.epochs.length": {"config.epochs"},
}
DIGESTS = {
    "defense.source_sha256": "the file of its defense changed",
    "first_weights": "its network begins with other weights (does its factory load or seed them? is torch another?)",
    "held_out": "an older version began it, which held out other images",
    "network_source_sha256": "the file of its network's factory changed",
    "pixels": "its images are others: other data, or another number of them",
    "test_pixels": "its test images are others",
}

Difference = tuple[str, Any, Any]  # the dotted name of a leaf, its value before, and now


def differences(path: str, old: Any, new: Any) -> list[Difference]:
    """Leaves of nested settings that are not the same, with their dotted names; `[0]` is the first of a list."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = sorted({*old, *new})
        return [item for key in keys for item in differences(f"{path}.{key}", old.get(key), new.get(key))]
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        pairs = enumerate(zip(old, new, strict=False))
        found = [item for number, pair in pairs for item in differences(f"{path}[{number}]", *pair)]
        return found + differences(f"{path}.length", len(old), len(new))
    return [] if old == new else [(path.removeprefix("."), old, new)]


def told(found: Sequence[Difference]) -> str:
    """The first few differences in words, and how many more there are.

    Other answers of the model are told as such, and only where no other setting (CAUSES) explains them; nor is what
    FOLLOWS from another setting told beside it.
    """
    others = [item for item in found if setting(item) != ANSWERS]
    names = set(map(setting, others))
    parts = [OTHERWISE] if len(others) < len(found) and not CAUSES & names else []
    leaves = {item[0] for item in others}
    others = [item for item in others if not FOLLOWS.get(item[0], set()) & leaves]
    parts += [DIGESTS.get(item[0]) or "{} was {}, is {}".format(*shortened(item)) for item in others]
    words = "; ".join(parts[:MOST_TOLD])
    return words if len(parts) <= MOST_TOLD else f"{words}; and {len(parts) - MOST_TOLD} more"


def setting(item: Difference) -> str:
    """The name of the setting that a leaf belongs to."""
    return re.split(r"[.\[]", item[0], maxsplit=1)[0]


def is_switch(item: Difference) -> bool:
    """Whether a leaf is on or off; one that a run does not name is off."""
    kinds = {type(value) for value in item[1:]}
    return bool in kinds and kinds <= {bool, type(None)}


def shortened(item: Difference) -> tuple[str, str, str]:
    """A leaf with both values in few words: of long ones the part where they begin to differ."""
    if is_switch(item):
        return item[0], "on" if item[1] else "off", "on" if item[2] else "off"
    path = item[0].removeprefix("config.")  # as the options of a training are called
    old, new = ("not given" if value is None else repr(value) for value in item[1:])
    if max(len(old), len(new)) <= LONGEST:
        return path, old, new
    letters = enumerate(zip(old, new, strict=False))
    first = next((place for place, (one, other) in letters if one != other), min(len(old), len(new)))
    start = max(0, first - LONGEST // 4)
    return path, part_of(old, start), part_of(new, start)


def part_of(text: str, start: int) -> str:
    before, after = "..." if start else "", "..." if len(text) > start + LONGEST else ""
    return f"{before}{text[start : start + LONGEST]}{after}"
