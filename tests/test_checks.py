"""Checks, one by one, on models about which the answer is known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from helpers import SHAPE, LinearNet, SmallConvNet, decisions, images
from scaleproof import Classifier, Threat
from scaleproof.checks import behaviour, contract, examine, failed, gradients
from scaleproof.checks.shares import seldom
from scaleproof.checks.subject import Path, Subject
from scaleproof.diagnosis import Check, at_most, is_reliable

THREAT = Threat(eps=0.05)


def subject(
    net: nn.Module | None = None, x: Tensor | None = None, y: Tensor | None = None, **options: object
) -> Subject:
    net = SmallConvNet().eval() if net is None else net
    x = images(16, (3, 8, 8)) if x is None else x
    y = decisions(net, x) if y is None else y
    return Subject(Classifier(net), x, y, THREAT, **options)  # type: ignore[arg-type]


def direction(found: Subject) -> Check:
    return gradients.direction(found, gradients.seen(found))


class Around(nn.Module):
    """A network with a function before it."""

    def __init__(self, net: nn.Module, function: object) -> None:
        super().__init__()
        self.net, self.function = net, function

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(self.function(x))  # type: ignore[operator]
        return logits


def test_a_limit_and_what_is_not_a_number() -> None:
    assert at_most("a", "A", 0.1, 0.1, "", "").passed
    assert not at_most("a", "A", 0.11, 0.1, "", "").passed
    assert not at_most("a", "A", float("nan"), 0.1, "", "").passed
    unasked = Check(name="b", label="B", passed=None, meaning="", advice="")
    assert is_reliable([unasked])
    assert not is_reliable([unasked, at_most("a", "A", 1.0, 0.1, "", "")])


def test_pixels_outside_their_range() -> None:
    x = images(4, (3, 8, 8))
    x[2, 1, 3, 3] = 1.25
    check = contract.pixel_range(subject(x=x))
    assert check.value == pytest.approx(0.25)
    assert not check.passed


@pytest.mark.parametrize("shift", [1, -1])
def test_labels_that_begin_at_one(shift: int) -> None:
    net, x = SmallConvNet().eval(), images(32, (3, 8, 8))
    y = decisions(net, x)
    assert contract.label_range(subject(net, x, y)).passed
    assert contract.label_range(subject(net, x, (y + shift) % 10)).passed is False


def test_an_answer_that_depends_on_the_batch() -> None:
    net = Around(SmallConvNet(), lambda x: x - x.mean(0, keepdim=True) + 0.5).eval()
    assert contract.batch_dependence(subject(net)).passed is False
    assert contract.batch_dependence(subject()).passed


def test_normalisation_left_outside() -> None:
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in contract.NORMALISATIONS["CIFAR"])
    inner, x = SmallConvNet(), images(64, (3, 8, 8))
    net = Around(inner, lambda z: z * std + mean).eval()  # expects what a usual normalisation gives
    y = decisions(inner, x)
    check = contract.normalisation(subject(net, x, y))
    assert check.passed is False
    assert "best: CIFAR" in check.meaning
    assert contract.normalisation(subject(inner.eval(), x, y)).passed


def test_one_answer_in_the_place_of_another_is_no_gain() -> None:
    class Signed(torch.nn.Module):
        """The first class for images as they are, the second one where any pixel is below 0."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.eye(10)[(x < 0).flatten(1).any(1).long()] + 0 * x.flatten(1).sum(1, keepdim=True)

    x, y = images(64, (3, 8, 8)), torch.ones(64, dtype=torch.int64)
    y[:20] = torch.arange(20) % 10
    check = contract.normalisation(subject(Signed().eval(), x, y))
    assert check.passed
    assert check.value == 0.0


def test_a_randomised_model_with_and_without_draws() -> None:
    net = Around(SmallConvNet(), lambda x: x + 0.05 * torch.randn_like(x)).eval()
    assert contract.determinism(subject(net)).passed is False
    check = contract.determinism(subject(net, draws=5))
    assert check.passed
    assert "5 draws" in check.meaning


