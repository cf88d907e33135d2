"""Graphs captured on a pretended GPU: what they keep, what they put back, and what happens where there is none."""

import pytest
import torch
from torch import Tensor

from scaleproof import PGD, Rng, Speed
from scaleproof.attacks import Scouting
from scaleproof.attacks.loop import perturb
from scaleproof.attacks.walk import reader
from scaleproof.models import Classifier
from scaleproof.oracle import Oracle
from scaleproof.speed import GraphCache
from training_helpers import hesitant, small

pytestmark = pytest.mark.usefixtures("a_gpu")
DEVICE = torch.device("cuda", 0)


def squared(x: Tensor) -> tuple[Tensor]:
    return (x.square(),)


def test_a_result_outlives_the_next_replay() -> None:
    graphs, given = GraphCache(DEVICE), [torch.full((2,), value).cuda() for value in (2.0, 3.0)]
    found = [graphs("key", squared, x)[0] for x in given]
    assert [one.tolist() for one in (*found, *given)] == [[4.0] * 2, [9.0] * 2, [2.0] * 2, [3.0] * 2]
    assert len(graphs.graphs) == 1


def test_other_shapes_have_another_graph_and_rare_ones_none() -> None:
    graphs = GraphCache(DEVICE, patience=1)
    for rows, captured in ((2, 0), (2, 1), (3, 1), (3, 2)):
        assert graphs("key", squared, torch.ones(rows).cuda())[0].tolist() == [1.0] * rows
        assert len(graphs.graphs) == captured


def test_what_cannot_be_captured_runs_plainly_once() -> None:
    state, x = torch.zeros(3).cuda(), torch.ones(3).cuda()
    graphs = GraphCache(DEVICE, lambda: [state])

    def reading(x: Tensor) -> tuple[Tensor]:
        state.add_(x)
        return (x * float(x.sum()),)

    assert graphs("key", reading, x)[0].tolist() == [3.0] * 3
    assert state.tolist() == [1.0] * 3, "warm-up and capture leave no trace"
    assert len(graphs.notes) == 1
    assert graphs.notes[0].startswith("graph capture failed, eager in its place: operation not permitted")


def test_a_number_is_read_one_step_late() -> None:
    late = reader(DEVICE)
    assert [late.read(torch.tensor([value]).cuda()) for value in (7, 5, 3)] == [None, 7, 5]


def oracles(classifier: Classifier) -> list[Oracle]:
    return [Oracle(classifier, speed=Speed(precision="float32", graph=graph)) for graph in (True, False)]


def test_passes_and_useless_gradients_are_counted_as_without_graphs() -> None:
    x, _ = small(12, "test").batch(0, 12)
    classifier = hesitant(x)
    y = classifier(x).argmax(1).cuda()
    counted = []
    for oracle in oracles(classifier.rescaled(1e5).cuda()):  # where many gradients of cross entropy are zero
        oracle.judge(x[:1].cuda())
        perturb(PGD(steps=5), oracle, x.cuda(), y, torch.arange(12).cuda(), Rng(0))
        counted.append((oracle.cost, oracle.health.read(), oracle.notes))
    assert counted[0] == counted[1]
    assert counted[0][1][1] > 0


def test_an_example_outlives_the_next_run() -> None:
    x, _ = small(12, "test").batch(0, 12)
    oracle = oracles(hesitant(x).cuda())[0]
    y, index = torch.zeros(12, dtype=torch.int64).cuda(), torch.arange(12).cuda()
    first = perturb(Scouting(), oracle, x.cuda(), y, index, Rng(0))
    kept = first.clone()
    second = perturb(Scouting(), oracle, x.flip(0).cuda(), y, index, Rng(0))
    assert torch.equal(first, kept)
    assert not torch.equal(first, second)
