"""The tables of an analysis."""

import numpy as np

from scaleproof.report import words
from scaleproof.report.analysis.records import (
    Analysis,
    Classes,
    Cosines,
    EpsCurve,
    Line,
    StepCurve,
    Surfaces,
    WeightSurface,
)
from scaleproof.report.analysis.words import (
    class_name,
    clean_of,
    objective_name,
    place_text,
    present,
    robust_of,
)
from scaleproof.report.records import Share
from scaleproof.report.tables import Row, Table, columns

TOP = 12


def surfaces_table(analysis: Analysis, surfaces: Surfaces) -> Table:
    """Build the table of losses at the clean image and one budget away from it."""
    middle = nearest(surfaces, 0.0)
    away = nearest(surfaces, 1.0)
    places = (("clean", middle, middle), ("1 ε along PGD", away, middle), ("1 ε at random", middle, away))
    heads = [f"{objective_name(name)}, {where}" for name in surfaces.losses for where, _, _ in places]
    rows = [
        Row(
            cells=(
                f"{class_name(analysis, surfaces.labels[number])}, no. {surfaces.rows[number]}",
                *(f"{values[number, a, b]:.3f}" for values in surfaces.losses.values() for _, a, b in places),
            )
        )
        for number in range(len(surfaces.rows))
    ]
    means = (f"{values[:, a, b].mean():.3f}" for values in surfaces.losses.values() for _, a, b in places)
    return Table(
        caption="Loss of each image, clean and one budget away",
        columns=columns("Image", *heads),
        rows=(*rows, Row(cells=("Mean", *means), strong=True)),
        notes=(
            f"The budget is {words.radius(analysis.threat.eps)}; at {surfaces.coordinates[away]:g} ε where no "
            "point of the grid lies at 1.",
            words.provenance_note(analysis.run, len(surfaces.rows)),
        )
        if surfaces.coordinates[away] != 1
        else (words.provenance_note(analysis.run, len(surfaces.rows)),),
        folded=True,
    )


def nearest(surfaces: Surfaces, place: float) -> int:
    """Return the point of the grid next to a place."""
    return int(np.abs(np.array(surfaces.coordinates) - place).argmin())


def weights_table(analysis: Analysis, weights: WeightSurface) -> Table:
    """Build the table of losses along the directions of the weights."""
    rows = []
    for place, amount in enumerate(weights.amounts):
        loss = [float(weights.loss[kind][:, place].mean()) for kind in ("clean", "adversarial")]
        right = [float(weights.accuracy[kind][:, place].mean()) for kind in ("clean", "adversarial")]
        cells = (f"{amount:.2f}", *map(words.significant, loss), *map(words.percent, right))
        rows.append(Row(cells=cells, strong=amount == 0))
    heads = ("Clean loss", "Adversarial loss", "Clean accuracy", "Adversarial accuracy")
    return Table(
        caption="Loss and accuracy while the weights move",
        columns=columns("Distance", *heads, texts=0),
        rows=tuple(rows),
        notes=(words.provenance_note(analysis.run, weights.count),),
        folded=True,
    )


def cosines_table(analysis: Analysis, cosines: Cosines) -> Table:
    """Build the table of mean cosines and of how often the largest cosine is not the decision."""
    rows = tuple(
        Row(
            cells=(
                f"{kind.capitalize()} images",
                f"{cosines.means[f'{kind}_true']:.3f}",
                f"{cosines.means[f'{kind}_other']:.3f}",
                words.mismatch(cosines.mismatch[kind]),
            )
        )
        for kind in ("clean", "adversarial")
    )
    return Table(
        caption="Mean cosines",
        columns=columns("Images", "True class", "Best other class", "Cosine mismatch"),
        rows=rows,
        notes=(words.provenance_note(analysis.run, cosines.count),),
    )


def line_rows(lines: tuple[Line, ...], name: str, analysis: Analysis) -> list[Row]:
    """Build the lines of a curve: one a place, with accuracy and interval of each attack."""
    rows = []
    for points in zip(*(line.points for line in lines), strict=True):
        at = points[0].at
        place = place_text(analysis, at) if name == "ε" else f"{at:g}"
        cells = [text for point in points for text in share_cells(point.robust)]
        rows.append(Row(cells=(place, *cells), strong=name == "ε" and at == analysis.threat.eps))
    return rows


def share_cells(share: Share) -> tuple[str, str]:
    """Print an accuracy and its interval."""
    return words.share_percent(share), words.interval(share, "–")


def line_heads(lines: tuple[Line, ...]) -> list[str]:
    """Return two heads an attack."""
    return [head for line in lines for head in (line.label, f"{line.label}, 95% interval")]


def eps_table(analysis: Analysis, curve: EpsCurve) -> Table:
    """Build the table of accuracy against the size of the perturbation."""
    none = Row(cells=("0 (clean)", *(text for _ in curve.lines for text in share_cells(curve.clean))))
    return Table(
        caption=f"Accuracy against ε, {words.plural(curve.steps, 'step')} of ε/4",
        columns=columns("ε", *line_heads(curve.lines)),
        rows=(none, *line_rows(curve.lines, "ε", analysis)),
        notes=(words.provenance_note(analysis.run, curve.clean.count),),
        folded=True,
    )


def steps_tables(analysis: Analysis, curve: StepCurve) -> tuple[Table, Table]:
    """Build the tables of accuracy against steps and restarts."""
    note = words.provenance_note(analysis.run, curve.clean.count)
    return (
        Table(
            caption=f"Accuracy against steps of ε/4, {words.threat_text(analysis.threat)}",
            columns=columns("Steps", *line_heads(curve.steps)),
            rows=tuple(line_rows(curve.steps, "steps", analysis)),
            notes=(f"Clean accuracy {words.share_percent(curve.clean)}.", note),
            folded=True,
        ),
        Table(
            caption=f"Accuracy against restarts of {words.plural(curve.restart_steps, 'step')} each",
            columns=columns("Restarts", *line_heads(curve.restarts)),
            rows=tuple(line_rows(curve.restarts, "restarts", analysis)),
            notes=(note,),
            folded=True,
        ),
    )


def classes_table(analysis: Analysis, classes: Classes) -> Table:
    """Build the table of accuracy per class, the weakest first."""
    rows = tuple(
        Row(
            cells=(
                class_name(analysis, label),
                words.whole(robust_of(classes, label).count),
                words.share_percent(clean_of(classes, label)),
                *share_cells(robust_of(classes, label)),
            )
        )
        for label in present(classes)
    )
    return Table(
        caption="Accuracy of each class, the weakest first",
        columns=columns("True class", "Images", "Clean", "Robust at most", "95% interval"),
        rows=rows,
        notes=(words.provenance_note(analysis.run, classes.count),),
        folded=True,
    )


def confusion_table(analysis: Analysis, classes: Classes) -> Table:
    """Build the table of the commonest mistakes."""
    table = classes.confusion - np.diag(np.diagonal(classes.confusion))
    order = sorted(np.argwhere(table > 0).tolist(), key=lambda pair: (-table[pair[0], pair[1]], pair))[:TOP]
    rows = tuple(
        Row(
            cells=(
                class_name(analysis, true),
                class_name(analysis, taken),
                words.whole(int(table[true, taken])),
                words.percent(table[true, taken] / classes.confusion[true].sum()),
            )
        )
        for true, taken in order
    )
    return Table(
        caption=f"The {len(rows)} commonest mistakes under attack",
        columns=columns("True class", "Taken for", "Images", "Share of the true class", texts=2),
        rows=rows,
        notes=(words.provenance_note(analysis.run, classes.count),),
    )
