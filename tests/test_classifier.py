"""A Classifier finds the head of every common network, and leaves the network as it was."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from model_zoo import CASES, LONG_CASES, Case, Plain, Stumbling, Wrapper, images, seeded
from scaleproof.models import Classifier, as_classifier


def by_hand(net: nn.Module, head: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """Features as a pre-hook of the test's own sees them, and cosines in float64."""
    module, seen = net.get_submodule(head), []
    handle = module.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach().clone()))
    with torch.no_grad():
        net(x)
    handle.remove()
    features, weight = seen[0].flatten(1), module.get_parameter("weight").flatten(1)
    left, right = features.double(), weight.detach().double()
    lengths = left.square().sum(dim=1).sqrt()[:, None] * right.square().sum(dim=1).sqrt()[None]
    return features, (left @ right.T) / lengths


def state(net: nn.Module) -> list[Any]:
    """Everything about a network that a Classifier must not change."""
    flags = [
        (module.training, list(module._forward_hooks), list(module._forward_pre_hooks))
        for module in net.modules()
    ]
    buffers = [buffer.clone() for buffer in net.buffers()]
    return [flags, [parameter.requires_grad for parameter in net.parameters()], [b.tolist() for b in buffers]]


def check_case(case: Case) -> None:
    net, x = seeded(case.make), images(size=case.size)
    features, cosines = by_hand(net, case.head, x)
    before = state(net)
    classifier = Classifier(net)
    assert classifier.head_name is None
    output = classifier.outputs(x)
    assert classifier.head_name == case.head
    assert output.features is not None
    assert torch.equal(output.features, features)
    torch.testing.assert_close(output.cosines.double(), cosines, rtol=1e-5, atol=1e-5)
    assert torch.equal(output.logits, net(x))
    assert torch.equal(classifier(x), net(x))
    assert state(net) == before


@pytest.mark.parametrize("name", CASES)
def test_head_is_found(name: str) -> None:
    check_case(CASES[name])


@pytest.mark.long
@pytest.mark.parametrize("name", LONG_CASES)
def test_head_is_found_in_wide_networks(name: str) -> None:
    check_case(LONG_CASES[name])


def test_named_head_with_two_classes_may_have_a_scale_per_sample() -> None:
    net = seeded(lambda: Plain(2, lambda logits, z: logits / z.norm(dim=1, keepdim=True)))
    assert Classifier(net, head="fc").find_head(images()) == "fc"


def test_a_single_image_is_enough_for_a_plain_network() -> None:
    assert Classifier(seeded(lambda: Plain(2))).find_head(images(1)) == "fc"


def test_zero_head_is_found() -> None:
    net = seeded(Plain)
    nn.init.zeros_(net.get_parameter("fc.weight"))
    nn.init.zeros_(net.get_parameter("fc.bias"))
    output = Classifier(net).outputs(images())
    assert output.cosines.abs().max() == 0


def test_constant_rows_do_not_matter() -> None:
    net, x = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(768, 10, bias=False))), images()
    x[1] = 0
    assert Classifier(net).find_head(x) == "1"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    net = seeded(lambda: Plain(2, lambda logits, _: 3 * logits)).to(dtype)
    output = Classifier(net).outputs(images().to(dtype))
    assert output.logits.dtype == dtype
    assert output.cosines.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_normalisation_is_applied_inside() -> None:
    net, x = seeded(Plain), images()
    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.1])
    expected = net((x - mean[:, None, None]) / std[:, None, None])
    classifier = Classifier(net, mean=[0.4, 0.5, 0.6], std=[0.2, 0.3, 0.1])
    torch.testing.assert_close(classifier(x), expected)
    torch.testing.assert_close(classifier.outputs(x).logits, expected)
    assert [name.removeprefix("net.") for name in classifier.state_dict()] == list(net.state_dict())


@pytest.mark.parametrize("alpha", [1e-3, 0.5, 7.0, 1e4])
def test_rescaled_shares_everything_but_the_scale(alpha: float) -> None:
    classifier, x = Classifier(seeded(Plain)), images()
    one, other = classifier.outputs(x), classifier.rescaled(alpha).outputs(x)
    assert torch.equal(other.logits, alpha * one.logits)
    assert one.features is not None
    assert other.features is not None
    assert torch.equal(one.features, other.features)
    assert classifier.rescaled(alpha).head_name == "fc"
    assert classifier.rescaled(alpha).net is classifier.net
    assert classifier.rescaled(alpha).rescaled(2.0).logit_scale == 2 * alpha


