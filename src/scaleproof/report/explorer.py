"""The verdict on each image, packed small enough for a page that lets a reader look any of them up."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaleproof.report.records import Array, Evaluation, Verdicts

BUDGET = 240_000  # characters
FIRST_ROWS = 20
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
NOTE = "“right”: the class stays right; “→ class”: what the image is taken for instead; “–”: wrong before any attack."
HOLDS, WRONG, BROKEN, SPARED = ".", "-", "!", "_"


@dataclass(frozen=True, kw_only=True)
class Column:
    """What became of each image in one column: broken or not, and which class it was taken for (-1: unknown)."""

    label: str
    broken: Array
    prediction: Array | None
    attacked: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Explorer:
    """A table of images: the first rows as text, and all that fit packed for a script."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    class_choices: tuple[tuple[str, str], ...]
    prediction_choices: tuple[tuple[str, str], ...]
    choices: tuple[tuple[str, str], ...]
    note: str
    count: int
    kept: int
    data: dict[str, Any]


def attack_columns(evaluation: Evaluation, verdicts: Verdicts) -> list[Column]:
    """Build one column for each attack, any restart counting."""
    return [
        Column(
            label=attack.label,
            broken=ever(verdicts.broken[attack.name]),
            prediction=first_prediction(verdicts, attack.name),
            attacked=ever(verdicts.attacked[attack.name]) if attack.name in verdicts.attacked else None,
        )
        for attack in evaluation.attacks
    ]


def ever(flags: Array) -> Array:
    """Tell for each image whether any restart is marked."""
    return np.asarray(flags.any(axis=0))


def first_prediction(verdicts: Verdicts, name: str) -> Array | None:
    """Return the class that each image was taken for in the first restart that broke it."""
    if name not in verdicts.prediction:
        return None
    first = verdicts.broken[name].argmax(axis=0)
    found: Array = np.take_along_axis(verdicts.prediction[name], first[None], axis=0)[0]
    return found


def run_explorer(evaluation: Evaluation, verdicts: Verdicts) -> Explorer:
    """Build the explorer of one evaluation."""
    columns = attack_columns(evaluation, verdicts)
    clean = Column(label="No attack", broken=~verdicts.clean_correct, prediction=verdicts.clean_prediction)
    choices = [
        ("wrong", "Wrong without attack"),
        ("holds", "Withstands every attack"),
        ("broken", "Broken by an attack"),
        *((f"by {k}", f"Broken by {column.label}") for k, column in enumerate(columns)),
    ]
    if len(columns) > 1:
        choices += [(f"only {k}", f"Broken by {column.label} alone") for k, column in enumerate(columns)]
    return build(evaluation.data.classes, verdicts.labels, clean, columns, choices, NOTE)


def build(
    classes: tuple[str, ...],
    labels: Array,
    clean: Column | None,
    columns: list[Column],
    choices: list[tuple[str, str]],
    note: str,
) -> Explorer:
    """Pack labels and columns, as many images as fit the budget."""
    width = 1 if len(classes) <= len(DIGITS) else 2 if len(classes) <= len(DIGITS) ** 2 else 4
    everything = ([clean] if clean else []) + columns
    kept = min(len(labels), BUDGET // (width * (len(everything) + 1)))
    wrong = clean.broken if clean else np.zeros(len(labels), bool)
    states = [packed(clean, wrong & False, kept, width)] if clean else []
    states += [packed(column, wrong, kept, width) for column in columns]
    heads = ("Image", "True class", *(column.label for column in everything))
    data = {
        "classes": list(classes),
        "width": width,
        "labels": "".join(code(int(label), width) for label in labels[:kept]),
        "columns": ["".join(column) for column in states],
        "clean": clean is not None,
    }
    shown = min(kept, FIRST_ROWS)
    rows = tuple(
        (str(k), classes[int(labels[k])], *(state_text(column[k], classes) for column in states))
        for k in range(shown)
    )
    return Explorer(
        heads=heads,
        rows=rows,
        class_choices=named(classes, map(int, labels[:kept])),
        prediction_choices=named(classes, (class_of(state) for column in states for state in column)),
        choices=tuple(choices),
        note=note,
        count=len(labels),
        kept=kept,
        data=data,
    )


def named(classes: tuple[str, ...], numbers: Iterable[int]) -> tuple[tuple[str, str], ...]:
    """List the classes that occur, by number and by name."""
    return tuple((str(k), classes[k]) for k in sorted(set(numbers) - {-1}))


def class_of(state: str) -> int:
    """Return the class that a state names, or -1."""
    return -1 if state[0] in (HOLDS, WRONG, BROKEN, SPARED) else int(state, len(DIGITS))


def code(number: int, width: int) -> str:
    """Write a class in so many letters and digits."""
    text = ""
    for _ in range(width):
        number, rest = divmod(number, len(DIGITS))
        text = DIGITS[rest] + text
    return text


def packed(column: Column, wrong: Array, kept: int, width: int) -> list[str]:
    """Write the state of each image: it holds, was wrong from the start, or was broken, into which class."""
    found = []
    for k in range(kept):
        if wrong[k]:
            found.append(WRONG * width)
        elif not column.broken[k]:
            reached = column.attacked is None or column.attacked[k]
            found.append((HOLDS if reached else SPARED) * width)
        elif column.prediction is None or column.prediction[k] < 0:
            found.append(BROKEN * width)
        else:
            found.append(code(int(column.prediction[k]), width))
    return found


def state_text(state: str, classes: tuple[str, ...]) -> str:
    """Say the state of an image in words, as the script does."""
    told = {HOLDS: "right", WRONG: "–", BROKEN: "wrong", SPARED: "not attacked"}.get(state[0])
    return told or f"→ {classes[class_of(state)]}"
