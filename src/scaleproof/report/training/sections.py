"""The report of a training as headline, paragraphs and sections, before any markup."""

from dataclasses import replace

from scaleproof.report import tables, words
from scaleproof.report.checks import alarm, checks_section
from scaleproof.report.records import Finding, Run
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
from scaleproof.report.training.records import Checkpoint, Training
from scaleproof.report.training.tables import (
    checkpoints_table,
    curve_table,
    geometry_table,
    losses_table,
    settings_tables,
    time_table,
)
from scaleproof.report.training.words import (
    LEAK,
    checkpoints,
    counts_text,
    graph_text,
    guard_sentences,
    overfitting,
    precision_text,
    probes,
    term_names,
)


def training_document(run: Run, training: Training) -> Document:
    """Build the report of a training."""
    chosen = training.selected
    trained = f"{training.architecture} ({words.plural(training.parameters, 'parameter')})"
    return Document(
        title=run.run.name,
        subject=f"{training.label} on {trained}, trained on {words.data_text(training.data)}; measured on "
        f"{words.data_text(training.test)}; {words.threat_text(training.threat)}",
        headline=bound(chosen.evaluation.worst_case, trusted=words.trusted(chosen.evaluation)),
        detail=f"{surety(chosen.evaluation.worst_case)}, epoch {chosen.epoch} of {len(training.history)}",
        meaning=(
            *meaning(chosen.evaluation),
            *guard_sentences(training),
            overfitting(training),
        ),
        sections=(
            checkpoints_section(run, training),
            checks_section(run.run, chosen.evaluation),
            *findings_sections(training),
            *guard_sections(training),
            curve_section(run, training),
            losses_section(run, training),
            geometry_section(run, training),
            *class_sections(run, training),
            time_section(run, training),
            settings_section(training),
            provenance_section(provenance_pairs(run, training)),
        ),
        alarm=alarm(chosen.evaluation),
    )


def checkpoints_section(run: Run, training: Training) -> Section:
    """Build the section on the sets of weights."""
    evaluation = training.selected.evaluation
    detail = tables.attacks_table(run.run, evaluation)
    detail = replace(detail, caption=f"Selected weights: {detail.caption[0].lower()}{detail.caption[1:]}")
    return Section(
        identifier="weights",
        title="Selected, last and leaking weights" if training.leaking else "Selected and last weights",
        paragraphs=(
            *((LEAK,) if training.leaking else ()),
            mode_sentence(evaluation),
            *cosine_sentences(evaluation),
        ),
        tables=(checkpoints_table(run.run, training), replace(detail, folded=True)),
    )


def findings_sections(training: Training) -> tuple[Section, ...]:
    """Build the section on the findings about each set of weights, once for equal ones."""
    seen = {one.evaluation.model.weights_sha256: one for one in reversed(checkpoints(training))}
    ordered = [one for one in checkpoints(training) if seen[one.evaluation.model.weights_sha256] is one]
    found = tuple(
        replace(finding, name=f"{finding.name} ({one.kind} weights)")
        for one in ordered
        for finding in one.evaluation.findings
    )
    return (Section(identifier="findings", title="Findings", findings=found),) if found else ()


def guard_sections(training: Training) -> tuple[Section, ...]:
    """Build the section on what the guard did, where it did anything."""
    notes = tuple(
        Finding(name=f"epoch {epoch.number}", severity="warning", meaning=f"{epoch.guard}.")
        for epoch in training.history
        if epoch.guard is not None
    )
    if not notes and training.stopped is None:
        return ()
    return (
        Section(
            identifier="guard",
            title="What the guard did",
            paragraphs=(
                "After each probe the guard compares the accuracy under PGD on held-out images with the best "
                f"so far; a fall by more than {training.config.guard_drop:g} points, or to next to nothing, makes it "
                f"act (set to {training.config.guard}).",
            ),
            findings=notes,
        ),
    )


def curve_section(run: Run, training: Training) -> Section:
    """Build the section on accuracy over the epochs."""
    if not probes(training):
        sentence = "No images were held out and none of the test images probed, so there is no curve to show."
        return Section(identifier="no-curve", title="Accuracy over the epochs", paragraphs=(sentence,))
    sentence = (
        f"After an epoch a probe measures the same images in the same way: {counts_text(training)}, clean and "
        f"under PGD of {training.config.probe_steps} steps from a fixed start. It serves "
        "to compare epochs; the numbers to quote are those above."
    )
    choice = "The selected epoch is the first with the highest PGD accuracy on the held-out images."
    return Section(
        identifier="curve",
        title="Accuracy over the epochs",
        paragraphs=(f"{sentence} {choice}" if training.held_out else sentence,),
        tables=(curve_table(run.run, training),),
    )


