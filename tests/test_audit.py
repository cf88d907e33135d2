"""The audit: its sample, its bound, and what happens when it finds something."""

from __future__ import annotations

from math import comb
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers import DoesNothing, LinearNet, decisions, images
from scaleproof import PGD, Threat, evaluate, suite
from scaleproof.attacks.base import attack_settings
from scaleproof.attacks.sampled import Left, Sampled
from scaleproof.audit import Audit, audit_of, most_broken
from scaleproof.gallery import gallery
from scaleproof.images import as_images
from scaleproof.statistics import few_probability
from scaleproof.store import FolderStore

LINF = Threat(eps=0.05)
FAB_LIKE = PGD(threat=LINF, name="strong", label="Strong")
NOTHING = DoesNothing(threat=LINF)


def exact_probability(found: int, sample: int, breakable: int, population: int) -> float:
    """P(X <= found), by counting subsets with whole numbers."""
    ways = sum(
        comb(breakable, k) * comb(population - breakable, sample - k)
        for k in range(found + 1)
        if k <= breakable and 0 <= sample - k <= population - breakable
    )
    return ways / comb(population, sample)


@pytest.mark.parametrize(
    ("found", "sample", "population"), [(0, 10, 40), (2, 10, 40), (0, 300, 4800), (5, 5, 9), (0, 1, 1)]
)
def test_the_bound_is_exact(found: int, sample: int, population: int) -> None:
    bound = most_broken(found, sample, population)
    assert exact_probability(found, sample, bound, population) > 0.05
    if bound < population - (sample - found):
        assert exact_probability(found, sample, bound + 1, population) <= 0.05
    assert few_probability(found, sample, bound, population) == pytest.approx(
        exact_probability(found, sample, bound, population), rel=1e-9
    )


def test_a_bound_by_hand() -> None:
    """Two of four looked at, none broken: with two breakable P = C(2,2)/C(4,2) = 1/6, so two are plausible."""
    assert most_broken(0, 2, 4) == 2
    assert most_broken(0, 4, 4) == 0  # all were looked at
    audit = Audit(survivors=4, looked_at=2, broken=0, count=10)
    assert audit.points == pytest.approx(20)
    assert "at most 20.00 points" in audit.sentence(["Square"])


def left(rows: NDArray[np.int64], seed: int = 0) -> Left:
    return Left(rows=rows, margins={}, total=3000, seed=seed)


def test_the_sample_depends_on_seed_and_image_alone() -> None:
    attack, rows = Sampled(FAB_LIKE, count=300), np.arange(3000)
    chosen = attack.takes(left(rows))
    assert 230 < chosen.sum() < 370
    assert (attack.takes(left(rows[500:900])) == chosen[500:900]).all()
    assert (attack.takes(left(rows, seed=1)) != chosen).any()
    assert Sampled(FAB_LIKE, count=10_000).takes(left(rows)).all()


def case() -> tuple[LinearNet, tuple]:
    net, x = LinearNet().eval(), images(80)
    return net, (x, decisions(net, x))


def test_an_audit_that_finds_nothing_gives_a_bound() -> None:
    net, data = case()
    evaluation = evaluate(net, data, [FAB_LIKE, Sampled(NOTHING, count=40)], mode="cascade")
    audit = audit_of(evaluation)
    assert audit is not None
    left = int(evaluation.survivors("strong").sum())
    assert (audit.survivors, audit.broken, audit.count) == (left, 0, 80)
    assert 0 < audit.looked_at < left
    assert any("Not AutoAttack standard" in finding.meaning for finding in evaluation.findings)


def test_an_audit_that_finds_something_runs_in_full(tmp_path: Path) -> None:
    net, data = case()
    attacks = [NOTHING, Sampled(FAB_LIKE, count=30)]
    evaluation = evaluate(net, data, attacks, store=FolderStore(tmp_path), mode="cascade")
    audit = audit_of(evaluation)
    assert audit is not None
    assert audit.broken > 0
    expected = evaluate(net, data, [NOTHING, FAB_LIKE], mode="cascade")
    assert (evaluation.survivors() == expected.survivors()).all()
    assert [result.name for result in evaluation.attacks] == ["does-nothing", "strong-audit", "strong"]
    assert any("run in full" in finding.meaning for finding in evaluation.findings)


def test_what_an_audit_found_and_cost_is_not_forgotten() -> None:
    net, data = case()
    attacks = [NOTHING, Sampled(FAB_LIKE, count=30)]
    evaluation = evaluate(net, data, attacks, mode="cascade", keep_examples=True)
    audit = audit_of(evaluation)
    assert audit is not None
    sampled, full = evaluation.attacks[1:]
    assert sampled.broken().sum() == audit.broken
    assert not (evaluation.survivors() & sampled.broken()).any()
    assert evaluation.seconds >= sampled.seconds + full.seconds
    assert evaluation.examples is not None
    broken = np.flatnonzero(evaluation.clean_correct & ~evaluation.survivors())
    assert sorted(evaluation.examples.row.tolist()) == broken.tolist()
    assert full.broken()[sampled.broken()].all()  # an image meets the same random numbers in both
    attack_of = dict(zip(evaluation.examples.row.tolist(), evaluation.examples.attack.tolist(), strict=True))
    first = [row for row in broken if sampled.broken()[row]]
    assert {attack_of[row] for row in first} == {"strong-audit"}, "who broke an image first has its example"


def test_pictures_after_an_audit_that_found_something() -> None:
    net, data = case()
    attacks = [NOTHING, Sampled(FAB_LIKE, count=30)]
    evaluation = evaluate(net, data, attacks, mode="cascade")
    pictures = gallery(net, as_images(data), attacks, evaluation)
    assert pictures is not None
    assert set(pictures["attack"].tolist()) == {"Strong"}


def test_audits_of_two_sizes_or_alone_are_refused() -> None:
    net, data = case()
    with pytest.raises(ValueError, match="audits share one sample, got counts 40, 30"):
        evaluate(net, data, [Sampled(NOTHING, count=40), Sampled(FAB_LIKE, count=30)], mode="cascade")
    with pytest.raises(ValueError, match="strong-audit is an audit of what other attacks leave"):
        evaluate(net, data, [NOTHING, Sampled(FAB_LIKE)])


def test_the_sentence_names_the_attacks_that_looked() -> None:
    net, data = case()
    evaluation = evaluate(
        net, data, [NOTHING, Sampled(DoesNothing(threat=LINF, name="other", label="Other"))], mode="cascade"
    )
    (finding,) = [finding for finding in evaluation.findings if finding.name == "audit"]
    assert finding.meaning.startswith("Not AutoAttack standard: Other looked at")


def test_without_an_audit_there_is_none() -> None:
    net, data = case()
    assert audit_of(evaluate(net, data, [FAB_LIKE], mode="cascade")) is None
    assert [attack.name for attack in suite("fast")][-2:] == ["fab-t-audit", "square-audit"]


def test_the_source_of_an_audit_s_attack_is_among_its_settings() -> None:
    other = DoesNothing(threat=LINF, name="other", label="Other")
    assert attack_settings(Sampled(other))["source_sha256"] == attack_settings(other)["source_sha256"]
    assert "source_sha256" not in attack_settings(Sampled(PGD(threat=LINF)))
