"""The pretended GPU refuses what a GPU refuses, and shows what a CPU hides."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

pytestmark = pytest.mark.usefixtures("a_gpu")


def captured(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


@pytest.mark.parametrize(
    "mixed",
    [
        lambda here, there: here + there,
        lambda here, there: torch.stack([there[0], here[0]]),
        lambda here, there: here[there.long()],
        lambda here, there: nn.Linear(3, 3)(there),
        lambda here, there: torch.where(here > 0, there, there),
    ],
)
def test_tensors_of_two_devices_do_not_meet(mixed: Callable[[Tensor, Tensor], object]) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        mixed(torch.ones(3), torch.ones(3, device="cuda"))


def test_what_may_cross() -> None:
    there = torch.ones(3).cuda()
    assert (str(there.device), there.is_cuda, there.cpu().is_cuda) == ("cuda:0", True, False)
    assert (torch.cuda.device_count(), there.is_meta) == (1, False)
    assert there[1:].data_ptr() == there.data_ptr() + 4, "a part lies in its whole"
    assert there[1:].untyped_storage().data_ptr() == there.untyped_storage().data_ptr() > 0
    assert (there + torch.tensor(1.0)).tolist() == [2.0, 2.0, 2.0], "a number of the host"
    assert there[torch.tensor([0, 1])].is_cuda, "indices of the host"
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()


def test_moves_to_the_device() -> None:
    there, images = torch.ones(3).cuda(), torch.ones(1, 2, 2, 2)
    assert there.to("cuda") is there
    assert there.to("cuda", copy=True) is not there
    like = torch.ones(3, dtype=torch.float64).to(there)
    assert (like.is_cuda, like.dtype) == (True, torch.float32)
    assert images.to("cuda", memory_format=torch.channels_last).stride() == (8, 1, 4, 2)


def test_networks_and_generators_know_their_device() -> None:
    net = deepcopy(nn.Linear(3, 3).to("cuda"))
    net(torch.ones(1, 3, device="cuda")).sum().backward()
    assert isinstance(net.weight, nn.Parameter)
    assert all(parameter.is_cuda and parameter.grad.is_cuda for parameter in net.parameters())
    assert [torch.Generator(name).device.type for name in ("cpu", "cuda")] == ["cpu", "cuda"]


@pytest.mark.parametrize("copied", ["into", "away"])
def test_a_copy_to_the_host_is_there_when_somebody_waited(copied: str) -> None:
    events, targets = [torch.cuda.Event(), torch.cuda.Event()], []
    for event in events:
        values, target = torch.ones(2, device="cuda"), torch.zeros(2, pin_memory=True)
        into = copied == "into"
        targets.append(
            target.copy_(values, non_blocking=True) if into else values.to("cpu", non_blocking=True)
        )
        event.record()
    events[0].synchronize()
    assert targets[0].tolist() == [1.0, 1.0]
    assert targets[1].isnan().all(), "another event tells nothing of this one"
    float(torch.ones((), device="cuda"))
    assert targets[1].tolist() == [1.0, 1.0], "reading one number waits for all"


@pytest.mark.parametrize(
    "asked",
    [
        lambda x: x[0].item(),
        lambda x: torch.equal(x, x),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.cpu(),
        lambda x: x + torch.ones(2).cuda(),
        lambda x: x + torch.tensor(1.0, device="cuda"),
        lambda x: x[torch.tensor([0, 1])],
        lambda x: torch.rand(2, device="cuda", generator=torch.Generator("cuda")),
        lambda x: torch.cuda.synchronize(),
    ],
)
def test_what_a_capture_refuses(asked: Callable[[Tensor], object]) -> None:
    x = torch.ones(2, device="cuda")
    asked(x)  # a plain call may
    with pytest.raises(RuntimeError, match="capturing"):
        captured(lambda: asked(x))
    asked(x)


def test_a_capture_runs_nothing() -> None:
    given, found = torch.ones(4, 2, device="cuda"), []
    norm = nn.BatchNorm1d(2).cuda()
    captured(lambda: found.append(norm(given.add_(1))))
    assert given.tolist() == [[1.0, 1.0]] * 4
    assert norm.running_mean.tolist() == [0.0, 0.0]
    assert found[0].isnan().all(), "no replay has written it"


def test_a_replay_works_on_the_memory_that_was_recorded() -> None:
    given, row, found = torch.ones(2, device="cuda"), torch.zeros(2, 2, device="cuda"), []

    def work() -> None:
        found.append(given * 2)
        given.add_(1)
        row[0].copy_(found[0])

    graph = captured(work)
    graph.replay()
    graph.replay()
    assert (given.tolist(), found[0].tolist()) == ([3.0, 3.0], [4.0, 4.0])
    assert row.tolist() == [[4.0, 4.0], [0.0, 0.0]]


def test_a_number_of_the_host_is_that_of_the_capture() -> None:
    rate, given = torch.tensor(1.0), torch.zeros((), device="cuda")
    graph = captured(lambda: given.add_(rate))
    rate.fill_(5.0)
    graph.replay()
    assert float(given) == 1.0


def test_each_replay_draws_anew_and_from_the_seed() -> None:
    found: list[Tensor] = []
    graph = captured(lambda: found.append(torch.rand(2, device="cuda")))
    drawn = []
    for _ in range(2):
        torch.manual_seed(3)
        graph.replay()
        drawn.append(found[0].tolist())
        graph.replay()
    assert drawn[0] == drawn[1] != found[0].tolist()


def test_the_device_draws_its_own_numbers() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    torch.rand(2, device="cuda")
    assert torch.equal(torch.rand(2), expected)
