"""Names and sentences that the sections and the figures of an analysis share."""

from itertools import pairwise

from scaleproof.report import words
from scaleproof.report.analysis.records import Analysis, Classes, Line
from scaleproof.report.records import Share

OBJECTIVES = {"cross_entropy": "Cross entropy", "cosine": "Cosine cross entropy"}
SHOWN_IMAGES = 3
MANY_CLASSES = 24


def objective_name(name: str) -> str:
    """Name an objective as a reader knows it."""
    return OBJECTIVES.get(name, name.replace("_", " "))


def class_name(analysis: Analysis, label: int) -> str:
    """Name a class, also one that the classifier has and the data have not."""
    names = analysis.data.classes
    return names[label] if label < len(names) else f"class {label}"


def short(name: str, most: int = 14) -> str:
    """Cut a long name so that it fits beside a panel, on one line."""
    line = " ".join(name.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def figure_name(analysis: Analysis, label: int) -> str:
    """Name a class in a figure: shortened, and by its number where the font lacks a letter."""
    name = short(class_name(analysis, label))
    return name if drawable(name) else f"class {label}"


def drawable(text: str) -> bool:
    """Tell whether the font of the figures has every letter of a text."""
    from matplotlib.font_manager import findfont, get_font

    from scaleproof.report.style import SETTINGS

    font = get_font(findfont(SETTINGS["font.family"]))
    return all(font.get_char_index(ord(letter)) for letter in text)


def robust_of(classes: Classes, label: int) -> Share:
    """Return how many images of a class withstand every attack."""
    return words.share_of(int(classes.confusion[label, label]), int(classes.confusion[label].sum()))


def clean_of(classes: Classes, label: int) -> Share:
    """Return how many images of a class are right without an attack."""
    return words.share_of(int(classes.clean_correct[label]), int(classes.confusion[label].sum()))


def whole_of(classes: Classes) -> Share:
    """Return how many images of all classes withstand every attack."""
    return words.share_of(int(classes.confusion.trace()), classes.count)


def present(classes: Classes) -> list[int]:
    """Return the classes that have images, the weakest first."""
    known = [label for label in range(len(classes.confusion)) if classes.confusion[label].sum()]
    return sorted(known, key=lambda label: (robust_of(classes, label).accuracy, label))


def rise(line: Line) -> tuple[float, float] | None:
    """Return the first two places between which an attack leaves more images, where there are such."""
    for before, after in pairwise(line.points):
        if after.robust.correct > before.robust.correct:
            return before.at, after.at
    return None


def place_text(analysis: Analysis, at: float) -> str:
    """Print a budget."""
    unbounded = analysis.eps is not None and at == analysis.eps.unbounded
    return "unbounded" if unbounded else words.radius(at)
