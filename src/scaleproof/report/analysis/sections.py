"""The sections of an analysis, and the report of an analysis that stands alone."""

from collections.abc import Callable
from typing import TypeVar

from scaleproof.report import tables as common
from scaleproof.report import words
from scaleproof.report.analysis import tables
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
from scaleproof.report.analysis.words import place_text, rise, whole_of
from scaleproof.report.records import Finding, Run, Share
from scaleproof.report.sections import Document, Section, bound, provenance_section, run_pairs, surety

Part = TypeVar("Part")


def analysis_document(run: Run, analysis: Analysis) -> Document:
    """Build the report of an analysis that has a folder of its own."""
    known = strongest(analysis)
    subject = f"{words.model_text(analysis.model)} on {words.data_text(analysis.data)}"
    settings = common.pair_table(
        "Settings of the run", ("Setting", "Value"), common.flatten(run.run.settings)
    )
    return Document(
        title=run.run.name,
        subject=f"{subject}; {words.threat_text(analysis.threat)}",
        headline="A look at the classifier around its images" if known is None else bound(known),
        detail=f"n = {analysis.count}" if known is None else surety(known),
        meaning=MEANING if known is None else (*MEANING, BOUND),
        sections=(
            *part_sections(analysis),
            Section(identifier="settings", title="Settings", tables=(settings,), folded=True),
            provenance_section([*run_pairs(run.run), *subject_pairs(analysis)]),
        ),
    )


def analysis_sections(analysis: Analysis) -> tuple[Section, ...]:
    """Build the sections that an analysis adds to the page of an evaluation."""
    pairs = [*run_pairs(analysis.run), *subject_pairs(analysis)]
    table = common.pair_table("Where the numbers of the analysis come from", ("What", "Value"), pairs)
    origin = Section(identifier="analysis-run", title="Analysis: provenance", tables=(table,), folded=True)
    return (*part_sections(analysis), origin)


def part_sections(analysis: Analysis) -> tuple[Section, ...]:
    """Build one section a part, and what to know about all of them."""

    def section(part: Part | None, build: Callable[[Analysis, Part], Section]) -> tuple[Section, ...]:
        return () if part is None else (build(analysis, part),)

    return (
        *notes_sections(analysis),
        *section(analysis.surfaces, surfaces_section),
        *section(analysis.weights, weights_section),
        *section(analysis.cosines, cosines_section),
        *section(analysis.eps, eps_section),
        *section(analysis.steps, steps_section),
        *section(analysis.classes, classes_section),
        *section(analysis.classes, confusion_section),
    )


def strongest(analysis: Analysis) -> Share | None:
    """Return the lowest accuracy that any part found at the threat, over all its images."""
    found = [] if analysis.classes is None else [whole_of(analysis.classes)]
    lines = () if analysis.eps is None else analysis.eps.lines
    found += [point.within for line in lines for point in line.points if point.at == analysis.threat.eps]
    if analysis.steps is not None:
        every = (*analysis.steps.steps, *analysis.steps.restarts)
        found += [line.points[-1].within for line in every]
    return min(found, key=lambda share: share.accuracy, default=None)


def subject_pairs(analysis: Analysis) -> list[tuple[str, str]]:
    """List what was analysed."""
    return [
        ("Model", words.model_text(analysis.model)),
        ("Head", analysis.model.head or "none found"),
        ("Weights SHA-256", analysis.model.weights_sha256),
        ("Data", words.data_text(analysis.data)),
        ("Data SHA-256", analysis.data.sha256),
        ("Threat", words.threat_text(analysis.threat)),
    ]


def notes_sections(analysis: Analysis) -> tuple[Section, ...]:
    """Build the section on what was left out and what was found on the way."""
    if not analysis.notes:
        return ()
    found = tuple(
        Finding(name="analysis", severity="note", meaning=f"{note.rstrip('.')}.") for note in analysis.notes
    )
    return (Section(identifier="analysis-notes", title="Notes on the analysis", findings=found),)


def surfaces_section(analysis: Analysis, surfaces: Surfaces) -> Section:
    """Build the section on the losses around images."""
    both = " Both losses are shown in the same planes." if len(surfaces.losses) > 1 else ""
    sentence = (
        "Each map shows the loss of an image that is moved to the right along the direction which PGD finds "
        f"({words.plural(surfaces.steps, 'step')}), and upwards along a random one of the same size; pixels "
        f"stay between 0 and 1.{both} A loss that rises evenly to the right and hardly changes upwards means that "
        "gradients lead an attack the right way. Ragged maps, islands and flat plains mean that gradients mislead "
        "attacks, and then a high accuracy under attack proves little."
    )
    return Section(
        identifier="analysis-surfaces",
        title="The loss around single images",
        paragraphs=(sentence,),
        tables=(tables.surfaces_table(analysis, surfaces),),
    )


