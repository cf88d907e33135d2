"""Where the head is in doubt, a Classifier says what it saw and asks for the name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from model_zoo import ConvolutionHead, HeadNever, HeadTwice, Plain, Tokens, TwoHeads, images, seeded
from scaleproof.models import Classifier
from scaleproof.models.heads import agreement


def message(net: nn.Module, x: Tensor | None = None, **options: Any) -> str:
    """The error that asking for outputs raises, with the network's hooks gone afterwards."""
    with pytest.raises(ValueError) as caught:
        Classifier(net, **options).outputs(images() if x is None else x)
    assert not any(module._forward_hooks for module in net.modules())
    return str(caught.value)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (HeadTwice, ["'main': Linear(12, 10)", "ran 2 times"]),
        (HeadNever, ["'main': Linear(12, 10)", "ran 0 times"]),
        (Tokens, ["'head': Linear(12, 10) (5, 4, 12) to (5, 4, 10)", "not comparable"]),
        (
            lambda: ConvolutionHead(pooled=False),
            ["'classify': Conv2d(12, 10) (5, 12, 8, 8)", "not comparable"],
        ),
        (lambda: Plain(change=lambda logits, _: -logits), ["'fc'", "factor -1", "correlation -1.00000"]),
        (lambda: Plain(change=lambda logits, _: logits.softmax(dim=1)), ["'fc'", "residual"]),
        (lambda: Plain(change=lambda logits, _: logits * float("nan")), ["'fc'", "residual nan"]),
        (lambda: Plain(change=lambda logits, _: logits.flip(1)), ["'fc'", "residual"]),
        (lambda: Plain(change=lambda logits, _: 0 * logits), ["'fc'", "residual"]),
        (lambda: nn.Sequential(nn.Conv2d(3, 10, 16), nn.Flatten()), ["modules seen: none"]),
    ],
)
def test_doubt_names_the_modules_seen(make: Callable[[], nn.Module], parts: list[str]) -> None:
    text = message(seeded(make))
    assert "`head=`" in text
    for part in parts:
        assert part in text


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda logits, _: {"logits": logits}, "dict"),
        (lambda logits, _: (logits, logits), "tuple"),
        (lambda logits, _: logits.argmax(dim=1), r"torch.int64 \(5,\)"),
        (lambda logits, _: logits[:, :1], r"\(5, 1\)"),
        (lambda logits, _: logits[:2], r"\(2, 10\) for 5 images"),
    ],
)
def test_logits_must_be_one_floating_matrix(change: Callable[[Tensor, Tensor], Any], seen: str) -> None:
    with pytest.raises(ValueError, match=f"two classes or more, got .*{seen}"):
        Classifier(seeded(lambda: Plain(change=change)))(images())


def test_unknown_head_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match="got 'auxillary': nearest are 'auxiliary'"):
        Classifier(TwoHeads(), head="auxillary")
    with pytest.raises(ValueError, match="nearest are 'body', 'main', 'auxiliary'"):
        Classifier(TwoHeads(), head="xyz")


def test_named_head_must_agree_with_the_logits() -> None:
    text = message(seeded(TwoHeads), head="auxiliary")
    assert "do not follow the output of head='auxiliary'" in text
    assert "do not follow" in message(seeded(TwoHeads), head="body")
    assert "do not follow" in message(seeded(lambda: Plain(change=lambda y, _: -y)), head="fc")


def test_named_head_must_run_once_on_one_vector_per_sample() -> None:
    assert "'main' ran 2 times" in message(seeded(HeadTwice), head="main")
    assert "'main' ran 0 times" in message(seeded(HeadNever), head="main")
    assert "took (5, 4, 12) for a batch of 5" in message(seeded(Tokens), head="head")
    assert "took (5, 12, 8, 8)" in message(seeded(lambda: ConvolutionHead(pooled=False)), head="classify")


def test_two_classes_with_a_scale_per_sample_are_ambiguous() -> None:
    net = seeded(lambda: Plain(2, lambda logits, z: logits / z.norm(dim=1, keepdim=True).square()))
    assert "`head=`" in message(net)


def test_two_classes_and_a_single_image_fit_any_factor() -> None:
    net = seeded(lambda: Plain(2, lambda logits, _: 3 * logits))
    assert "more and different images" in message(net, images(1))
    assert "more and different images" in message(net, images(1).expand(6, -1, -1, -1))
    assert Classifier(net, head="fc").find_head(images(1)) == "fc"


def test_a_module_that_runs_twice_gives_way_to_one_that_agrees() -> None:
    class Reused(TwoHeads):
        def forward(self, x: Tensor) -> Tensor:
            features = self.body(x.flatten(1)).relu()
            logits = self.main(features)
            self.seen = self.auxiliary(features) + self.auxiliary(-features)
            return logits

    assert Classifier(seeded(Reused)).find_head(images()) == "main"


def test_the_head_must_still_run_once_after_it_was_found() -> None:
    class Moody(TwoHeads):
        def forward(self, x: Tensor) -> Tensor:
            features = self.body(x.flatten(1)).relu()
            return self.main(features) if len(x) < 6 else self.main(features) + self.main(features)

    classifier = Classifier(seeded(Moody))
    classifier.outputs(images(5))
    with pytest.raises(ValueError, match="'main' ran 2 times"):
        classifier.outputs(images(6))


def test_a_replaced_head_is_reported() -> None:
    net = seeded(TwoHeads)
    classifier = Classifier(net)
    classifier.find_head(images())
    net.main = nn.Identity()
    with pytest.raises(ValueError, match="'main' was replaced by Identity"):
        classifier.outputs(images())


@pytest.mark.parametrize("value", [0.0, 3.0, float("inf"), float("nan")])
def test_agreement_of_constant_tensors_is_no_error(value: float) -> None:
    constant, varied = torch.full((4, 3), value), torch.rand(4, 3, generator=torch.Generator().manual_seed(1))
    assert not agreement(varied, constant).holds(3, named=True)
    assert not agreement(constant, varied).holds(3, named=True)
    assert agreement(varied, varied).holds(3, named=False)
