"""The demo's network as somebody else would have written it: the same function, other classes and names.

python benchmarks/attack_speed.py --model their_network:demo --out docs/results/benchmarks/cpu-theirs.json
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof import load_model
from scaleproof.models.resnet import BasicBlock, ResNet


class Unit(nn.Module):
    def __init__(self, block: BasicBlock) -> None:
        super().__init__()
        self.main = nn.Sequential(block.conv1, block.bn1, nn.ReLU(inplace=True), block.conv2, block.bn2)
        self.side = block.shortcut

    def forward(self, x: Tensor) -> Tensor:
        out = self.main(x)
        out += self.side(x)
        return F.relu(out, inplace=True)


class TheirNetwork(nn.Module):
    def __init__(self, net: ResNet) -> None:
        super().__init__()
        self.stem = nn.Sequential(net.conv1, net.bn1, nn.ReLU(inplace=True))
        self.body = nn.Sequential(*(Unit(block) for block in net.blocks if isinstance(block, BasicBlock)))
        self.classifier = net.head

    def forward(self, x: Tensor) -> Tensor:
        out = F.avg_pool2d(self.body(self.stem(x)), 4)
        logits: Tensor = self.classifier(out.view(out.size(0), -1))
        return logits


def demo() -> nn.Module:
    net = load_model("demo").classifier.net
    assert isinstance(net, ResNet)
    return TheirNetwork(net).eval()