def test_zero_gradients_are_counted_in_images() -> None:
    x = images(8, (3, 8, 8))
    dark = torch.arange(8) < 2
    x[dark] *= 0.1

    def blind(z: Tensor) -> Tensor:
        return torch.where((z.flatten(1).mean(1) < 0.2).view(-1, 1, 1, 1), z.detach(), z)

    net = Around(SmallConvNet(), blind).eval()
    found = {check.name: check for check in gradients.gradient_checks(subject(net, x))}
    assert found["gradient-zero"].value == pytest.approx(0.25)
    assert found["gradient-pixels"].value == pytest.approx(0.25, abs=0.02)
    assert found["gradient-detached"].passed


@pytest.mark.parametrize(("hidden", "share"), [(True, 3 / 4), (False, 0.0)])
def test_pixels_without_a_gradient_are_hidden_or_ignored(hidden: bool, share: float) -> None:
    left = torch.arange(8) < 2

    def narrow(z: Tensor) -> Tensor:
        return torch.where(left, z, z.detach() if hidden else torch.zeros_like(z))

    net = Around(LinearNet(shape=(3, 8, 8)), narrow).eval()
    seen = subject(net, images(16, (3, 8, 8)))
    check = gradients.pixels(seen, gradients.seen(seen))
    assert check.value == pytest.approx(share)
    assert check.passed is not hidden


def test_a_linear_model_gains_what_its_gradient_promises() -> None:
    net = LinearNet().eval()
    check = direction(subject(net, images(16, SHAPE)))
    assert check.value == pytest.approx(0.0, abs=1e-3)


def test_a_gradient_three_times_too_large() -> None:
    class Steep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
            return 3 * gradient

    net = Around(LinearNet(), Steep.apply).eval()
    assert direction(subject(net, images(16, SHAPE))).value == pytest.approx(2 / 3, abs=1e-3)


def test_a_jumping_model_cannot_keep_in_step() -> None:
    """A hash of the image that no step of a thousandth of a pixel changes."""

    def jumping(z: Tensor) -> Tensor:
        sums = z.detach().double().flatten(1).sum(1)
        return z * (1 + 0.5 * ((1e4 * sums).round().long() % 5).view(-1, 1, 1, 1).to(z))

    net, x = Around(LinearNet(shape=(3, 8, 8)), jumping).eval(), images(16, (3, 8, 8))
    assert direction(subject(net, x)).passed is False


def told(count: int, **known: object) -> Subject:
    """A subject whose short attacks have been run already."""
    found = subject(x=images(count, (3, 8, 8)))
    assert found.count == count
    found.__dict__.update(known)
    return found


def test_what_was_broken_on_the_way_but_not_returned() -> None:
    ever, broken = torch.tensor([1, 1, 1, 0]).bool(), torch.tensor([1, 0, 1, 0]).bool()
    check = behaviour.silent(told(4, by_cross_entropy=Path(broken, ever, torch.zeros(20, 4))))
    assert check.value == 0.25
    assert not check.passed


def test_a_search_that_has_not_come_to_rest() -> None:
    steps = torch.linspace(-10, -1, 20)[:, None]
    still, nobody = torch.full((20, 1), -1.0), torch.zeros(2, dtype=torch.bool)
    still[0] = -10
    growing = behaviour.incomplete(told(2, by_margin=Path(nobody, nobody, steps.expand(20, 2))))
    resting = behaviour.incomplete(told(2, by_margin=Path(nobody, nobody, still.expand(20, 2))))
    assert growing.value == pytest.approx(4 / 19)
    assert resting.value == 0.0


def test_accuracy_that_rises_with_the_radius() -> None:
    found = subject(x=images(12, (3, 8, 8)))
    broken = {0.5: 6, 1.0: 9, 2.0: 3, 4.0: 12}

    def path(attack: object) -> Path:
        count = broken[round(attack.threat.eps / THREAT.eps, 3)]  # type: ignore[attr-defined]
        flags = torch.arange(12) < count
        return Path(flags, flags, torch.zeros(10, 12))

    found.path = path  # type: ignore[method-assign, assignment]
    check = behaviour.monotone(found)
    assert check.value == pytest.approx(0.5)
    assert "50%, 25%, 75%, 0%" in check.meaning


