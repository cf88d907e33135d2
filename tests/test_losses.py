"""Objectives against hand-worked numbers, float64 derivations and finite differences."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scaleproof import losses
from scaleproof.losses import Objective, targeted
from scaleproof.models.output import Output

ALL = [
    losses.cross_entropy,
    losses.cw_margin,
    losses.dlr,
    losses.probability_margin,
    losses.probability_dlr,
    losses.cosine_cross_entropy(),
    losses.cosine_cross_entropy(5),
    losses.standardised_cross_entropy(),
    losses.standardised_margin(),
]
INVARIANT = [objective for objective in ALL if objective.scale_invariant]


def output(seed: int = 0, rows: int = 5, classes: int = 6, width: int = 7) -> Output:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    weight = torch.randn(classes, width, generator=generator, dtype=torch.float64)
    bias = torch.randn(classes, generator=generator, dtype=torch.float64)
    return Output(logits=features @ weight.T + bias, features=features, weight=weight)


def test_hand_worked() -> None:
    logits, y = torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([1])
    out = Output(logits=logits)
    exponentials = [math.exp(2), math.exp(1), math.exp(-1)]
    p = [value / sum(exponentials) for value in exponentials]
    assert float(losses.cross_entropy(out, y)) == pytest.approx(-math.log(p[1]), rel=1e-6)
    assert float(losses.cw_margin(out, y)) == pytest.approx(1.0)
    assert float(losses.dlr(out, y)) == pytest.approx(1 / 3)
    assert float(losses.probability_margin(out, y)) == pytest.approx(p[0] - p[1], rel=1e-6)
    assert float(losses.probability_dlr(out, y)) == pytest.approx((p[0] - p[1]) / (p[0] - p[2]), rel=1e-5)
    mean, spread = 2 / 3, math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 3)
    standard = [4 * (value - mean) / spread for value in (2, 1, -1)]
    expected = -standard[1] + math.log(sum(math.exp(value) for value in standard))
    assert float(losses.standardised_cross_entropy(4)(out, y)) == pytest.approx(expected, rel=1e-6)
    chances = [math.exp(value) / sum(math.exp(value) for value in standard) for value in standard]
    assert float(losses.standardised_margin(4)(out, y)) == pytest.approx(chances[0] - chances[1], rel=1e-5)


def test_hand_worked_cosine() -> None:
    features, weight = torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0, 0.0], [0.0, 0.5]])
    out = Output(logits=torch.zeros(1, 2), features=features, weight=weight)
    assert out.cosines.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]
    expected = math.log(1 + math.exp(15 * (0.8 - 0.6)))
    assert float(losses.cosine_cross_entropy(15)(out, torch.tensor([0]))) == pytest.approx(expected, rel=1e-5)


def test_hand_worked_targets() -> None:
    logits, y = torch.tensor([[2.0, 1.0, -1.0, 0.5]]), torch.tensor([[0, 2]])
    out = Output(logits=logits)
    ce = -(-1 - math.log(sum(math.exp(v) for v in (2, 1, -1, 0.5))))
    assert float(targeted(losses.cross_entropy)(out, y)) == pytest.approx(-ce, rel=1e-6)
    assert float(targeted(losses.cw_margin)(out, y)) == pytest.approx(-3.0)
    assert float(targeted(losses.dlr)(out, y)) == pytest.approx((-1 - 2) / (2 - (0.5 - 1) / 2), rel=1e-6)


@pytest.mark.parametrize("objective", ALL + [targeted(o) for o in ALL], ids=lambda o: o.name)
def test_gradients_against_finite_differences(objective: Objective) -> None:
    base, wide = output(), "targeted" in objective.name
    y = torch.tensor([0, 1, 2, 3, 4])
    labels = torch.stack([y, (y + 2) % 6], 1) if wide else y

    def value(features: Tensor) -> Tensor:
        assert base.weight is not None
        logits = features @ base.weight.T + 0.3
        return objective(Output(logits=logits, features=features, weight=base.weight), labels).sum()

    assert base.features is not None
    assert torch.autograd.gradcheck(value, base.features.clone().requires_grad_(), eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("objective", ALL, ids=lambda o: o.name)
def test_one_value_a_sample(objective: Objective) -> None:
    y = torch.tensor([0, 1, 2, 3, 4])
    values = objective(output(), y)
    assert values.shape == (5,)
    alone = output()
    assert alone.features is not None
    single = Output(logits=alone.logits[2:3], features=alone.features[2:3], weight=alone.weight)
    assert float(objective(single, y[2:3])) == pytest.approx(float(values[2]), rel=1e-12)


@pytest.mark.parametrize("objective", INVARIANT, ids=lambda o: o.name)
@given(exponent=st.integers(-3, 3), seed=st.integers(0, 99))
def test_scale_changes_no_direction(objective: Objective, exponent: int, seed: int) -> None:
    def direction(alpha: float) -> Tensor:
        base = output(seed)
        assert base.features is not None
        assert base.weight is not None
        z = base.features.requires_grad_()
        out = Output(logits=alpha * (z @ base.weight.T), features=z, weight=base.weight)
        (gradient,) = torch.autograd.grad(objective(out, torch.tensor([0, 1, 2, 3, 4])).sum(), z)
        return gradient / gradient.norm()

    torch.testing.assert_close(direction(10.0**exponent), direction(1.0), rtol=1e-6, atol=1e-8)


def test_cross_entropy_is_not_scale_invariant() -> None:
    y, base = torch.tensor([0, 1, 2, 3, 4]), output()
    small, large = (losses.cross_entropy(Output(logits=alpha * base.logits), y) for alpha in (1e-3, 1e3))
    assert float(small.std()) < 0.01 < float(large.std())


def test_signs_agree_with_the_decision() -> None:
    base, y = output(rows=200), torch.arange(200) % 6
    broken = base.logits.argmax(1) != y
    for objective in (losses.cw_margin, losses.dlr, losses.probability_margin):
        assert torch.equal(objective(base, y) > 0, broken)


def test_half_precision_is_lifted_before_use() -> None:
    logits = torch.tensor([[8.0, -8.0, 0.0]], dtype=torch.bfloat16)
    assert losses.cross_entropy(Output(logits=logits), torch.tensor([0])).dtype == torch.float32
    assert float(losses.cross_entropy(Output(logits=logits), torch.tensor([0]))) > 0


@pytest.mark.parametrize(
    ("objective", "classes", "name"),
    [
        (losses.dlr, 2, "cw_margin"),
        (losses.standardised_cross_entropy(), 2, "cw_margin"),
        (losses.standardised_margin(), 2, "cw_margin"),
        (targeted(losses.dlr), 3, "targeted(cw_margin)"),
    ],
)
def test_few_classes_fall_back_and_say_so(objective: Objective, classes: int, name: str) -> None:
    stand_in, note = objective.for_classes(classes)
    assert stand_in.name == name
    assert note is not None
    assert f"the model has {classes}" in note
    assert objective.for_classes(4) == (objective, None)


def test_two_standardised_logits_have_no_gradient() -> None:
    """Why the objective above needs three classes."""
    logits = torch.tensor([[0.3, -0.9]], requires_grad=True)
    losses.standardised_cross_entropy()(Output(logits=logits), torch.tensor([0])).sum().backward()
    assert logits.grad is not None
    assert float(logits.grad.abs().max()) < 1e-6


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="scale must be finite and > 0, got 0"):
        losses.cosine_cross_entropy(0)
    with pytest.raises(ValueError, match="cosines need features"):
        losses.cosine_cross_entropy()(Output(logits=torch.zeros(1, 3)), torch.tensor([0]))
    with pytest.raises(ValueError, match="has no targeted form"):
        targeted(targeted(losses.dlr))
