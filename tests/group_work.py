"""What two processes do in a test: run by torchrun, each writes what it has into a file of its own."""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.defenses import Batch, Defense, Outcome
from scaleproof.defenses.base import Learner, Memory
from scaleproof.losses import logits
from scaleproof.models import as_classifier
from scaleproof.museum.healthy import WithoutNorm
from scaleproof.parallel import Group, joined
from scaleproof.training import Trainer
from training_helpers import QUICK, small

CPU = torch.device("cpu")


def share(group: Group) -> object:
    """The sums of weights that were another rank's."""
    torch.manual_seed(group.rank)  # as a network with chance of its own would
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    net[1].running_mean.normal_()  # type: ignore[operator, union-attr]
    group.share(net, CPU)
    return [float(tensor.double().sum()) for tensor in net.state_dict().values()]


@dataclass(frozen=True, kw_only=True)
class Turning(Defense):
    """Its last step, of one row, has a term and a weight of its own; so have the others of the second epoch."""

    net: Any
    late: bool = False
    epoch: int = 0
    name = "turning"
    label = "Turning"

    def at(self, epoch: int, step: int) -> "Turning":
        return replace(self, late=step == 2, epoch=epoch)

    def outcome(self, learner: Learner, batch: Batch, memory: Memory) -> Outcome:
        output = learner.outputs(batch.x, "clean")
        terms: dict[str, Tensor] = {"clean": F.cross_entropy(logits(output), batch.y)}
        if self.late:
            terms["late"] = 5 + (self.net.own - 1).square().mean()
        elif self.epoch == 1:
            terms["early"] = 100 + 0 * terms["clean"]
        return self.finished(terms, output, batch.y)


def train(group: Group) -> object:
    """Two epochs of 24, 24 and 1 images, of which a rank among two has none; the records and all weights."""
    torch.manual_seed(0)
    net = WithoutNorm()
    net.own = nn.Parameter(torch.zeros(3))
    config = replace(QUICK, validation=5)
    training = Trainer(as_classifier(net), small(54), Turning(net=net), config, test=None, group=group)
    assert (len(training.images), training.steps) == (49, 3)
    for _ in training.run():
        pass
    weights = {name: tensor.flatten().tolist() for name, tensor in net.state_dict().items()}
    return [*({k: v for k, v in one.items() if "second" not in k} for one in training.history), weights]


if __name__ == "__main__":
    with joined(CPU) as group:
        found = {"share": share, "train": train}[sys.argv[1]](group)
        Path(sys.argv[2], f"{group.rank}.json").write_text(json.dumps(found))
