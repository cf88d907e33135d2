"""Other people's attacks take part in an evaluation and are judged like our own."""

import importlib
import linecache
import random
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foreign_attacks import their_pgd
from foreign_helpers import SMALL, foreign, same, small
from helpers import LinearNet, SmallConvNet, decisions, images, worst_margin
from scaleproof import PGD, Rng, Threat, attack_batch, evaluate, suite
from scaleproof.attacks.adapters import Built
from scaleproof.attacks.loop import Packing, perturb
from scaleproof.models import Classifier
from scaleproof.oracle import Oracle
from scaleproof.rng import seeded
from scaleproof.store import FolderStore


def test_a_foreign_attack_reaches_the_closed_form_optimum() -> None:
    net, x, threat = LinearNet().eval(), images(40), Threat(eps=0.05)
    y = decisions(net, x)
    found = evaluate(net, (x, y), [foreign(partial(their_pgd, eps=0.05, steps=20), threat=threat)])
    exact = worst_margin(net, x, y, threat)
    clear = (exact.abs() > 1e-4).numpy()
    assert (found.attacks[0].verdicts["broken"][0][clear] == (exact < 0).numpy()[clear]).all()
    assert 0 < found.robust().correct < 40
    nothing = evaluate(net, (x, y), [foreign(lambda model, x, y: x, threat=threat)])
    assert nothing.robust().correct == 40, "an attack that does nothing breaks nothing"


def test_costs_are_counted() -> None:
    net, data = small()
    result = evaluate(net, data, [foreign(partial(their_pgd, eps=0.02, steps=7))]).attacks[0]
    assert result.backwards == 24 * 7
    assert result.forwards == 24 * (7 + 1), "and one forward for the verdict"


def test_a_gradient_that_vanishes_is_a_finding() -> None:
    net, data = small()
    loud = Classifier(net, logit_scale=1e6)
    found = evaluate(loud, data, [foreign(partial(their_pgd, eps=0.02))])
    assert any(finding.name == "gradient-zero" for finding in found.findings)


def test_restarts_and_cascade() -> None:
    net, data = small()
    theirs = foreign(partial(their_pgd, eps=0.02, steps=3), restarts=2)
    seen: list[int] = []

    def watching(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        seen.append(len(x))
        return their_pgd(model, x, y, eps=0.02, steps=3)

    first = PGD(threat=SMALL, steps=1)
    alone = evaluate(net, data, [theirs])
    assert (alone.attacks[0].verdicts["digest"][0] != alone.attacks[0].verdicts["digest"][1]).any()
    cascade = evaluate(net, data, [first, foreign(watching)], mode="cascade")
    assert seen == [cascade.robust("pgd").correct], "only survivors are passed"
    assert 0 < cascade.robust().correct < cascade.robust("pgd").correct < 24


def test_filling_rows_are_not_attacked_twice() -> None:
    net, (x, y) = small()
    sizes: list[int] = []

    def watching(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        sizes.append(len(x))
        return their_pgd(model, x, y, eps=0.02)

    oracle = Oracle(Classifier(net))
    for drop in (False, True):
        found = perturb(
            foreign(watching),
            oracle,
            x[:5],
            y[:5],
            torch.arange(5),
            Rng(0),
            drop=drop,
            packing=Packing(24, True),
        )
        assert found.shape == x[:5].shape
        assert not torch.equal(found, x[:5])
    assert sizes == [5, 5]


def test_a_resumed_run_gives_the_same_bits(tmp_path: Path) -> None:
    net, data = small()

    def unlucky(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        noise = np.random.uniform(-1, 1) + random.uniform(-1, 1)
        return their_pgd(model, (x + 0.001 * noise).clamp(0, 1), y, eps=0.015, steps=2)

    run = partial(evaluate, net, data, [foreign(unlucky)], batch_size=8)
    whole, store = run(store=FolderStore(tmp_path)), FolderStore(tmp_path)
    killed = sorted(tmp_path.glob("*theirs*"))
    assert len(killed) == 3
    for path in killed[1:]:
        path.unlink()
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    assert same(run(store=store), whole)
    assert same(run(seed=0), whole)
    assert not same(run(seed=1), whole)


def test_global_random_numbers_are_left_alone() -> None:
    net, data = small()
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    before = random.random(), np.random.rand(), float(torch.rand(()))
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    evaluate(net, data, [foreign(partial(their_pgd, eps=0.02))])
    assert (random.random(), np.random.rand(), float(torch.rand(()))) == before
    with seeded(torch.device("cpu"), 7):
        first = torch.rand(3), np.random.rand(), random.random()
    with seeded(torch.device("cpu"), 7):
        assert torch.equal(torch.rand(3), first[0])
        assert (np.random.rand(), random.random()) == first[1:]


def test_a_randomised_model_answers_with_the_mean_of_its_draws() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = SmallConvNet().eval()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x + 0.05 * torch.randn_like(x))

    net, (x, y) = Noisy().eval(), small()[1]
    runs = [
        evaluate(net, (x, y), [foreign(partial(their_pgd, eps=0.02, steps=2))], draws=4) for _ in range(2)
    ]
    assert same(*runs)
    assert runs[0].attacks[0].backwards == 4 * 2 * runs[0].clean.correct


def test_another_source_is_another_run(tmp_path: Path) -> None:
    net, data = small()
    evaluate(net, data, [foreign(lambda model, x, y: x)], store=FolderStore(tmp_path))
    with pytest.raises(ValueError, match="another run"):
        evaluate(net, data, [foreign(lambda model, x, y: x + 0)], store=FolderStore(tmp_path))


def test_another_factory_is_another_run(tmp_path: Path) -> None:
    net, data = small()
    short = foreign(Built(lambda model: partial(their_pgd, model, eps=0.02, steps=1)))
    long = foreign(Built(lambda model: partial(their_pgd, model, eps=0.02, steps=9)))
    evaluate(net, data, [short], store=FolderStore(tmp_path))
    with pytest.raises(ValueError, match="another run"):
        evaluate(net, data, [long], store=FolderStore(tmp_path))


CLASS = """
from dataclasses import dataclass
from scaleproof import PGD
STEPS = {steps}
@dataclass(frozen=True, kw_only=True)
class Mine(PGD):
    steps: int = STEPS
    def describe(self): return {{"attack": "mine"}}
"""


def test_a_class_that_was_changed_since_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words stay the same, its file does not: a run folder must not answer for it."""
    monkeypatch.chdir(tmp_path)
    net, data = small()
    for steps in (1, 2):
        Path("changing_attack.py").write_text(CLASS.format(steps=steps))
        linecache.clearcache()
        monkeypatch.delitem(sys.modules, "changing_attack", raising=False)
        importlib.invalidate_caches()
        attacks = suite("changing_attack:Mine")
        assert attacks[0].steps == steps
        if steps == 1:
            evaluate(net, data, attacks, store=FolderStore(tmp_path / "store"))
        else:
            with pytest.raises(ValueError, match="another run"):
                evaluate(net, data, attacks, store=FolderStore(tmp_path / "store"))


def test_attack_batch_takes_it_too() -> None:
    net, (x, y) = small()
    found = attack_batch(foreign(partial(their_pgd, eps=0.02)), net, x, y)
    assert bool((net(found).argmax(1) != y).any())
