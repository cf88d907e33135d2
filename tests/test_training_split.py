"""Which images a training holds out."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scaleproof.training.checks import check_identity, identity
from scaleproof.training.images import split
from training_helpers import QUICK, chosen, finished, small, trainer


def test_the_split_is_disjoint_complete_and_always_the_same() -> None:
    labels = np.arange(500) % 10
    train, held_out = split(labels, 100)
    assert (len(train), len(held_out)) == (400, 100)
    assert sorted([*train, *held_out]) == list(range(500))
    assert (np.diff(train) > 0).all()
    assert np.array_equal(split(labels, 100)[1], held_out)
    assert held_out.std() > 100  # from all over the set, not a block of it
    assert len(split(labels, 0)[1]) == 0
    with pytest.raises(ValueError, match="smaller than the training set of 500 images, got 500"):
        split(labels, 500)


def test_of_a_small_set_each_class_gives_its_share() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [500, 300, 100]))
    assert np.bincount(labels[split(labels, 90)[1]]).tolist() == [50, 30, 10]
    assert np.bincount(labels[split(labels, 3)[1]], minlength=3).tolist() == [2, 1, 0]


def test_the_split_of_a_large_set_is_that_of_all_results() -> None:
    """Results are kept of networks that were selected on these images of CIFAR-10."""
    digests = [
        hashlib.sha256(rows.tobytes()).hexdigest()[:16] for rows in split(np.arange(50_000) % 10, 1000)
    ]
    assert digests == ["670c135553f9f105", "91160889e3b04715"]


def test_a_checkpoint_from_before_small_sets_were_balanced_is_not_gone_on_with(tmp_path: Path) -> None:
    """Its network was trained on images that would be held out now."""
    older = trainer("standard", replace(QUICK, epochs=1), tmp_path)
    del older.identity["held_out"]
    finished(older)
    with pytest.raises(ValueError, match=r"another training \(an older version began it, which held out"):
        finished(trainer("standard", replace(QUICK, epochs=1), tmp_path))
    assert "held_out" not in identity(small(), chosen("at"), replace(QUICK, validation=0))


@pytest.mark.parametrize(
    ("count", "validation", "told"),
    [
        (64, 0, "validation was 6, is 0"),
        (80, 6, "its images are others: other data, or another number"),
    ],
)
def test_no_older_version_is_blamed_where_something_else_explains_it(
    count: int, validation: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    then = identity(small(), chosen("at"), QUICK)
    monkeypatch.setattr("scaleproof.training.checks.SMALL", 80)
    now = identity(small(count), chosen("at"), replace(QUICK, validation=validation))
    with pytest.raises(ValueError, match="another training") as caught:
        check_identity(then, now, None)
    assert told in str(caught.value)
    assert "older version" not in str(caught.value)