def weights_section(analysis: Analysis, weights: WeightSurface) -> Section:
    """Build the section on the losses around the weights."""
    many = len(weights.loss["clean"])
    along = "a random direction" if many == 1 else f"{many} random directions, one after the other,"
    sentence = (
        f"The weights move along {along} in which every filter is as long as "
        "the filter it moves; biases and normalisation layers stay. At every distance adversarial examples are "
        f"made anew ({words.plural(weights.steps, 'step')} of PGD). A wide, flat valley around 0 goes with a "
        "small gap between training and test; compare the widths of two classifiers rather than read one alone."
    )
    return Section(
        identifier="analysis-weights",
        title="The loss around the weights",
        paragraphs=(sentence,),
        tables=(tables.weights_table(analysis, weights),),
    )


def cosines_section(analysis: Analysis, cosines: Cosines) -> Section:
    """Build the section on cosines."""
    sentence = (
        "The cosine compares the direction of an image’s features with the weights of a class; lengths play "
        "no part. The further the true class lies to the right of the best other class, the more room an "
        f"attack has to cover; on adversarial images ({words.plural(cosines.steps, 'step')} of PGD) the two "
        "close up or change places. The cosine mismatch is the share of images whose largest cosine is not the "
        "decision, since lengths and biases count for logits."
    )
    return Section(
        identifier="analysis-cosines",
        title="Cosines of features and class weights",
        paragraphs=(sentence,),
        tables=(tables.cosines_table(analysis, cosines),),
    )


def eps_section(analysis: Analysis, curve: EpsCurve) -> Section:
    """Build the section on accuracy against the size of the perturbation."""
    left = [line for line in curve.lines if line.points[-1].robust.correct]
    ends = (
        "All of them do here."
        if not left
        else f"Here {' and '.join(unbroken(line) for line in left)}: these attacks fail on images that surely can "
        "be broken, so their numbers at smaller ε are suspect too."
    )
    sentence = (
        f"Each attack takes {words.plural(curve.steps, 'step')} of a quarter of ε. A larger ε can only help an "
        "attacker, so a line must fall, and with an unbounded ε any image can become any other: every line must "
        f"end at 0. {ends}{rises(analysis, curve.lines, budget=True)} Robust accuracy is an upper bound."
    )
    return Section(
        identifier="analysis-eps",
        title="Accuracy against the size of the perturbation",
        paragraphs=(sentence,),
        tables=(tables.eps_table(analysis, curve),),
    )


def unbroken(line: Line) -> str:
    """Say what an attack leaves at the unbounded budget."""
    return f"{line.label} leaves {words.share_percent(line.points[-1].robust)}"


def rises(analysis: Analysis, lines: tuple[Line, ...], *, budget: bool) -> str:
    """Say where an attack leaves more images although it may do more."""
    found = []
    for line in lines:
        ends = rise(line)
        if ends is not None:
            low, high = (place_text(analysis, end) if budget else f"{end:g}" for end in ends)
            found.append(f"{line.label} between {low} and {high}")
    if not found:
        return ""
    return f" Accuracy rises where it should not: {', '.join(found)}; small rises are chance, large ones a warning."


def steps_section(analysis: Analysis, curve: StepCurve) -> Section:
    """Build the section on accuracy against steps and restarts."""
    sentence = (
        "An attack has had enough steps where its line is flat, and enough restarts where one more changes "
        "nothing. A line that still falls at its end says that the accuracy reported with so many steps is too "
        f"high.{rises(analysis, curve.steps, budget=False)} A flat end is no proof either: another attack may go "
        "on where this one is stuck. Steps have a quarter of ε and start at the same random points."
    )
    return Section(
        identifier="analysis-steps",
        title="Accuracy against steps and restarts",
        paragraphs=(sentence,),
        tables=tables.steps_tables(analysis, curve),
    )


def classes_section(analysis: Analysis, classes: Classes) -> Section:
    """Build the section on robustness per class."""
    return Section(
        identifier="analysis-classes",
        title="Robustness of each class",
        paragraphs=(
            "The pale bar is the accuracy without an attack, the narrow one what withstands "
            f"{attacks_text(classes)}. A classifier is as safe as its weakest class, and the mean hides it. "
            "A class has fewer images than the whole, so its interval is wider: compare classes with care.",
        ),
        tables=(tables.classes_table(analysis, classes),),
    )


def confusion_section(analysis: Analysis, classes: Classes) -> Section:
    """Build the section on which class becomes which."""
    return Section(
        identifier="analysis-confusion",
        title="Which class becomes which",
        paragraphs=(
            "A row is a true class, and its cells say what its images are taken for in the worst case: by the "
            "first attack that breaks an image, or without one where it is wrong from the start. Pairs of like "
            "classes stand out; a dark column is a class that attacks make of anything.",
        ),
        tables=(tables.confusion_table(analysis, classes),),
    )


def attacks_text(classes: Classes) -> str:
    """Name the attacks behind the counts, and where they come from."""
    *before, last = classes.attacks or ("every attack",)
    names = f"{', '.join(before)} and {last}" if before else last
    return f"{names} ({classes.source})"


MEANING = (
    "An analysis asks why a number is what it is, and whether it can be believed: how losses look around images "
    "and weights, how cosines lie, how accuracy falls with more room and more effort for the attacker, and which "
    "classes pay for it.",
)
BOUND = (
    "Robust accuracy is an upper bound, and these attacks are short: use evaluate with the suite standard for a "
    "number to quote."
)
