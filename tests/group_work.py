"""What two processes do in a test: run by torchrun, each writes what it has into a file of its own."""

import json
import sys
from pathlib import Path

import torch
from torch import nn

from scaleproof.parallel import joined

CPU = torch.device("cpu")

if __name__ == "__main__":
    with joined(CPU) as group:
        torch.manual_seed(group.rank)  # as a network with chance of its own would
        net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        net[1].running_mean.normal_()  # type: ignore[operator, union-attr]
        group.share(net, CPU)
        sums = [float(tensor.double().sum()) for tensor in net.state_dict().values()]
        Path(sys.argv[1], f"{group.rank}.json").write_text(json.dumps(sums))
