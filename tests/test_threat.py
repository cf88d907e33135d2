"""The geometry of the ball, by property."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scaleproof.rng import Rng
from scaleproof.threat import ROUNDING, Threat

NORMS = st.sampled_from(["linf", "l2"])
EPS = st.floats(1e-4, 1.0)


def batch(seed: int, spread: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.rand(6, 3, 5, 5, generator=generator)


@given(NORMS, EPS, st.integers(0, 10_000), st.floats(0.01, 30.0))
def test_projection_lands_inside_and_stays(norm: str, eps: float, seed: int, spread: float) -> None:
    threat, clean = Threat(norm=norm, eps=eps), batch(seed)  # type: ignore[arg-type]
    far = clean + spread * (batch(seed + 1) - 0.5)
    inside = threat.project(far, clean)
    assert threat.violation(inside, clean) is None
    torch.testing.assert_close(threat.project(inside, clean), inside, rtol=0, atol=1e-6)


@given(NORMS, st.integers(0, 10_000))
def test_what_is_inside_is_not_moved(norm: str, seed: int) -> None:
    threat, clean = Threat(norm=norm, eps=0.5), batch(seed)  # type: ignore[arg-type]
    near = (clean + 0.01 * (batch(seed + 1) - 0.5)).clamp(0, 1)
    torch.testing.assert_close(threat.project(near, clean), near, rtol=0, atol=1e-7)


@given(NORMS, st.integers(0, 10_000))
def test_no_direction_beats_the_steepest(norm: str, seed: int) -> None:
    threat, gradient = Threat(norm=norm, eps=0.5), batch(seed) - 0.5  # type: ignore[arg-type]
    best = threat.steepest(gradient)
    torch.testing.assert_close(threat.size(best), torch.ones(6).double())
    other = batch(seed + 1) - 0.5
    other = other / threat.size(other).float()[:, None, None, None]
    gain = (best * gradient).sum((1, 2, 3))
    assert bool((gain >= (other * gradient).sum((1, 2, 3)) - 1e-5).all())


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_zero_gradient_goes_nowhere(norm: str) -> None:
    assert bool((Threat(norm=norm, eps=0.5).steepest(torch.zeros(2, 3, 4, 4)) == 0).all())  # type: ignore[arg-type]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_samples_fill_the_ball(norm: str) -> None:
    threat, clean = Threat(norm=norm, eps=0.1), torch.full((2000, 1, 2, 2), 0.5)  # type: ignore[arg-type]
    delta = threat.sample(clean, torch.arange(2000), Rng(0)) - clean
    share = (threat.size(delta) / threat.eps) ** 4  # the share of a four-dimensional ball's volume inside
    assert float(share.max()) <= 1 + 1e-6
    assert float(share.mean()) == pytest.approx(0.5, abs=0.03)
    assert float(delta.mean()) == pytest.approx(0, abs=0.002)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_an_excess_of_a_millionth_is_seen(norm: str) -> None:
    threat, clean = Threat(norm=norm, eps=8 / 255), torch.full((1, 1, 1, 1), 0.5)  # type: ignore[arg-type]
    at = clean.double() + threat.eps
    assert threat.violation(at, clean) is None
    message = threat.violation(at + 1e-6, clean)
    assert message is not None
    assert "must be at most 0.0313725" in message
    assert ROUNDING < 1e-6 / 2


def test_range_and_nan_are_seen() -> None:
    threat, clean = Threat(eps=0.5), torch.full((1, 3, 2, 2), 0.9)
    assert "[0, 1]" in str(threat.violation(clean + 0.2, clean))
    assert "NaN" in str(threat.violation(clean * math.nan, clean))


@pytest.mark.parametrize(
    ("given_norm", "eps", "words"),
    [("l1", 0.1, "norm must be"), ("l2", -1, "eps must be"), ("linf", 8, "8/255")],
)
def test_bad_threats(given_norm: str, eps: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Threat(norm=given_norm, eps=eps)  # type: ignore[arg-type]


def test_norms_may_be_written_as_other_libraries_do() -> None:
    given: list[tuple[str, str]] = [("Linf", "linf"), ("LINF", "linf"), ("L2", "l2")]
    for text, norm in given:
        threat = Threat(norm=text, eps=0.5)  # type: ignore[arg-type]
        assert threat == Threat(norm=norm, eps=0.5)  # type: ignore[arg-type]
        assert vars(threat) == {"norm": norm, "eps": 0.5}, "and are recorded as ours"
    for other, near in (("L_inf", "linf"), (math.inf, "linf"), (2, "l2")):
        with pytest.raises(ValueError, match=f"did you mean '{near}'"):
            Threat(norm=other, eps=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1e-33, 1e-25, 1e-10, 1e20])
def test_l2_directions_have_length_one_at_any_scale(size: float) -> None:
    gradient = size * (batch(3) - 0.5)
    torch.testing.assert_close(
        Threat(norm="l2", eps=0.5).steepest(gradient).flatten(1).norm(dim=1), torch.ones(6)
    )


def test_l2_projection_of_a_large_image() -> None:
    threat, clean = Threat(norm="l2", eps=3.0), torch.full((1, 3, 224, 224), 0.5)
    far = clean + 0.4 * (torch.rand(clean.shape, generator=torch.Generator().manual_seed(0)) - 0.5)
    assert threat.violation(threat.project(far, clean), clean) is None


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_what_is_not_a_number_has_no_direction(norm: str) -> None:
    gradient = torch.full((1, 3, 2, 2), math.nan)
    assert bool((Threat(norm=norm, eps=0.5).steepest(gradient) == 0).all())  # type: ignore[arg-type]


def test_default_radii() -> None:
    assert Threat().eps == 8 / 255
    with pytest.raises(ValueError, match="eps must be given for l2"):
        Threat(norm="l2")
    with pytest.raises(ValueError, match="eps must be finite"):
        Threat(eps=math.nan)
