"""Several processes, one training or evaluation: `torchrun --nproc-per-node N -m scaleproof ...`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

PATIENCE = timedelta(hours=12)  # one rank may work alone on the last chunk while the others wait


@dataclass(frozen=True)
class Group:
    """This process among those that work together; one process alone is rank 0 of 1."""

    rank: int = 0
    size: int = 1

    @property
    def writes(self) -> bool:
        return self.rank == 0

    def part(self, count: int) -> slice:
        """This rank's rows of a batch of `count`: parts differ by one row at most."""
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all ranks."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        for tensor, total in zip(
            tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True
        ):
            tensor.copy_(total.view_as(tensor))

    def agreed(self, values: Sequence[float]) -> list[float]:
        """The numbers of rank 0, on every rank: decisions are made once."""
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        dist.broadcast_object_list(box := [numbers.tolist()], src=0)
        return list(box[0])

    def gathered(self, thing: Any) -> list[Any]:
        """What every rank has in the place of this one's."""
        found: list[Any] = [thing] * self.size
        if self.size > 1:
            dist.all_gather_object(found, thing)
        return found

    def share(self, net: nn.Module, device: torch.device) -> None:
        """The weights and buffers of rank 0, on every rank: a network may begin with chance of its own."""
        if self.size > 1:
            for tensor in (*net.parameters(), *net.buffers()):
                moved = tensor.detach().to(device).reshape(-1)
                dist.broadcast(moved.view(torch.uint8), src=0)  # bytes: not every type can be sent
                tensor.detach().copy_(moved.view_as(tensor))

    def average_buffers(self, net: nn.Module) -> None:
        """Local BatchNorm statistics become their mean over the ranks."""
        if self.size > 1:
            buffers = [buffer for buffer in net.buffers() if buffer.is_floating_point()]
            self.add_up(buffers)
            for buffer in buffers:
                buffer.div_(self.size)

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


ALONE = Group()


@contextmanager
def joined(device: torch.device) -> Iterator[Group]:
    """The group that torchrun started, or this process alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # by which barriers and objects go: another one on each rank
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Group(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def local_device(device: torch.device) -> torch.device:
    """Under torchrun each process takes the GPU of its own number."""
    local = os.environ.get("LOCAL_RANK")
    if local is None or device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", int(local))