def test_a_classifier_of_a_classifier_is_one_classifier() -> None:
    inner = Classifier(seeded(Plain), head="fc", mean=[0.5] * 3, std=[0.2] * 3, logit_scale=2)
    outer, x = Classifier(inner, logit_scale=3), images()
    assert outer.unwrapped is inner.unwrapped
    torch.testing.assert_close(outer(x), 3 * inner(x))
    assert as_classifier(inner) is inner
    with pytest.raises(ValueError, match="given once"):
        Classifier(inner, mean=[0.5] * 3, std=[0.2] * 3)


def test_gradients_and_second_derivatives_reach_the_images() -> None:
    net = seeded(lambda: Plain(change=lambda logits, z: logits * (1 + z.square().mean(dim=1, keepdim=True))))
    x = images().requires_grad_()
    output = Classifier(net).outputs(x)
    (first,) = torch.autograd.grad(output.cosines.square().sum() + output.logits.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    assert second.abs().sum() > 0


def test_finding_the_head_in_train_mode_changes_nothing() -> None:
    net = seeded(lambda: Wrapper(Plain())).train()
    net.get_submodule("inner.norm").eval()
    before, random = state(net), torch.get_rng_state()
    Classifier(net).find_head(images())
    assert state(net) == before
    assert torch.equal(torch.get_rng_state(), random)


def test_everything_is_restored_when_the_network_raises() -> None:
    net = seeded(Stumbling).train()
    net.get_submodule("norm").eval()
    net.get_parameter("fc.weight").requires_grad_(False)
    classifier, before = Classifier(net), state(net)
    with pytest.raises(RuntimeError, match="stumbled"):
        classifier.find_head(images())
    assert state(net) == before
    classifier._found = "fc"
    net.eval()
    before = state(net)
    with pytest.raises(RuntimeError, match="stumbled"):
        classifier.outputs(images())
    assert state(net) == before


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_logit_scale_must_be_positive(scale: float) -> None:
    with pytest.raises(ValueError, match="logit_scale must be positive"):
        Classifier(Plain(), logit_scale=scale)


@pytest.mark.parametrize(
    ("mean", "std"),
    [([0.5], None), (None, [0.5]), ([], []), ([0.5], [0.0]), ([0.5] * 3, [0.2]), ([math.nan], [1])],
)
def test_normalisation_is_checked(mean: list[float] | None, std: list[float] | None) -> None:
    with pytest.raises(ValueError, match="mean"):
        Classifier(Plain(), mean=mean, std=std)


def test_images_are_checked() -> None:
    classifier = Classifier(Plain(), mean=[0.5], std=[0.2])
    with pytest.raises(ValueError, match="must have 1 channels"):
        classifier(images())
    with pytest.raises(ValueError, match="divide bytes by 255"):
        classifier(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(ValueError, match="at least one image"):
        Classifier(Plain()).find_head(images()[:0])


def test_outputs_read_no_values_once_the_head_is_known() -> None:
    classifier, x = Classifier(seeded(Plain), mean=[0.5] * 3, std=[0.2] * 3, logit_scale=2.0), images()
    classifier.find_head(x)
    output = classifier.to("meta").outputs(x.to("meta"))  # a tensor without values allows no .item()
    assert output.cosines.shape == (5, 10)


def test_autocast_keeps_features_as_the_head_saw_them() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = Classifier(seeded(Plain)).outputs(images())
    assert output.features is not None
    assert output.logits.dtype == torch.bfloat16
    assert output.cosines.dtype == torch.float32


def test_weight_norm_is_part_of_the_weight() -> None:
    net = seeded(Plain)
    torch.nn.utils.parametrizations.weight_norm(net.get_submodule("fc"))
    output = Classifier(net).outputs(images())
    assert output.weight is not None
    assert torch.equal(output.weight, net.get_submodule("fc").weight)
