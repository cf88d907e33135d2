"""The report as headline, paragraphs and sections, before any markup."""

from scaleproof.report import scale, tables, words
from scaleproof.report.analysis.sections import analysis_document, analysis_sections
from scaleproof.report.checks import alarm, checks_section
from scaleproof.report.records import Evaluation, Run, Sweep
from scaleproof.report.sections import (
    Document,
    Section,
    attack_pairs,
    bound,
    class_section,
    cosine_sentences,
    image_section,
    meaning,
    mode_sentence,
    provenance_section,
    run_pairs,
    speed_sentence,
    surety,
)
from scaleproof.report.training.sections import training_document


def build_document(run: Run) -> Document:
    """Build the report of a run."""
    if run.training is not None:
        return training_document(run, run.training)
    measured = run.evaluation or run.sweep
    if measured is None and run.analysis is not None:
        return analysis_document(run, run.analysis)
    if measured is None:
        raise ValueError(
            "A report needs evaluation.json, sweep.json or training.json, but the run has none; finish the run"
        )
    subject = f"{words.model_text(measured.model)} on {words.data_text(measured.data)}"
    headline, detail, means = claim(run)
    parts = (*evaluation_sections(run), *sweep_sections(run), *class_sections(run), *cost_sections(run))
    return Document(
        title=run.run.name,
        subject=f"{subject}; {words.threat_text(measured.threat)}",
        headline=headline,
        detail=detail,
        meaning=means,
        sections=(
            *parts,
            *(analysis_sections(run.analysis) if run.analysis else ()),
            settings_section(run),
            provenance_section(provenance_pairs(run, measured)),
        ),
        alarm=alarm(run.evaluation),
    )


def claim(run: Run) -> tuple[str, str, tuple[str, ...]]:
    """Print the one number that matters as the bound that it is, how sure it is, and what it means."""
    evaluation, sweep = run.evaluation, run.sweep
    if evaluation is None:
        assert sweep is not None
        return scale.scale_headline(sweep), scale.scale_detail(sweep), scale.scale_sentences(sweep)
    worst, expected = evaluation.worst_case, evaluation.expected
    headline = bound(worst, trusted=words.trusted(evaluation), expected=expected)
    sure = surety(worst) if expected is None else f"mean of {expected.draws} draws, n = {worst.count}"
    return headline, sure, meaning(evaluation)


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
    checked = checks_section(run.run, evaluation)
    if not evaluation.findings:
        return (attacks, checked)
    found = Section(identifier="findings", title="Findings", findings=evaluation.findings)
    return (attacks, checked, found)


def sweep_sections(run: Run) -> tuple[Section, ...]:
    """Build the section on the scale of the logits; what the attacks above explain is not explained again."""
    if run.sweep is None:
        return ()
    beside = run.evaluation is not None
    told = set(cosine_sentences(run.evaluation)) if run.evaluation else set()
    return (
        Section(
            identifier="scale",
            title="Does the verdict depend on the scale of the logits?",
            paragraphs=(
                f"{scale.scale_headline(run.sweep)} ({scale.scale_detail(run.sweep)}).",
                *(text for text in scale.scale_sentences(run.sweep) if text not in told),
            )
            if beside
            else (),
            tables=(scale.scale_table(run.run, run.sweep), scale.detail_table(run.run, run.sweep)),
        ),
    )


def class_sections(run: Run) -> tuple[Section, ...]:
    """Build the sections on classes and on images, where per-image verdicts are at hand."""
    if run.evaluation is None or run.verdicts is None:
        return ()
    measured = (run, run.evaluation, run.verdicts)
    return (class_section(*measured), image_section(*measured))


def cost_sections(run: Run) -> tuple[Section, ...]:
    """Build the section on cost."""
    if run.evaluation is None:
        return ()
    speed = run.evaluation.speed
    return (
        Section(
            identifier="cost",
            title="Cost",
            paragraphs=(speed_sentence(speed, run.run.device), *speed.notes),
            tables=(tables.cost_table(run, run.evaluation),),
            folded=True,
        ),
    )


def settings_section(run: Run) -> Section:
    """Build the section on settings: those of the run and those of each attack."""
    pairs = tables.flatten(run.run.settings) + attack_pairs(run.evaluation)
    table = tables.pair_table("Settings of the run and of each attack", ("Setting", "Value"), pairs)
    return Section(identifier="settings", title="Settings", tables=(table,), folded=True)


def provenance_pairs(run: Run, measured: Evaluation | Sweep) -> list[tuple[str, str]]:
    """List everything needed to repeat the run."""
    share = measured.worst_case if isinstance(measured, Evaluation) else measured.clean
    return [
        *run_pairs(run.run),
        ("Model", words.model_text(measured.model)),
        ("Head", measured.model.head or "not looked for: no attack needed it"),
        ("Weights SHA-256", measured.model.weights_sha256),
        ("Data", words.data_text(measured.data)),
        ("Data SHA-256", measured.data.sha256),
        ("Data source", measured.data.source),
        ("Images measured (n)", str(share.count)),
    ]
