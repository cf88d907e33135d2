"""The report as headline, paragraphs and sections, before any markup."""

from dataclasses import dataclass

from scaleproof.report import scale, tables, words
from scaleproof.report.records import Evaluation, Finding, Run
from scaleproof.report.tables import Table


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report under one heading."""

    identifier: str
    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    findings: tuple[Finding, ...] = ()
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class Document:
    """A whole report."""

    title: str
    subject: str
    headline: str
    detail: str
    meaning: tuple[str, ...]
    sections: tuple[Section, ...]


def build_document(run: Run) -> Document:
    """Build the report of a run."""
    measured = run.evaluation or run.sweep
    if measured is None:
        raise ValueError(
            "A report needs evaluation.json or sweep.json, but the run has neither; finish the run"
        )
    subject = f"{words.model_text(measured.model)} on {words.data_text(measured.data)}"
    parts = (*evaluation_sections(run), *sweep_sections(run), *class_sections(run), *cost_sections(run))
    return Document(
        title=run.run.name,
        subject=f"{subject}; {words.threat_text(measured.threat)}",
        headline=headline(run),
        detail=detail(run),
        meaning=meaning(run.evaluation) if run.evaluation else scale.SCALE_SENTENCES,
        sections=(*parts, settings_section(run), provenance_section(run)),
    )


def headline(run: Run) -> str:
    """Print the one number that matters, as the bound that it is."""
    if run.evaluation is None:
        return scale.scale_headline(run.sweep) if run.sweep else ""
    return f"Robust accuracy at most {words.share_percent(run.evaluation.worst_case)}"


def detail(run: Run) -> str:
    """Print how sure the headline is: its interval and the number of images."""
    if run.evaluation is None:
        return scale.scale_detail(run.sweep) if run.sweep else ""
    worst = run.evaluation.worst_case
    return f"95% interval {words.interval(worst)}, n = {worst.count}"


def meaning(evaluation: Evaluation) -> tuple[str, ...]:
    """Say what the headline of an evaluation means and what it does not."""
    clean, worst, threat = evaluation.clean, evaluation.worst_case, evaluation.threat
    broken = clean.correct - worst.correct
    count = len(evaluation.attacks)
    attacks = f"at least one of {count} attacks" if count > 1 else "the one attack"
    first = (
        f"Of {worst.count} images the classifier gets {clean.correct} right ({words.share_percent(clean)}). "
        f"Within an {words.threat_text(threat, ' of')}, {attacks} changes the class of "
        f"{broken} of these; {worst.correct} withstand every attack and restart."
    )
    second = (
        "Robust accuracy is an upper bound: an attack shows that an image can be broken, never that it "
        "cannot, and a stronger attack can only lower the number. The interval covers the choice of test "
        "images, not the weakness of the attacks."
    )
    return (first, second, *warning_sentence(evaluation))


def warning_sentence(evaluation: Evaluation) -> tuple[str, ...]:
    """Point to the warnings among the findings, where there are any."""
    count = sum(finding.severity == "warning" for finding in evaluation.findings)
    if count == 0:
        return ()
    return (
        f"Before quoting the number, read the {words.plural(count, 'warning')} among the findings below.",
    )


def evaluation_sections(run: Run) -> tuple[Section, ...]:
    """Build the sections on attacks and findings."""
    evaluation = run.evaluation
    if evaluation is None:
        return ()
    table = tables.attacks_table(run.run, evaluation)
    attacks = Section(
        identifier="attacks",
        title="Accuracy under each attack",
        paragraphs=(mode_sentence(evaluation), *cosine_sentences(evaluation)),
        tables=(table,),
    )
    if not evaluation.findings:
        return (attacks,)
    found = Section(identifier="findings", title="Findings", findings=evaluation.findings)
    return (attacks, found)


def mode_sentence(evaluation: Evaluation) -> str:
    """Say which images each attack saw."""
    if evaluation.mode == "cascade":
        return (
            "The attacks ran as a cascade: each saw only the images that withstood those before it, so a "
            "line shows the accuracy left after that attack, not that attack’s strength alone."
        )
    return (
        "Each attack ran on its own; the worst case counts an image as robust only if it withstood them all."
    )


def cosine_sentences(evaluation: Evaluation) -> tuple[str, ...]:
    """Explain the cosine mismatch, where an attack on cosines took part."""
    if not any(tables.on_cosine(attack) for attack in evaluation.attacks):
        return ()
    return (
        "Attacks marked SI climb the cosines of the last layer instead of the logits, which takes the scale "
        "out. The cosine mismatch is the share of clean images on which the largest cosine and the largest "
        "logit name different classes; verdicts are always those of the logits.",
    )


def sweep_sections(run: Run) -> tuple[Section, ...]:
    """Build the section on the scale of the logits."""
    if run.sweep is None:
        return ()
    beside = run.evaluation is not None
    return (
        Section(
            identifier="scale",
            title="Does the verdict depend on the scale of the logits?",
            paragraphs=(
                f"{scale.scale_headline(run.sweep)} ({scale.scale_detail(run.sweep)}).",
                *scale.SCALE_SENTENCES,
            )
            if beside
            else (),
            tables=(scale.scale_table(run.run, run.sweep), scale.detail_table(run.run, run.sweep)),
        ),
    )


def class_sections(run: Run) -> tuple[Section, ...]:
    """Build the section on classes, where per-image verdicts are at hand."""
    if run.evaluation is None or run.verdicts is None:
        return ()
    table = tables.class_table(run, run.evaluation, run.verdicts)
    sentence = "A class has fewer images than the whole, so its interval is wider: compare classes with care."
    return (Section(identifier="classes", title="Classes", paragraphs=(sentence,), tables=(table,)),)


def cost_sections(run: Run) -> tuple[Section, ...]:
    """Build the section on cost."""
    if run.evaluation is None:
        return ()
    speed = run.evaluation.speed
    switches = ("folded", speed.folded), ("graph", speed.graph), ("compiled", speed.compiled)
    states = ", ".join(f"{name} {'on' if state else 'off'}" for name, state in switches)
    return (
        Section(
            identifier="cost",
            title="Cost",
            paragraphs=(f"Precision {speed.precision}; {states}.", *speed.notes),
            tables=(tables.cost_table(run, run.evaluation),),
            folded=True,
        ),
    )


def settings_section(run: Run) -> Section:
    """Build the section on settings: those of the run and those of each attack."""
    pairs = tables.flatten(run.run.settings)
    attacks = run.evaluation.attacks if run.evaluation else ()
    for attack in attacks:
        pairs += tables.flatten(attack.settings, f"{attack.name}: ")
    table = tables.pair_table("Settings of the run and of each attack", ("Setting", "Value"), pairs)
    return Section(identifier="settings", title="Settings", tables=(table,), folded=True)


def provenance_section(run: Run) -> Section:
    """Build the section on where the numbers came from."""
    table = tables.pair_table("Where these numbers come from", ("What", "Value"), provenance_pairs(run))
    return Section(identifier="provenance", title="Provenance", tables=(table,))


def provenance_pairs(run: Run) -> list[tuple[str, str]]:
    """List everything needed to repeat the run."""
    measured = run.evaluation or run.sweep
    pairs = [
        ("Name", run.run.name),
        ("Created", run.run.created),
        ("Command", run.run.command),
        ("Seed", str(run.run.seed)),
        ("Commit", run.run.commit or "unknown"),
        ("Versions", words.versions_text(run.run.versions)),
        ("Hardware", words.hardware_text(run.run)),
        ("Seconds", words.seconds(run.run.seconds)),
        ("Settings SHA-256", run.run.settings_sha256),
    ]
    if measured is not None:
        pairs += [
            ("Model", words.model_text(measured.model)),
            ("Head", measured.model.head or "none found"),
            ("Weights SHA-256", measured.model.weights_sha256),
            ("Data", words.data_text(measured.data)),
            ("Data SHA-256", measured.data.sha256),
            ("Data source", measured.data.source),
            (
                "Images measured (n)",
                str((run.evaluation.worst_case if run.evaluation else measured.clean).count),
            ),
        ]
    return pairs
