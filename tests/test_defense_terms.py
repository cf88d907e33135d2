"""Terms of training losses and steps of training attacks: by hand, by loops, by finite differences."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import defense_helpers as own
from defense_helpers import EPS, LABELS, Array, clip, into_ball, linear_batch, normal, uniform
from scaleproof import defenses
from scaleproof.defenses import Inner, Labelled, defense, hypersphere, scale_invariant, terms
from scaleproof.defenses.free import in_range
from scaleproof.losses import cosine_cross_entropy
from scaleproof.threat import Threat

Y = torch.from_numpy(LABELS)
THREAT = Threat(eps=EPS)


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def logs(*values: list[float]) -> Tensor:
    """Logits whose softmax is these probabilities."""
    return rows(*values).log()


def pair(seed: int = 0) -> tuple[Array, Array]:
    """Two (4, 5) arrays of logits, near each other."""
    random = np.random.default_rng(seed)
    first = 1.5 * random.standard_normal((4, 5))
    return first, first + random.standard_normal((4, 5))


@dataclass(frozen=True)
class Case:
    """A term as the package has it, and by loops."""

    name: str
    ours: Callable[[Tensor, Tensor], Tensor]
    loops: Callable[[Array, Array], float]


CASES = [
    Case("cross entropy", lambda a, b: terms.cross_entropy(b, Y), lambda a, b: own.ce_by_loops(b)),
    Case(
        "with a margin",
        lambda a, b: terms.cross_entropy(b, Y, margin=0.75),
        lambda a, b: own.ce_by_loops(b, 0.75),
    ),
    Case(
        "CE^m",
        lambda a, b: terms.margin_cross_entropy(b.tanh(), Y, scale=15, margin=0.2),
        lambda a, b: own.ce_by_loops(15 * np.tanh(b), 3.0),  # s (cos - m) = s cos - 15 x 0.2
    ),
    Case("divergence", terms.divergence, lambda a, b: sum(own.kl_by_loops(a, b)) / 4),
    Case("boosted", lambda a, b: terms.boosted_cross_entropy(b, Y), lambda a, b: own.boosted_by_loops(b)),
    Case("weighted", lambda a, b: terms.weighted_divergence(a, b, Y), own.weighted_by_loops),
    Case("distance", lambda a, b: terms.squared_distance_rows(a, b).mean(), own.distance_by_loops),
    Case("mean square", terms.mean_square_pairing, own.square_by_loops),
    Case("norm", terms.norm_pairing, own.norm_by_loops),
    Case("alignment", terms.alignment, own.alignment_by_loops),
]
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def central_difference(value: Callable[[Array, Array], float], at: tuple[Array, Array], which: int) -> Array:
    found = np.zeros_like(at[which])
    for place in np.ndindex(found.shape):
        ends = []
        for step in (1e-6, -1e-6):
            moved = [at[0].copy(), at[1].copy()]
            moved[which][place] += step
            ends.append(value(moved[0], moved[1]))
        found[place] = (ends[0] - ends[1]) / 2e-6
    return found


@each
@pytest.mark.parametrize("seed", range(3))
def test_value_is_that_of_the_loops(case: Case, seed: int) -> None:
    first, second = pair(seed)
    ours = case.ours(torch.from_numpy(first), torch.from_numpy(second))
    assert ours.shape == ()
    assert float(ours) == pytest.approx(case.loops(first, second), rel=1e-12)


@each
def test_gradients_are_differences_of_the_loops(case: Case) -> None:
    """Through both arguments: a detached one would have no gradient here."""
    at = pair()
    leaves = [torch.from_numpy(array).requires_grad_() for array in at]
    found = torch.autograd.grad(
        case.ours(leaves[0], leaves[1]), leaves, allow_unused=True, materialize_grads=True
    )
    for which in (0, 1):
        expected = central_difference(case.loops, at, which)
        np.testing.assert_allclose(found[which].detach().numpy(), expected, rtol=1e-6, atol=1e-8)


@each
def test_gradients_pass_gradcheck(case: Case) -> None:
    first, second = (torch.from_numpy(array).requires_grad_() for array in pair(1))
    assert torch.autograd.gradcheck(case.ours, (first, second))


def test_hand_worked_cross_entropies() -> None:
    y = torch.tensor([0])
    # probabilities 1/4 and 3/4
    assert float(terms.cross_entropy(logs([1, 3]), y)) == pytest.approx(math.log(4))
    # 6 and 3; the margin ln 2 on the true class makes it 3 and 3: ln 2 (on every class it would be ln 3/2)
    assert float(terms.cross_entropy(logs([6, 3]), y, margin=math.log(2))) == pytest.approx(math.log(2))
    # 15 (0.6 - 0.2) = 6 against 15 x 0.8 = 12
    found = terms.margin_cross_entropy(rows([0.6, 0.8]), y, scale=15, margin=0.2)
    assert float(found) == pytest.approx(math.log(1 + math.exp(6)))


def test_hand_worked_divergences() -> None:
    p, q, y = logs([1, 1]), logs([1, 3]), torch.tensor([1])
    # 1/2 ln (1/2 : 1/4) + 1/2 ln (1/2 : 3/4) = 1/2 ln 2 + 1/2 ln 2/3 = 1/2 ln 4/3
    assert float(terms.divergence(p, q)) == pytest.approx(math.log(4 / 3) / 2)
    # the other way: 1/4 ln (1/4 : 1/2) + 3/4 ln (3/4 : 1/2)
    assert float(terms.divergence(q, p)) == pytest.approx(math.log(1 / 2) / 4 + 3 * math.log(3 / 2) / 4)
    # times 1.0000001 minus the true probability at the first argument, 3/4 there
    back = math.log(1 / 2) / 4 + 3 * math.log(3 / 2) / 4
    assert float(terms.weighted_divergence(q, p, y)) == pytest.approx(back * 0.2500001, rel=1e-12)
    # (1/2 - 1/4)^2 twice
    assert terms.squared_distance_rows(p, q).tolist() == [pytest.approx(1 / 8)]


def test_hand_worked_boost() -> None:
    # probabilities 1/2, 1/3, 1/6 and the true class in the middle: ln 3, and the largest wrong one is 1/2
    found = terms.boosted_cross_entropy(logs([3, 2, 1]), torch.tensor([1]))
    assert float(found) == pytest.approx(math.log(3) - math.log(0.5001 + 1e-12), rel=1e-12)
    # the true class is the largest: the best of the others is 1/3
    found = terms.boosted_cross_entropy(logs([3, 2, 1]), torch.tensor([0]))
    assert float(found) == pytest.approx(math.log(2) - math.log(1.0001 - 1 / 3 + 1e-12), rel=1e-12)


def test_hand_worked_pairings() -> None:
    first, second = rows([1, 2], [0, 7]), rows([0, 4], [0, 7])
    # (1 + 4 + 0 + 0) / 4, and (sqrt 5 + 0) / 2
    assert float(terms.mean_square_pairing(first, second)) == pytest.approx(1.25)
    assert float(terms.norm_pairing(first, second)) == pytest.approx(math.sqrt(5) / 2)


def test_hand_worked_alignment() -> None:
    # the cosine of (1, 0) and (3, 4) is 3/5, that of opposite vectors -1: 1 - (0.6 - 1) / 2
    found = terms.alignment(rows([1, 0], [2, 2]), rows([3, 4], [-1, -1]))
    assert float(found) == pytest.approx(1.2)
    assert float(terms.alignment(torch.ones(2, 3, 4, 4), 5 * torch.ones(2, 3, 4, 4))) == pytest.approx(
        0, abs=1e-6
    )


def test_the_direction_of_the_divergence_matters() -> None:
    first, second = (torch.from_numpy(array) for array in pair())
    forward, backward = terms.divergence(first, second), terms.divergence(second, first)
    assert abs(float(forward - backward)) > 1e-3
    by_torch = torch.nn.functional.kl_div(second.log_softmax(1), first.softmax(1), reduction="batchmean")
    assert float(forward) == pytest.approx(float(by_torch), rel=1e-12)


def test_marts_weight_is_not_a_constant() -> None:
    first, second = (torch.from_numpy(array) for array in pair())
    leaf = first.clone().requires_grad_()
    (found,) = torch.autograd.grad(terms.weighted_divergence(leaf, second, Y), leaf)
    weight = 1.0000001 - torch.from_numpy(own.softmax_by_loops(first.numpy()))[torch.arange(4), Y]
    (constant,) = torch.autograd.grad((terms.divergence_rows(leaf, second) * weight).mean(), leaf)
    assert float((found - constant).abs().max()) > 1e-3


def test_the_margin_touches_the_true_class_only() -> None:
    cosines, y = rows([0.1, 0.5, -0.3]), torch.tensor([2])
    moved = rows([0.1, 0.5, -0.5])  # 0.2 less at the true class, by hand
    assert float(terms.margin_cross_entropy(cosines, y, scale=15, margin=0.2)) == pytest.approx(
        float(terms.margin_cross_entropy(moved, y, scale=15, margin=0.0)), rel=1e-12
    )


def test_norm_pairing_has_a_finite_gradient_at_equal_logits() -> None:
    first, second = rows([1, 2], [3, 4]).requires_grad_(), rows([1, 2], [0, 0])
    (gradient,) = torch.autograd.grad(terms.norm_pairing(first, second), first)
    # zero in the equal row; (3, 4) / 5 over two rows in the other
    np.testing.assert_allclose(gradient.numpy(), [[0, 0], [0.3, 0.4]], rtol=1e-12)


@pytest.mark.parametrize("size", [1e2, 1e4])
def test_terms_stay_finite_at_large_logits(size: float) -> None:
    leaf = (torch.eye(4, 5) * size).requires_grad_()
    other = (-torch.eye(4, 5) * size).requires_grad_()
    value = terms.divergence(leaf, other) + terms.weighted_divergence(leaf, other, Y)
    value = value + terms.boosted_cross_entropy(leaf, Y) + terms.squared_distance_rows(leaf, other).mean()
    found = torch.autograd.grad(value, (leaf, other))
    assert math.isfinite(float(value.detach()))
    assert all(bool(gradient.isfinite().all()) for gradient in found)


def test_marts_constant_survives_float32() -> None:
    """A wrong class with all the probability: the logarithm is that of 1e-4, not of zero."""
    logits = torch.tensor([[0.0, 40.0]])
    boost = float(terms.boosted_cross_entropy(logits, torch.tensor([0]))) - 40
    assert boost == pytest.approx(-math.log(1e-4), rel=1e-3)


# The attack, one step on a linear model: the sign of the gradient is that of W_other - W_y.


STARTS: dict[str, tuple[float, Callable[[Tensor], Tensor]]] = {
    "none": (0.0, lambda x: x),
    "uniform": (0.0, lambda x: clip(x + EPS * (2 * uniform(x) - 1), 0.0, 1.0)),
    "signs": (0.01, lambda x: clip(x + 0.01 * torch.where(uniform(x) < 0.5, 1.0, -1.0).double(), 0.0, 1.0)),
    "normal": (0.001, lambda x: clip(x + 0.001 * normal(x), 0.0, 1.0)),
}


@pytest.mark.parametrize("start", list(STARTS))
@pytest.mark.parametrize("stride", [2 / 255, 10 / 255])
def test_one_step_on_a_linear_model(start: Any, stride: float) -> None:
    net, x, y = linear_batch()
    size, expected_start = STARTS[start]
    inner = Inner(threat=THREAT, steps=1, step_size=stride, start=start, start_size=size)
    noise = {"uniform": uniform(x), "normal": normal(x)}
    with own.learner_of(net).attacking() as view:
        found = inner.perturb(view, x, y, tuple(noise[kind] for kind in inner.draws))
    weight = net.head.weight.detach()
    direction = torch.sign(weight[1 - y] - weight[y]).reshape(x.shape)
    expected = into_ball(expected_start(x) + stride * direction, x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    assert not found.requires_grad


def test_one_cosine_step_on_a_linear_model() -> None:
    """The gradient of a cosine is w / (|w| |x|) - cos x / |x|^2; with two classes their difference decides."""
    net, x, y = linear_batch()
    inner = Inner(
        threat=THREAT, objective=Labelled(cosine_cross_entropy(15)), steps=1, step_size=EPS, start="none"
    )
    with own.learner_of(net).attacking() as view:
        found = inner.perturb(view, x, y, ())
    weight, flat = net.head.weight.detach(), x.flatten(1)
    units, length = weight / weight.norm(dim=1, keepdim=True), flat.norm(dim=1, keepdim=True)
    difference = units[1 - y] - units[y]
    slope = difference - (difference * flat).sum(1, keepdim=True) * flat / length**2
    torch.testing.assert_close(
        found, into_ball(x + EPS * slope.sign().reshape(x.shape), x), rtol=0, atol=1e-14
    )


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: Inner(threat=THREAT, steps=0), "steps of a training attack must be >= 1, got 0"),
    (lambda: Inner(threat=THREAT, step_size=0), "finite and > 0, got 0: give one as 2/255"),
    (lambda: Inner(threat=THREAT, step_size=2), "1 under linf, pixels are in [0, 1], got 2: did you"),
    (lambda: Inner(threat=THREAT, step_size=math.inf), "must be finite and > 0, got inf"),
    (lambda: Inner(threat=THREAT, start="middle"), "one of uniform, normal, signs, none, got 'middle'"),
    (lambda: Inner(threat=THREAT, start="signs"), "start_size is for normal and signs, got 0.0 for 'signs'"),
    (lambda: Inner(threat=THREAT, start_size=0.1), "for normal and signs, got 0.1 for 'uniform'"),
    (lambda: defense("pgd"), "module:NAME of your own, got 'pgd'"),
    (lambda: defenses.BatchNormPolicy(attack="both"), "attack must be one of eval, train, got 'both'"),
    (
        lambda: defenses.BatchNormPolicy(updates="none"),
        "updates must be one of all, clean, adversarial, got 'none'",
    ),
    (lambda: defenses.BatchNormPolicy(attack_updates=True), "give attack='train'"),
    (lambda: defenses.Margin(weight=-1), "weight must be finite and >= 0, got -1"),
    (lambda: defenses.Margin(scale=float("nan")), "scale must be finite and > 0, got nan"),
    (lambda: scale_invariant(defense("at"), scale=0), "scale must be finite and > 0, got 0"),
    (lambda: scale_invariant(defense("standard")), "standard training meets no adversary"),
    (lambda: scale_invariant(defense("at"), inner=False, outer=False), "must change something"),
    (lambda: defenses.Free(replay=0), "replay must be >= 1, got 0"),
    (lambda: defenses.LogitPairing(pairing="cosine"), "one of mean-square, norm, got 'cosine'"),
    (lambda: hypersphere(scale_invariant(defense("at"))), "SI or hypersphere embedding, not both"),
    *(
        (lambda name=name: hypersphere(defense(name)), f"goes with at, trades and alp, got {name}")
        for name in ("standard", "mart", "free", "gat", "rfgsm", "gradalign")
    ),
]


@pytest.mark.parametrize(("make", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_settings_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_free_moves_pixels_at_the_ends_of_their_range() -> None:
    """Inwards or outwards; those that are outside already have no gradient."""
    x = torch.tensor([-0.1, 0.0, 0.5, 1.0, 1.1], requires_grad=True)
    assert torch.equal(in_range(x), x.clamp(0, 1))
    in_range(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 1, 1, 1, 0]