def losses_section(run: Run, training: Training) -> Section:
    """Build the section on the loss."""
    names = term_names(training)
    parts = f"The loss is the sum of {len(names)} terms: {', '.join(names)}. " if len(names) > 1 else ""
    sentence = (
        f"{parts}The learning rate is the one in the middle of the epoch; accuracy in training counts the very "
        "images and perturbations that were trained on."
    )
    return Section(
        identifier="losses",
        title="Loss and learning rate",
        paragraphs=(sentence,),
        tables=(losses_table(run.run, training),),
    )


def geometry_section(run: Run, training: Training) -> Section:
    """Build the section on lengths and cosines in the last layer."""
    sentence = (
        "|W| is the mean length of the class weights of the last layer, |z| the mean length of the features on "
        "clean images, and the cosine that between the features and the weights of the true class. |z| "
        "scales all logits of an image alike, so apart from biases it moves no decision."
    )
    averaged = (
        ("|W| is that of the weights in training, |z| and the cosine those of their running average.",)
        if training.config.averaged
        else ()
    )
    return Section(
        identifier="geometry",
        title="Lengths and cosines in the last layer",
        paragraphs=(sentence, *averaged),
        tables=(geometry_table(run.run, training),),
    )


def class_sections(run: Run, training: Training) -> tuple[Section, ...]:
    """Build the sections on classes and images under the selected weights, where verdicts are at hand."""
    if run.verdicts is None:
        return ()
    measured = (run, training.selected.evaluation, run.verdicts)
    found = class_section(*measured), image_section(*measured)
    return tuple(replace(section, title=f"{section.title}, selected weights") for section in found)


def time_section(run: Run, training: Training) -> Section:
    """Build the section on time and on how the run was computed."""
    evaluation = training.selected.evaluation
    cost = tables.cost_table(run, evaluation)
    cost = replace(
        cost, caption=f"Selected weights: {cost.caption[0].lower()}{cost.caption[1:]}", folded=True
    )
    executed = speed_sentence(evaluation.speed, run.run.device)
    notes = dict.fromkeys((*training.notes, *evaluation.speed.notes))
    return Section(
        identifier="time",
        title="Time and how it was computed",
        paragraphs=(
            f"Training: precision {precision_text(training)}, {graph_text(training)}. Attacks on the test images: "
            f"{executed[:1].lower()}{executed[1:]}",
            *(f"Note: {note}." for note in notes),
            "The seconds are those of the training steps; probes and the attacks at the end come on top.",
        ),
        tables=(time_table(training), cost),
    )


def settings_section(training: Training) -> Section:
    """Build the section on settings: defense, recipe, configuration and attacks."""
    defense, config = settings_tables(training)
    pairs = attack_pairs(training.selected.evaluation)
    attacks = tables.pair_table("Settings of each attack on the test images", ("Setting", "Value"), pairs)
    folded = (replace(config, folded=True), replace(attacks, folded=True))
    return Section(identifier="settings", title="Settings", tables=(defense, *folded))


def provenance_pairs(run: Run, training: Training) -> list[tuple[str, str]]:
    """List everything needed to repeat the training."""
    measured = training.selected.evaluation.worst_case.count
    pairs = run_pairs(run.run)
    for one in checkpoints(training):
        pairs.append((f"Weights, {one.kind}", weights_text(one)))
    for name, data in (("Training data", training.data), ("Test data", training.test)):
        pairs += [
            (name, words.data_text(data)),
            (f"{name} SHA-256", data.sha256),
            (f"{name} source", data.source),
        ]
    return [*pairs, ("Images held out", str(training.held_out)), ("Images measured (n)", str(measured))]


def weights_text(checkpoint: Checkpoint) -> str:
    """Print the file, the epoch and the digest of a set of weights."""
    digest = checkpoint.evaluation.model.weights_sha256
    return f"{checkpoint.file}, epoch {checkpoint.epoch}, SHA-256 {digest}"
