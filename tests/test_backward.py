"""Stand-ins for the backward pass: the output is the part's, the gradient is the stand-in's."""

import pytest
import torch
from torch import Tensor, nn

from helpers import images
from scaleproof import Classifier, Threat, evaluate, suite
from scaleproof.attacks import attack_batch
from scaleproof.losses import cw_margin
from scaleproof.models.backward import described, identity
from scaleproof.museum.parts import Defended, Quantise
from scaleproof.oracle import Oracle


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return logits


def rounded() -> Defended:
    return Defended(Flat().eval(), before=Quantise(4)).eval()


def test_outputs_are_unchanged_and_gradients_are_those_of_the_stand_in() -> None:
    net, x, y = rounded(), images(5, (3, 2, 2)), torch.tensor([0, 1, 2, 0, 1])
    opened = Classifier(net, backward=identity)
    assert torch.equal(opened(x), net(x))
    found = Oracle(opened).value_and_grad(cw_margin, x, y).gradient
    weight, logits = net.net.head.weight.detach(), net(x).detach()  # type: ignore[union-attr]
    other = logits.scatter(1, y[:, None], -torch.inf).argmax(1)
    torch.testing.assert_close(found.flatten(1), weight[other] - weight[y])
    assert bool((Oracle(Classifier(net)).value_and_grad(cw_margin, x, y).gradient == 0).all())


def test_the_network_is_left_as_it_was() -> None:
    net = rounded()
    Classifier(net, backward=identity)(images(2, (3, 2, 2)))
    assert not any(module._forward_hooks for module in net.modules())


def test_a_part_by_name_and_a_wrapped_classifier() -> None:
    net, x = rounded(), images(2, (3, 2, 2))
    named = Classifier(net, backward={"before": identity})
    for model in (named, Classifier(named), named.rescaled(2.0)):
        point = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(point).sum(), point)
        assert bool((gradient != 0).all())


def test_rounding_looks_robust_and_is_not() -> None:
    net, x = rounded(), images(40, (3, 2, 2))
    y, threat = net(x).argmax(1), Threat(eps=0.3)
    masked = evaluate(net, (x, y), suite("pgd", threat)).robust().accuracy
    opened = evaluate(Classifier(net, backward=identity), (x, y), suite("pgd", threat)).robust().accuracy
    assert opened < masked
    found = attack_batch(suite("pgd", threat)[0], Classifier(net, backward=identity), x, y)
    assert float((net(found).argmax(1) == y).float().mean()) == pytest.approx(opened)


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (
            {"nowhere": identity},
            "names a part 'nowhere' that the network does not have; its parts: before, net",
        ),
        (
            {"before": lambda x: x[:, :1]},
            r"stand-in for 'before' must have the shape of its output \(2, 3, 2, 2\)",
        ),
    ],
)
def test_errors(backward: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Classifier(rounded(), backward=backward)(images(2, (3, 2, 2)).requires_grad_())  # type: ignore[arg-type]


def test_one_function_needs_a_part_without_parameters() -> None:
    message = "does not begin with a part without parameters, it has 'head' .Linear. first: name the part"
    with pytest.raises(ValueError, match=message):
        Classifier(Flat(), backward=identity)
    with pytest.raises(ValueError, match="without parameters, it has no parts: name the part"):
        Classifier(Quantise(4), backward=identity)


def test_the_error_shows_how_code_becomes_a_module() -> None:
    """Its three lines run, with the code in place of theirs."""
    net = Flat().eval()
    with pytest.raises(ValueError, match="code inside forward") as caught:
        Classifier(net, backward=identity)
    first, *lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert "{'encode': identity}; code inside forward() must become a module first" in first
    known = {"nn": nn, "net": net, "Classifier": Classifier, "identity": identity}
    exec("\n".join([*lines[:2], f"opened = {lines[2]}"]), known)
    opened, point = known["opened"], images(2, (3, 2, 2)).requires_grad_()
    assert isinstance(opened, Classifier)
    (gradient,) = torch.autograd.grad(opened(point).sum(), point)
    assert bool((gradient != 0).all())
    assert torch.equal(opened(point), net((15 * point).round() / 15))


def test_another_stand_in_is_another_run() -> None:
    net = rounded()
    marks = {
        str(described(Classifier(net, backward=stand_in).stand_ins))
        for stand_in in (identity, torch.sigmoid, torch.tanh)
    }
    assert len(marks) == 3
