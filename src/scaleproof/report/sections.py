"""The parts that reports of every kind are made of, before any markup."""

from dataclasses import dataclass

from scaleproof.report import tables, words
from scaleproof.report.records import Evaluation, Expected, Finding, Provenance, Run, Share, Speed, Verdicts
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
    """A whole report; an alarm says why its headline must not be quoted."""

    title: str
    subject: str
    headline: str
    detail: str
    meaning: tuple[str, ...]
    sections: tuple[Section, ...]
    alarm: str = ""


def bound(worst: Share, *, trusted: bool = True, expected: Expected | None = None) -> str:
    """Print robust accuracy as the bound that it is, and as unreliable where a check failed.

    Of a randomised model it is the expected one, over its draws.
    """
    text = f"robust accuracy at most {words.share_percent(worst)}"
    if expected is not None:
        text = f"expected robust accuracy at most {words.percent(expected.worst_case, words.decimals(worst.count))}"
    return f"Unreliable: {text}" if not trusted else text[0].upper() + text[1:]


def expected_sentences(evaluation: Evaluation) -> tuple[str, ...]:
    """Say how the number of a randomised model is to be read, or nothing of any other."""
    expected, worst = evaluation.expected, evaluation.worst_case
    if expected is None:
        return ()
    places = words.decimals(worst.count)
    return (
        f"Verdicts are over {expected.draws} draws each. The number of a randomised model is its expected "
        f"accuracy: clean {words.percent(expected.clean, places)}, and {words.percent(expected.worst_case, places)} on "
        f"the worst example found for each image; one that is wrong on the mean is not attacked and counts as it is. "
        f"All else in the tables goes by the mean probabilities of the draws, as the attacks do "
        f"({words.share_percent(worst)} in the worst case).",
    )


def surety(worst: Share) -> str:
    """Print how sure a share is: its interval and the number of images."""
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
    said = (*publish_sentence(evaluation), *warning_sentence(evaluation))
    return (first, *expected_sentences(evaluation), second, *said)


def publish_sentence(evaluation: Evaluation) -> tuple[str, ...]:
    """Say what gives the number to publish, where nothing else is said against this one."""
    named = {finding.name for finding in evaluation.findings}
    randomised = evaluation.expected is not None or "randomised" in named
    said = words.to_publish({attack.name: attack.settings for attack in evaluation.attacks})
    return (said,) if said and words.trusted(evaluation) and not randomised else ()


def warning_sentence(evaluation: Evaluation) -> tuple[str, ...]:
    """Point to the warnings among the findings, where there are any."""
    count = sum(finding.severity == "warning" for finding in evaluation.findings)
    if count == 0:
        return ()
    return (
        f"Before quoting the number, read the {words.plural(count, 'warning')} among the findings below.",
    )


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
    return (words.COSINES,)


def class_section(run: Run, evaluation: Evaluation, verdicts: Verdicts) -> Section:
    """Build the section on classes from per-image verdicts."""
    table = tables.class_table(run, evaluation, verdicts)
    sentence = "A class has fewer images than the whole, so its interval is wider: compare classes with care."
    return Section(identifier="classes", title="Classes", paragraphs=(sentence,), tables=(table,))


def image_section(run: Run, evaluation: Evaluation, verdicts: Verdicts) -> Section:
    """Build the section on single images: what each attack adds to the others."""
    file = "verdicts-selected.npz" if run.run.kind == "training" else "verdicts.npz"
    sentence = (
        f"An image counts as broken if any restart of an attack changes its class. {file} has the verdict on "
        "every image."
    )
    tabled = evaluation.mode != "cascade" and len(evaluation.attacks) > 1
    found = (tables.overlap_table(run.run, evaluation, verdicts),) if tabled else ()
    return Section(identifier="images", title="Image by image", paragraphs=(sentence,), tables=found)


def speed_sentence(speed: Speed, device: str) -> str:
    """Say how the attacks were executed."""
    cpu = speed.precision == "tf32" and device == "cpu"
    precision = "float32 (TF32 is for GPUs)" if cpu else speed.precision
    switches = ("folded", speed.folded), ("graph", speed.graph), ("compiled", speed.compiled)
    states = ", ".join(f"{name} {'on' if state else 'off'}" for name, state in switches)
    return f"Gradients in {precision}, verdicts in float32; {states}."


def attack_pairs(evaluation: Evaluation | None) -> list[tuple[str, str]]:
    """List the settings of each attack of an evaluation."""
    pairs: list[tuple[str, str]] = []
    for attack in evaluation.attacks if evaluation else ():
        pairs += tables.flatten(attack.settings, f"{attack.name}: ")
    return pairs


def provenance_section(pairs: list[tuple[str, str]]) -> Section:
    """Build the section on where the numbers came from."""
    table = tables.pair_table("Where these numbers come from", ("What", "Value"), pairs)
    return Section(identifier="provenance", title="Provenance", tables=(table,))


def run_pairs(run: Provenance) -> list[tuple[str, str]]:
    """List what run.json says that is needed to repeat a run."""
    return [
        ("Name", run.name),
        ("Created", run.created),
        ("Command", run.command),
        ("Seed", str(run.seed)),
        ("scaleproof commit", run.commit or "unknown"),
        ("Versions", words.versions_text(run.versions)),
        ("Hardware", words.hardware_text(run)),
        ("Seconds", words.seconds(run.seconds)),
        ("Settings SHA-256", run.settings_sha256),
    ]