def test_no_surrogate_no_answer() -> None:
    assert behaviour.transfer(subject()).passed is None
    other = Classifier(LinearNet())  # other images, other classes
    assert behaviour.transfer(subject(surrogate=other)).passed is None


def test_a_surrogate_that_knows_better() -> None:
    inner = LinearNet(classes=3).eval()
    net = Around(inner, lambda x: (x * 64).round() / 64).eval()  # no gradient
    found = subject(net, images(30, SHAPE), surrogate=Classifier(inner))
    check = behaviour.transfer(found)
    assert check.value is not None
    assert check.value > 0.5
    assert not check.passed


def test_a_model_that_gets_nothing_right_is_not_attacked() -> None:
    net, x = SmallConvNet().eval(), images(8, (3, 8, 8))
    checks = examine(net, (x, (decisions(net, x) + 5) % 10), THREAT)
    assert [check.name for check in checks if check.passed is None] == ["gradients", "attacks"]


def test_the_model_is_left_as_it_was_found() -> None:
    net, x = SmallConvNet().train(), images(8, (3, 8, 8))
    y, before = decisions(net, x), [p.clone() for p in net.parameters()]
    assert "train-mode" not in failed(examine(net, (x, y), THREAT))  # no layer here depends on the mode
    assert net.training
    assert all(p.requires_grad for p in net.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_l2_and_two_classes() -> None:
    net, x = LinearNet(classes=2).eval(), images(12, SHAPE)
    checks = examine(net, (x, decisions(net, x)), Threat(norm="l2", eps=0.3))
    assert failed(checks) == ()
    assert SimpleNamespace(**checks[0].as_json()).name == "range"


def test_pixels_at_the_edge_of_their_range_are_no_alarm() -> None:
    x = (images(16, SHAPE) > 0.65).float()
    net = LinearNet().eval()
    check = direction(subject(net, x))
    assert check.value == pytest.approx(0.0, abs=0.01)


def test_an_unbounded_number_in_a_check_is_no_number() -> None:
    check = at_most("a", "A", float("inf"), 0.1, "", "")
    assert (check.passed, check.value) == (False, None)


def test_a_model_that_raises_under_attack_is_not_asked() -> None:
    def picky(x: Tensor) -> Tensor:
        if x.requires_grad:
            raise RuntimeError("no gradient here")
        return x

    net, x = Around(SmallConvNet(), picky).eval(), images(8, (3, 8, 8))
    checks = examine(net, (x, decisions(net, x)), THREAT)
    unasked = {check.name for check in checks if check.passed is None}
    assert {"gradients", "scale", "unbounded"} <= unasked
    assert any("no gradient here" in check.meaning for check in checks)


def test_what_no_scale_can_fool_is_not_held_against_a_model() -> None:
    net = Classifier(SmallConvNet().eval()).rescaled(1e4)
    x = images(32, (3, 8, 8))
    y = decisions(net, x)
    assert "gradient-zero" in failed(examine(net, (x, y), THREAT))
    assert failed(examine(net, (x, y), THREAT, invariant=True)) == ()


def test_checks_that_were_not_run_find_nothing_and_mend_nothing() -> None:
    net, x = SmallConvNet().eval(), images(8, (3, 8, 8))
    checks = examine(net, (x, decisions(net, x)), THREAT, invariant=True, draws=2)
    told = {check.name: check.advice for check in checks if check.passed is None}
    assert told == {
        "scale": "",
        "silent-success": "",
        "transfer": "In Python, examine(..., surrogate=...) takes another model.",
    }
    about = [check.label for check in checks if check.passed is None]
    assert about == ["Scale of the logits", "What was broken on the way", "Transferred examples"]


@pytest.mark.parametrize(
    ("hits", "said"), [(0, "0 of 64 images."), (4, "4 of 64 images, so at least 2.8% beyond chance.")]
)
def test_a_bound_of_nothing_is_not_told(hits: int, said: str) -> None:
    check = seldom("a", "A", torch.arange(64) < hits, 0.05, "The share:", "")
    assert check.meaning == f"The share: {said}"
