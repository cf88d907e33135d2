"""What other people's attacks may touch and return: the model stays as it was, every answer is checked."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foreign_attacks import far
from foreign_helpers import foreign, same, small
from helpers import decisions, images
from scaleproof import Threat, evaluate
from scaleproof.attacks.foreign import Foreign, tidied


def rude(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    model.train()
    model.requires_grad_(False)
    model(x)  # moves running statistics
    model.classifier.net[0].register_forward_hook(lambda *_: None)  # type: ignore[union-attr, index, operator]
    model.requires_grad_(True)
    F.cross_entropy(model(x), y).backward()
    x.zero_()
    y.zero_()
    return x + 0.01 * 0


def test_the_model_and_the_images_are_as_before() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)).eval()
    net[0].weight.requires_grad_(False)
    net[3].bias.grad = torch.ones(3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x = images(6, (3, 8, 8))
    y = decisions(net, x)
    copies = x.clone(), y.clone()
    with pytest.raises(ValueError, match="attack 'theirs' broke its own rules: the linf size"):
        evaluate(net, (x, y), [foreign(rude)])
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [value.requires_grad for value in net.parameters()] == [False, True, True, True, True, True]
    assert [value.grad is None for value in net.parameters()] == [True] * 5 + [False]
    assert torch.equal(net[3].bias.grad, torch.ones(3))
    assert not any(module.training or module._forward_hooks for module in net.modules())
    assert torch.equal(x, copies[0])
    assert torch.equal(y, copies[1])


def test_changed_weights_are_refused_and_put_back() -> None:
    net, data = small()
    weight = net.head.weight.clone()

    def cheats(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        for parameter in model.parameters():
            parameter.data = parameter.data * 0
        return x

    with pytest.raises(ValueError, match="'theirs' must leave the model's weights alone, it changed 6 of 6"):
        evaluate(net, data, [foreign(cheats)])
    assert torch.equal(net.head.weight, weight)


ANSWERS: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "none": (lambda x: None, "one floating tensor of shape .24, 3, 8, 8., got NoneType"),
    "tuple": (lambda x: (x, True), "got tuple: return the examples alone"),
    "shape": (lambda x: x[:3], r"got shape \(3, 3, 8, 8\)"),
    "bytes": (lambda x: (x * 255).byte(), "got torch.uint8: pixels are in"),
    "array": (lambda x: x.numpy(), "got ndarray"),
    "nan": (lambda x: x * torch.nan, "'theirs' broke its own rules: a pixel is NaN or infinite"),
    "far": (lambda x: far(nn.Identity(), x, x), "the linf size of a perturbation must be at most 0.02"),
    "range": (lambda x: x - 1, "broke its own rules: pixels must be in"),
    "error": (
        lambda x: x.reshape(-1, 7),
        r"'theirs' raised RuntimeError \(test_foreign_rules.py, line \d+\): shape",
    ),
}


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("mode", ["independent", "cascade"])
def test_what_comes_back_is_checked(kind: str, mode: str) -> None:
    (net, data), (answer, message) = small(), ANSWERS[kind]
    with pytest.raises(ValueError, match=message):
        evaluate(net, data, [foreign(lambda model, x, y: answer(x))], mode=mode)  # type: ignore[arg-type]


def test_another_precision_is_converted() -> None:
    net, data = small()
    plain = evaluate(net, data, [foreign(lambda model, x, y: x)])
    double = evaluate(net, data, [foreign(lambda model, x, y: x.double())])
    assert same(plain, double)


@pytest.mark.parametrize("threat", [Threat(eps=0.1), Threat(norm="l2", eps=3.0)])
def test_rounding_is_forgiven_and_nothing_else(threat: Threat) -> None:
    clean = images(4)
    edge = threat.project(clean + 1, clean)
    over = clean + (edge - clean) * (1 + 5e-7)
    assert threat.violation(tidied(over, clean, threat), clean) is None
    assert torch.equal(tidied(edge, clean, threat), edge), "what fits is not touched"
    beyond = clean + (edge - clean) * (1 + 1e-5)
    assert threat.violation(tidied(beyond, clean, threat), clean) is not None
    black = torch.zeros(1, 3, 4, 4)
    assert bool((tidied(black - 1e-7, black, threat) == 0).all())
    assert bool((tidied(black - 1e-5, black, threat) < 0).all())


def test_a_minimal_attack_fails_where_it_leaves_the_budget() -> None:
    net, (x, y) = small()

    def smallest(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return torch.where((y == y[0])[:, None, None, None], far(model, x, y), x + 0.01)

    found = evaluate(net, (x, y), [foreign(smallest, minimal=True)])
    size = found.attacks[0].verdicts["size"][0]
    assert {round(float(value), 4) for value in size} == {0.0, 0.01}
    assert "outside counts as a failure" in found.attacks[0].notes[0]


MISTAKES = {
    "name": ({"name": "a/b"}, "letters, digits"),
    "restarts": ({"restarts": 0}, "restarts must be >= 1, got 0"),
    "settings": ({"settings": {"a": torch.ones(1)}}, "settings must be plain data"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_mistakes(kind: str) -> None:
    settings, message = MISTAKES[kind]
    with pytest.raises(ValueError, match=message):
        foreign(**settings)
    with pytest.raises(ValueError, match="must be a callable"):
        Foreign(3, name="x")  # type: ignore[arg-type]
