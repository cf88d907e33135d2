"""Folding: a frozen copy of a network whose BatchNorms have become part of its convolutions (eval mode only)."""

from __future__ import annotations

import copy

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from scaleproof.models.hypersphere import HypersphereHead
from scaleproof.models.preact import PreActBlock, PreActResNet
from scaleproof.models.resnet import BasicBlock, Bottleneck, ResNet

OwnNetwork = ResNet | PreActResNet
BLOCKS = (BasicBlock, Bottleneck, PreActBlock)
PARTS = {
    *(ResNet, PreActResNet, *BLOCKS),
    *(nn.Sequential, nn.Identity, nn.Conv2d, nn.BatchNorm2d, nn.Linear, HypersphereHead),
}


def can_fold(net: nn.Module) -> bool:
    """Whether `net` is one of our architectures as we built it, in eval mode."""
    return is_own(net) and not any(module.training for module in net.modules())


def is_own(net: nn.Module) -> bool:
    """Whether `net` is one of our architectures as we built it: no hooks, no part replaced or patched."""
    if not isinstance(net, ResNet | PreActResNet) or type(net) not in (ResNet, PreActResNet):
        return False
    if not all(fits(net, name.rpartition(".")[2], module) for name, module in net.named_modules()):
        return False
    shortcuts = (part for name, part in net.named_modules() if "shortcut" in name)
    narrow = all(part.kernel_size == (1, 1) for part in shortcuts if isinstance(part, nn.Conv2d))
    return narrow and all(untouched(module) for module in net.modules()) and is_stem(net.conv1)


def fits(net: nn.Module, name: str, module: nn.Module) -> bool:
    """Whether a part is of the kind that its name says: what is written out by hand takes it for one."""
    if name == "shortcut" and isinstance(net, PreActResNet):
        return isinstance(module, nn.Conv2d)
    if name == "shortcut":
        kinds_within = [type(part) for part in module.children()]
        return isinstance(module, nn.Identity) or kinds_within == [nn.Conv2d, nn.BatchNorm2d]
    if name == "blocks":
        return isinstance(module, nn.Sequential) and all(isinstance(block, BLOCKS) for block in module)
    kinds = {"conv": nn.Conv2d, "bn": nn.BatchNorm2d, "head": nn.Linear}
    return isinstance(module, kinds.get(name.rstrip("0123456789"), nn.Module))


def untouched(module: nn.Module) -> bool:
    if type(module) not in PARTS or "forward" in vars(module):
        return False
    if isinstance(module, nn.Conv2d) and not is_plain(module):
        return False
    if isinstance(module, nn.BatchNorm2d):
        usual = (module.running_var, module.weight, module.momentum)
        if any(value is None for value in usual):
            return False
    return not (module._forward_hooks or module._forward_pre_hooks)


def is_plain(convolution: nn.Conv2d) -> bool:
    """As all of ours are: what is written out by hand knows no bias, groups, dilation or padding but by zeros."""
    usual = convolution.groups == 1 and convolution.dilation == (1, 1) and convolution.padding_mode == "zeros"
    return usual and convolution.bias is None and not isinstance(convolution.padding, str)


def is_stem(convolution: nn.Conv2d) -> bool:
    """The first convolution of ours: three channels, 3x3, stride 1, one pixel of padding."""
    sizes = (convolution.kernel_size, convolution.stride, convolution.padding)
    return convolution.in_channels == 3 and sizes == ((3, 3), (1, 1), (1, 1))


def fold(net: OwnNetwork) -> OwnNetwork:
    """A copy that computes the same function in eval mode with fewer layers and no parameter that needs a gradient."""
    folded = copy.deepcopy(net)
    for convolution_name, norm_name in net.foldable():
        convolution, norm = net.get_submodule(convolution_name), net.get_submodule(norm_name)
        assert isinstance(convolution, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        folded.set_submodule(convolution_name, fuse_conv_bn_eval(convolution, norm))
        folded.set_submodule(norm_name, nn.Identity())
    return folded.eval().requires_grad_(False)
