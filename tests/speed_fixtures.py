"""What tests of `scaleproof.speed` need on a CPU: trained-looking networks, plain kernels, a pretended GPU."""

import sys
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plain_kernels
from scaleproof.models.preact import PreActResNet
from scaleproof.models.resnet import BasicBlock, Bottleneck, ResNet


def trained_looking(net: nn.Module, seed: int = 0) -> nn.Module:
    """Running statistics and affine parameters as a trained network has them, not zeros and ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.2, generator=generator)  # type: ignore[union-attr]
                module.running_var.uniform_(0.5, 2.0, generator=generator)  # type: ignore[union-attr]
                module.weight.uniform_(0.5, 1.5, generator=generator)
                module.bias.normal_(0, 0.2, generator=generator)
    return net.eval()


NETWORKS = {
    "resnet": lambda: ResNet(BasicBlock, (1, 2, 1), width=8),
    "bottleneck": lambda: ResNet(Bottleneck, (1, 2), width=8),
    "preact": lambda: PreActResNet((8, 16), 2, stem=8),
}


@pytest.fixture
def spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CUDA body's kernels in plain torch, so that its own arithmetic can be checked on a CPU."""

    def relu(x: Tensor, w: Tensor, b: Tensor, stride: list[int], padding: list[int], *_: object) -> Tensor:
        return F.relu(F.conv2d(x, w, b, stride, padding))

    def add_relu(
        x: Tensor,
        w: Tensor,
        z: Tensor,
        alpha: float,
        b: Tensor,
        stride: list[int],
        padding: list[int],
        *_: object,
    ) -> Tensor:
        return F.relu(F.conv2d(x, w, b, stride, padding) + alpha * z)

    monkeypatch.setattr(torch, "cudnn_convolution_relu", relu)
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", add_relu)
    monkeypatch.setitem(sys.modules, "scaleproof.speed.kernels", plain_kernels)  # type: ignore[arg-type]
    monkeypatch.setattr("scaleproof.speed.kernels", plain_kernels, raising=False)
    monkeypatch.setitem(sys.modules, "scaleproof.speed.stem_kernels", plain_kernels)  # type: ignore[arg-type]
    monkeypatch.setattr("scaleproof.speed.stem_kernels", plain_kernels, raising=False)
    monkeypatch.setitem(sys.modules, "scaleproof.speed.norm_kernels", plain_kernels)  # type: ignore[arg-type]
    monkeypatch.setattr("scaleproof.speed.norm_kernels", plain_kernels, raising=False)
    for name in ("fused", "fused_preact", "pairs"):
        monkeypatch.delitem(sys.modules, f"scaleproof.speed.{name}", raising=False)
    monkeypatch.delitem(sys.modules, "scaleproof.speed.training_body", raising=False)


@pytest.fixture
def a_gpu() -> Iterator[None]:
    """A device `cuda:0` on a machine without one."""
    from pretended_gpu import (
        pretended_gpu,
    )  # needs parts of torch that may move: only its own tests fail then

    with pretended_gpu():
        yield
