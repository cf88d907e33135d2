"""Compiled and parallel networks: the features still come out, and nobody's module is changed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from model_zoo import Normalise, Plain, Wrapper, images, seeded
from scaleproof.models import Classifier, weights_digest


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch 2.11 on Python 3.12
        torch.compiler.reset()


def compiled(net: nn.Module) -> nn.Module:
    """A network that torch.compile has traced already, so that later hooks never fire."""
    fast: Any = torch.compile(net, backend="eager")
    fast(images())
    return fast


def in_place(net: nn.Module) -> nn.Module:
    """A network compiled by its own method, and traced already."""
    net.compile(backend="eager")
    net(images())
    return net


def by_function(net: nn.Module) -> nn.Module:
    """A network whose forward method was replaced by a compiled one."""
    net.forward = torch.compile(net.forward, backend="eager")
    net(images())
    return net


WRAPPED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "compiled": (lambda: compiled(seeded(Plain)), "fc"),
    "compiled in a wrapper": (lambda: Wrapper(compiled(seeded(Plain))).eval(), "inner.fc"),
    "compiled in a sequence": (lambda: nn.Sequential(Normalise(), compiled(seeded(Plain))).eval(), "1.fc"),
    "wrapper compiled around compiled": (
        lambda: compiled(Wrapper(compiled(seeded(Plain))).eval()),
        "inner.fc",
    ),
    "compiled in place": (lambda: in_place(seeded(Plain)), "fc"),
    "part compiled in place": (lambda: Wrapper(in_place(seeded(Plain))).eval(), "inner.fc"),
    "forward compiled": (lambda: by_function(seeded(Plain)), "fc"),
    "parallel": (lambda: DataParallel(seeded(Plain)), "fc"),
    "parallel in a wrapper": (lambda: Wrapper(DataParallel(seeded(Plain))).eval(), "inner.fc"),
    "compiled and parallel": (lambda: DataParallel(compiled(seeded(Plain))), "fc"),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_networks(name: str) -> None:
    make, head = WRAPPED[name]
    net, x = make().eval(), images()
    names = [(key, type(module)) for key, module in net.named_modules()]
    classifier = Classifier(net)
    output = classifier.outputs(x)
    assert classifier.head_name == head
    assert torch.equal(output.logits, net(x))
    assert output.features is not None
    assert output.features.shape == (5, 12)
    assert [(key, type(module)) for key, module in net.named_modules()] == names
    assert not any(module._forward_hooks for module in net.modules())
    assert {id(p) for p in classifier.parameters()} == {id(p) for p in net.parameters()}


def test_late_hooks_of_a_compiled_network_never_fire() -> None:
    net = seeded(Plain)
    fast, fired = compiled(net), []
    handle = net.get_submodule("fc").register_forward_hook(lambda *_: fired.append(1))
    fast(images())
    handle.remove()
    assert not fired


def test_names_through_wrappers_are_understood() -> None:
    assert Classifier(compiled(seeded(Plain)), head="_orig_mod.fc").find_head(images()) == "fc"
    assert Classifier(DataParallel(seeded(Plain)), head="module.fc").find_head(images()) == "fc"


def test_modes_agree_on_both_sides() -> None:
    net = Wrapper(compiled(seeded(Plain))).train()
    classifier = Classifier(net)
    assert classifier.unwrapped is not net
    assert classifier.unwrapped.training
    net.eval()
    assert not any(module.training for module in classifier.unwrapped.modules())
    assert torch.equal(classifier(images()), net(images()))
    classifier.train()
    assert all(module.training for module in net.modules())


def test_untouched_networks_are_used_themselves() -> None:
    net = Wrapper(seeded(Plain))
    assert Classifier(net).unwrapped is net
    empty = nn.Sequential(nn.Sequential(), compiled(seeded(Plain)))
    assert Classifier(empty).unwrapped.get_submodule("0") is empty[0]


def test_shared_modules_stay_shared() -> None:
    part = compiled(seeded(lambda: nn.Sequential(nn.Conv2d(3, 3, 1))))
    net = nn.Sequential(part, part, seeded(Plain)).eval()
    plain = Classifier(net).unwrapped
    assert plain.get_submodule("0") is plain.get_submodule("1")


def test_copies_are_independent_and_digests_are_equal() -> None:
    net = Wrapper(compiled(seeded(Plain))).eval()
    twin = copy.deepcopy(Classifier(net))
    assert torch.equal(twin(images()), net(images()))
    twin.train()
    assert not net.training
    assert weights_digest(net) == weights_digest(twin) == weights_digest(Wrapper(net.inner._orig_mod))


def test_compiling_afterwards_is_reported() -> None:
    net = seeded(Plain)
    classifier = Classifier(net)
    classifier.find_head(images())
    in_place(net)
    with pytest.raises(ValueError, match=r"ran 0 times.*wrap the network anew"):
        classifier.outputs(images())
    assert Classifier(net).outputs(images()).features is not None


def test_distributed_networks(tmp_path: Path) -> None:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        net = DistributedDataParallel(seeded(Plain))
    finally:
        torch.distributed.destroy_process_group()
    classifier = Classifier(nn.Sequential(Normalise(), net).eval())
    output = classifier.outputs(images())  # the group is gone: any communication would raise
    assert classifier.head_name == "1.fc"
    assert torch.equal(output.logits, net.module(Normalise()(images())))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_outputs_themselves_may_be_compiled() -> None:
    classifier, x = Classifier(seeded(Plain)), images()
    expected = classifier.outputs(x).cosines
    fast: Any = torch.compile(lambda batch: classifier.outputs(batch).cosines, backend="aot_eager")
    torch.testing.assert_close(fast(x), expected)
    assert not any(module._forward_hooks for module in classifier.modules())
