"""Numbers as the report prints them."""

import math
from collections.abc import Mapping

from scaleproof.report.records import Data, Evaluation, Model, Provenance, Share, Threat
from scaleproof.statistics import wilson

NORMS = {"linf": "ℓ∞", "l2": "ℓ₂"}
MANY = 5000
DASH = "–"
COSINES = (
    "Attacks marked SI climb the cosines of the last layer instead of the logits, which takes the scale "
    "out. The cosine mismatch is the share of clean images on which the largest cosine and the largest "
    "logit name different classes; verdicts are always those of the logits."
)
AUTOATTACK = {"apgd-ce", "apgd-t", "fab-t", "square"}
BLACK_BOX = {"square", "spsa", "rays"}
NOT_TO_PUBLISH = (
    "This is not the number to publish: scaleproof evaluate with --attacks standard (AutoAttack) gives it."
)
TOPICS = {  # what checks are about whose labels, in runs from before, state what nobody found
    "The scale of the logits does not matter": "Scale of the logits",
    "What was broken on the way is returned": "What was broken on the way",
    "No transferred example does better": "Transferred examples",
    "Gradients say where the loss grows": "Direction of the gradients",
}


def decimals(count: int) -> int:
    """Return how many decimals of a percentage a count of images can carry."""
    return 2 if count >= MANY else 1


def percent(fraction: float, places: int = 1) -> str:
    """Print a fraction as a percentage."""
    return f"{100 * fraction:.{places}f}%"


def share_percent(share: Share) -> str:
    """Print the accuracy of a share."""
    return percent(share.accuracy, decimals(share.count))


def interval(share: Share, between: str = " to ") -> str:
    """Print the interval of a share, in percent without the sign."""
    places = decimals(share.count)
    low, high = share.interval
    return f"{100 * low:.{places}f}{between}{100 * high:.{places}f}"


def share_of(correct: int, count: int) -> Share:
    """Build a share with its interval from two counts."""
    return Share(correct=correct, count=count, accuracy=correct / count, interval=wilson(correct, count))


def whole(number: int) -> str:
    """Print a whole number, grouped by thousands from five digits on."""
    return f"{number:,}" if number >= 10_000 else str(number)


def quotient(total: float, parts: int) -> str:
    """Print a total per part with at most one decimal, or a dash where there are no parts."""
    if parts == 0:
        return DASH
    text = f"{total / parts:,.1f}"
    return text.removesuffix(".0")


def significant(number: float, digits: int = 3) -> str:
    """Print a number with three significant digits, or as many as asked for."""
    if not math.isfinite(number):
        return "not finite"
    return "0" if number == 0 else f"{number:.{digits}g}"


def seconds(number: float) -> str:
    """Print a duration in seconds."""
    return f"{number:.2f}" if number < 10 else f"{number:,.0f}"


def mismatch(fraction: float | None) -> str:
    """Print a cosine mismatch, or that nobody measured it."""
    return "not measured" if fraction is None else percent(fraction, 2)


def radius(eps: float) -> str:
    """Print a radius, in 255ths where it is a whole number of them."""
    levels = eps * 255
    nearest = round(levels)
    return f"{nearest}/255" if nearest > 0 and abs(levels - nearest) < 1e-4 and eps < 1 else f"{eps:g}"


def threat_text(threat: Threat, link: str = "") -> str:
    """Print a threat model."""
    return f"{NORMS[threat.norm]} radius{link} {radius(threat.eps)}"


def plural(count: int, noun: str) -> str:
    """Print a count with its noun."""
    return f"{whole(count)} {noun}" if count == 1 else f"{whole(count)} {noun}s"


def counted(number: float, noun: str) -> str:
    """Print a number that need not be whole with its noun."""
    return f"{number:g} {noun}{'' if number == 1 else 's'}"


def commit_text(commit: str | None) -> str:
    """Print a commit, shortened, with the + that marks changed files, or that it is unknown."""
    if commit is None:
        return "unknown"
    return commit[:12] + ("+" if commit.endswith("+") and len(commit) > 12 else "")


def versions_text(versions: Mapping[str, str]) -> str:
    """Print the versions of the software in use."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def hardware_text(run: Provenance) -> str:
    """Print the hardware in use."""
    return f"{run.device_name} ({run.device}, {plural(run.threads, 'thread')})"


def provenance_note(run: Provenance, count: int) -> str:
    """Print the line that every table carries: n, seed, the commit of scaleproof, hardware and versions."""
    return f"n = {count}; {origin_note(run)}"


def origin_note(run: Provenance) -> str:
    """Print where numbers come from: seed, the commit of scaleproof, hardware and versions."""
    return (
        f"seed {run.seed}; scaleproof commit {commit_text(run.commit)}; {hardware_text(run)}; "
        f"{versions_text(run.versions)}."
    )


def model_text(model: Model) -> str:
    """Print which classifier was measured."""
    return f"{model.spec} ({model.architecture}, {plural(model.parameters, 'parameter')})"


def data_text(data: Data) -> str:
    """Print which images it was measured on."""
    return f"{data.name}, {data.split} split, {plural(data.count, 'image')}"


def trusted(evaluation: Evaluation) -> bool:
    """Tell whether nothing on record makes the number of an evaluation unreliable."""
    failed = any(check.passed is False for check in evaluation.checks or ())
    return evaluation.reliable is not False and not failed


def to_publish(attacks: Mapping[str, Mapping[str, object]]) -> str:
    """Say by the settings of attacks, under their names, that they do not give the number to publish, or nothing.

    Nothing is said of audits, which have words of their own, of black-box attacks alone, and of foreign attacks.
    """
    kinds = {str(settings.get("attack")) for settings in attacks.values()}
    audited = any("audit" in settings for settings in attacks.values())
    enough = set(attacks) >= AUTOATTACK or audited or kinds <= BLACK_BOX or "foreign" in kinds
    return "" if enough else NOT_TO_PUBLISH


def worst_label(evaluation: Evaluation) -> str:
    """Name the worst case, with the warning that belongs to it; a randomised model's is not its number."""
    mean = evaluation.expected is not None
    reasons = (("unreliable", not trusted(evaluation)), ("of the mean answer", mean))
    said = ", ".join(reason for reason, holds in reasons if holds)
    return f"Worst case ({said})" if said else "Worst case"


def topic(label: str) -> str:
    """Say what a check that was skipped is about, without the claim in its label."""
    return TOPICS.get(label, label)


def on_cosines(name: str, fraction: float | None = None) -> bool:
    """Tell whether an attack climbs the cosines rather than the logits."""
    return fraction is not None or name.startswith("si-")
