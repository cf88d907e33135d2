"""The logit-scale sweep on the demo network: what the paper's first figure says."""

import pytest
import torch

from scaleproof import load, load_model, scale_sweep, suite
from scaleproof.analysis import ALPHAS, Sweep, sweepable
from scaleproof.attacks import PGD


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    model, images = load_model("demo").classifier, load("sample").first(40)
    return scale_sweep(model, images, sweepable(suite("paper", steps=10)))


def test_all_scales_and_attacks_are_there(sweep: Sweep) -> None:
    assert len(sweep.rows) == len(ALPHAS) * 4 == 28
    assert {row.attack for row in sweep.rows} == {"pgd", "pgd-cw", "pgd-dlr", "si-pgd"}


def test_pgd_swings_and_si_pgd_does_not(sweep: Sweep) -> None:
    assert sweep.swing("pgd") > 0.10
    assert sweep.swing("si-pgd") == 0
    assert sweep.identical["si-pgd"], "bit for bit the same examples at all seven scales"
    assert not sweep.identical["pgd"]


def test_margins_are_scale_invariant_too(sweep: Sweep) -> None:
    assert sweep.swing("pgd-cw") <= 0.05
    assert sweep.swing("pgd-dlr") <= 0.05
    assert {row.attack for row in sweep.rows if row.scale_invariant} == {"pgd-cw", "pgd-dlr", "si-pgd"}


def test_gradients_vanish_where_pgd_fails(sweep: Sweep) -> None:
    zeros = {row.alpha: row.zero_gradients for row in sweep.of("pgd")}
    assert zeros[1.0] < 0.05
    assert zeros[1e3] > 0.5
    assert len({(row.gradient_size, row.zero_gradients) for row in sweep.of("si-pgd")}) == 1
    sizes = [row.gradient_size for row in sweep.of("pgd-cw")]
    assert sizes == pytest.approx([sizes[3] * alpha for alpha in ALPHAS], rel=1e-3)


def test_clean_accuracy_does_not_move(sweep: Sweep) -> None:
    model, images = load_model("demo").classifier, load("sample").first(40)
    x, _ = images.batch(0, 40)
    with torch.no_grad():
        decisions = [model.rescaled(alpha)(x).argmax(1) for alpha in ALPHAS]
    assert all(torch.equal(decisions[0], other) for other in decisions)


def test_bad_scales() -> None:
    model, images = load_model("demo").classifier, load("sample").first(2)
    for alphas in ([], [1.0, -1.0], [float("nan")]):
        with pytest.raises(ValueError, match="alphas must be positive, finite and at least one"):
            scale_sweep(model, images, [PGD()], alphas=alphas)
