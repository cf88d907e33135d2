"""Audit: attacks that seldom change a result, on a random sample of what is left, with a bound on the rest.

In published runs of AutoAttack, FAB-T and Square take most of the time and change next to nothing. The suite `fast`
runs them on a sample of the images that withstood everything else. If they break none of m out of M, then with 95%
confidence they could break at most K of M, by the hypergeometric distribution. If they do break some, they run in full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from scaleproof.attacks.base import Attack
from scaleproof.attacks.sampled import SUFFIX, whole
from scaleproof.contract import Finding
from scaleproof.evaluation import AttackResult, Evaluation
from scaleproof.examples import merged
from scaleproof.statistics import last_plausible

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Audit:
    """How many images withstood the attacks before the audit, how many it looked at, and what it broke."""

    survivors: int
    looked_at: int
    broken: int
    count: int  # of all images

    @property
    def bound(self) -> int:
        """With 95% confidence at most so many of the survivors can be broken by the audit's attacks."""
        return most_broken(self.broken, self.looked_at, self.survivors)

    @property
    def points(self) -> float:
        """What those not looked at could still take off the robust accuracy, in points."""
        return 100 * (self.bound - self.broken) / self.count

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "bound": self.bound, "points": self.points, "confidence": CONFIDENCE}

    def sentence(self, attacks: Sequence[str]) -> str:
        return (
            f"Not AutoAttack standard: {' and '.join(attacks)} looked at {self.looked_at} of the {self.survivors} "
            f"images that withstood the rest and broke {self.broken}; with 95% confidence they could take at most "
            f"{self.points:.2f} points more off the robust accuracy."
        )


def most_broken(found: int, sample: int, population: int) -> int:
    """The largest number of breakable images in a population under which so few finds are not yet implausible.

    One-sided, exact: P(at most `found` in a sample without replacement) is above 5%.
    """
    return last_plausible(found, sample, population, 1 - CONFIDENCE)


def audits(evaluation: Evaluation) -> list[AttackResult]:
    """The attacks of an evaluation that looked at a sample only."""
    return [result for result in evaluation.attacks if "audit" in result.settings]


def audit_of(evaluation: Evaluation) -> Audit | None:
    """The audit within an evaluation in cascade mode, where there is one."""
    sampled = audits(evaluation)
    if not sampled:
        return None
    rest = tuple(result for result in evaluation.attacks if "audit" not in result.settings)
    return Audit(
        survivors=replace(evaluation, attacks=rest).robust().correct,
        looked_at=sampled[0].attacked,
        broken=sum(int(result.broken().sum()) for result in sampled),  # a cascade breaks no image twice
        count=evaluation.count,
    )


def audited(evaluated: Callable[[Sequence[Attack]], Evaluation], attacks: Sequence[Attack]) -> Evaluation:
    """What some attacks find, with what their audits mean; audits that break images are run again in full."""
    first = evaluated(attacks)
    audit = audit_of(first)
    if audit is None:
        return first
    if audit.broken == 0:
        labels = [result.label.removesuffix(SUFFIX) for result in audits(first)]
        return with_finding(first, audit.sentence(labels))
    full = evaluated([whole(attack) for attack in attacks])
    meaning = f"the audit broke {audit.broken} of {audit.looked_at} images: its attacks were run in full"
    return with_finding(joined(first, full), meaning)


def joined(first: Evaluation, full: Evaluation) -> Evaluation:
    """Both runs as one: what the audit found counts, and so does what it cost."""
    known = {result.name for result in first.attacks}
    attacks = (*first.attacks, *(result for result in full.attacks if result.name not in known))
    spent = sum(result.seconds for result in attacks) - sum(result.seconds for result in full.attacks)
    both = [one for one in (full.examples, first.examples) if one is not None]  # the audit came first
    return replace(full, attacks=attacks, seconds=full.seconds + spent, examples=merged(both))


def with_finding(evaluation: Evaluation, meaning: str) -> Evaluation:
    finding = Finding(name="audit", severity="note", meaning=meaning.rstrip("."))
    return replace(evaluation, findings=(*evaluation.findings, finding))
