"""APGD, FAB, Square, SPSA and RayS: closed-form optima, an independent derivation, few and many classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from apgd_by_hand import apgd_by_hand
from helpers import LinearNet, SmallConvNet, decisions, images, worst_margin
from scaleproof import Rng, Speed, Threat, attack_batch, evaluate, losses, suite
from scaleproof.attacks import APGD, FAB, SPSA, RayS, Square, preset
from scaleproof.attacks.apgd import APGDState
from scaleproof.attacks.base import Attack
from scaleproof.attacks.square import HALVINGS
from scaleproof.losses import margin
from scaleproof.models import Classifier
from scaleproof.oracle import Oracle
from scaleproof.speed import PLAIN
from scaleproof.store import Arrays, MemoryStore
from scaleproof.threat import solve_amount

LINF, L2 = Threat(eps=0.05), Threat(norm="l2", eps=0.3)
BOTH = pytest.mark.parametrize("threat", [LINF, L2], ids=["linf", "l2"])


def type_name(value: object) -> str:
    return type(value).__name__


def linear_case(count: int = 60) -> tuple[LinearNet, Tensor, Tensor]:
    net, x = LinearNet().eval(), images(count)
    return net, x, decisions(net, x)


@BOTH
@pytest.mark.parametrize("objective", [losses.cross_entropy, losses.cw_margin], ids=["ce", "cw"])
def test_apgd_reaches_the_linear_optimum(threat: Threat, objective: losses.Objective) -> None:
    net, x, y = linear_case()
    tight = worst_margin(net, x, y, threat)
    found = attack_batch(APGD(threat=threat, objective=objective), Classifier(net), x, y)
    robust = tight > 0  # a broken row keeps its last misclassified iterate, not its best
    reached = -margin(net(found).detach(), y).double()
    torch.testing.assert_close(reached[robust], tight[robust], rtol=1e-3, atol=1e-4)
    assert ((reached < 0) == (tight < 0)).all()


@BOTH
@pytest.mark.parametrize(
    "attack",
    [APGD(targets=9, objective=losses.dlr), FAB(steps=20), Square(steps=2000)],
    ids=lambda a: a.label,
)
def test_broken_are_those_that_can_be_broken(threat: Threat, attack: Attack) -> None:
    net, x, y = linear_case()
    tight = worst_margin(net, x, y, threat)
    clear = (tight.abs() > 0.05 * tight.abs().max()).numpy()  # random search stops short of the last percent
    evaluation = evaluate(net, (x, y), [replace(attack, threat=threat)], mode="cascade")  # type: ignore[type-var]
    broken = evaluation.attacks[0].broken()
    assert not (broken & (tight > 0).numpy()).any()
    if isinstance(attack, Square) and threat is L2:
        assert (broken & clear).sum() > 0.7 * ((tight < 0).numpy() & clear).sum()
    else:
        assert (broken[clear] == (tight < 0).numpy()[clear]).all()


def distances(net: LinearNet, x: Tensor, y: Tensor, norm: str) -> Tensor:
    """Of each image from the plane of a two-class linear model; exact where the pixel range is not met."""
    direction = (net.head.weight[y] - net.head.weight[1 - y]).detach().double()
    gap = (direction * x.flatten(1).double()).sum(1) + (
        net.head.bias[y] - net.head.bias[1 - y]
    ).detach().double()
    return gap / (direction.abs().sum(1) if norm == "linf" else direction.norm(dim=1))


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_fab_finds_the_nearest_point_within_five_percent(norm: str) -> None:
    net, x, y = linear_case()
    eps = 1.0 if norm == "linf" else 5.0
    attack = FAB(threat=Threat(norm=norm, eps=eps), steps=20)  # type: ignore[arg-type]
    sizes = evaluate(net, (x, y), [attack], speed=PLAIN).attacks[0].verdicts["size"][0]
    best = distances(net, x, y, norm).numpy()
    assert (sizes >= best - 1e-4).all()
    assert (sizes <= 1.05 * best + 1e-3).all()


def test_rays_finds_the_boundary_within_five_percent() -> None:
    net, x, y = linear_case(20)
    sizes = (
        evaluate(net, (x, y), [RayS(threat=Threat(eps=1), steps=3000)], speed=PLAIN)
        .attacks[0]
        .verdicts["size"][0]
    )
    best = distances(net, x, y, "linf").numpy()
    assert (sizes >= best - 1e-5).all()
    assert (sizes <= 1.05 * best).all()


def test_spsa_follows_the_gradient_it_cannot_see() -> None:
    net, x, y = linear_case(6)
    oracle = Oracle(Classifier(net), speed=PLAIN)
    attack = SPSA(threat=LINF, samples=4000)
    state = attack.init(oracle, x, y, torch.arange(6), Rng(0, "spsa"))
    slope = attack.estimate(oracle, state).flatten(1)
    truth = -(net.head.weight[y] - net.head.weight[1 - y]).detach()
    assert (torch.nn.functional.cosine_similarity(slope, truth, dim=1) > 0.95).all()
    grouped = replace(attack, samples=7, most_images=24).estimate(oracle, state)
    together = replace(attack, samples=7).estimate(oracle, state)
    torch.testing.assert_close(grouped, together)


def test_spsa_breaks_what_can_be_broken() -> None:
    net, x, y = linear_case(20)
    tight = worst_margin(net, x, y, LINF)
    evaluation = evaluate(net, (x, y), [SPSA(threat=LINF, samples=64, steps=60)], mode="cascade")
    clear = (tight.abs() > 0.05 * tight.abs().max()).numpy()
    assert (evaluation.attacks[0].broken()[clear] == (tight < 0).numpy()[clear]).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_projection_onto_a_plane_is_the_nearest_point(norm: str) -> None:
    generator = torch.Generator().manual_seed(0)
    point = torch.rand(50, 12, generator=generator, dtype=torch.float64)
    normal = torch.randn(50, 12, generator=generator, dtype=torch.float64)
    normal[:5, :6] = 0
    offset = (normal * torch.rand(50, 12, generator=generator, dtype=torch.float64)).sum(1)
    threat = Threat(norm=norm, eps=1.0)  # type: ignore[arg-type]
    step = threat.nearest_on_plane(point, normal, offset)
    moved = point + step
    torch.testing.assert_close((normal * moved).sum(1), offset)
    assert ((moved >= -1e-12) & (moved <= 1 + 1e-12)).all()
    for _ in range(200):  # no other point of the plane and the box is nearer
        other = torch.rand(50, 12, generator=generator, dtype=torch.float64)
        gap = offset - (normal * other).sum(1)
        other = other + normal * (gap / normal.square().sum(1))[:, None]
        allowed = ((other >= 0) & (other <= 1)).all(1)
        assert (threat.size(other - point) >= threat.size(step) - 1e-9)[allowed].all()
    beyond = threat.nearest_on_plane(point, normal, offset + 1000)
    ends = (point + beyond)[normal != 0]
    torch.testing.assert_close(ends, ends.round())  # every pixel that has a pull is at a bound
    nothing = threat.nearest_on_plane(point, torch.zeros_like(normal), offset)
    assert not nothing.any()


def test_the_amount_solves_its_equation() -> None:
    generator = torch.Generator().manual_seed(1)
    weight, pace, room = (torch.rand(40, 9, generator=generator, dtype=torch.float64) for _ in range(3))
    total = torch.rand(40, generator=generator, dtype=torch.float64) * (weight * room).sum(1)
    amount = solve_amount(weight, pace, room, total)
    torch.testing.assert_close((weight * torch.minimum(amount[:, None] * pace, room)).sum(1), total)


def test_apgd_trajectories_are_those_of_the_paper() -> None:
    net = LinearNet(classes=4).double().eval()
    x = images(5).double()
    y = decisions(net, x)
    attack, oracle = APGD(threat=LINF), Oracle(Classifier(net), speed=PLAIN)
    state = attack.init(oracle, x, y, torch.arange(5), Rng(3, "apgd"))
    expected = apgd_by_hand(net, x, y, state.current, LINF.eps, 100)
    strides = []
    for number in range(100):
        state = attack.step(oracle, state)
        assert isinstance(state, APGDState)
        found = state.visited.flatten(1).numpy()
        np.testing.assert_allclose(found, [path[number] for path in expected], atol=1e-10)
        strides.append(float(state.stride[0]))
    assert strides[0] == 2 * LINF.eps
    assert strides[-1] < strides[0] / 4  # it halves on a linear model, which is solved at once


@pytest.mark.parametrize("classes", [2, 3, 4, 10, 100, 1000])
def test_any_number_of_classes(classes: int) -> None:
    net, x = SmallConvNet(classes=classes).eval(), images(6, (3, 8, 8))
    y = decisions(net, x)
    threat = Threat(eps=0.02)
    attacks = [
        APGD(threat=threat, steps=5), APGD(threat=threat, objective=losses.dlr, targets=9, steps=5, name="t"),
        FAB(threat=threat, steps=3), Square(threat=threat, steps=5), SPSA(threat=threat, steps=2, samples=4),
        RayS(threat=threat, steps=5),
    ]  # fmt: skip
    evaluation = evaluate(net, (x, y), attacks, mode="cascade")
    runs = {result.name: result.restarts for result in evaluation.attacks}
    assert runs["fab-t"] == runs["t"] == min(9, classes - 1)
    note = any("in its place" in note for result in evaluation.attacks for note in result.notes)
    assert note == (classes < 4)


@pytest.mark.parametrize(
    "attack",
    [APGD(steps=10), FAB(steps=5), Square(steps=20), SPSA(steps=3, samples=4), RayS(steps=20)],
    ids=lambda a: a.label,
)
def test_batch_sizes_do_not_matter(attack: Attack) -> None:
    net, x = SmallConvNet().eval(), images(20, (3, 8, 8))
    y = decisions(net, x)
    chosen = replace(attack, threat=Threat(eps=0.02))  # type: ignore[type-var]
    runs = [
        evaluate(net, (x, y), [chosen], mode="cascade", batch_size=size, speed=PLAIN) for size in (1, 7, 20)
    ]
    for other in runs[1:]:
        assert (runs[0].attacks[0].broken() == other.attacks[0].broken()).all()


class Cut(BaseException):
    """A kill."""


class CutStore(MemoryStore):
    """Dies in the n-th save, before anything is kept."""

    def __init__(self, kept: MemoryStore, life: int) -> None:
        super().__init__(kept.units)
        self.life = life

    def save(self, key: str, arrays: Arrays) -> None:
        self.life -= 1
        if self.life < 0:
            raise Cut
        super().save(key, arrays)


def test_cut_in_every_stage_and_resumed_gives_the_same_verdicts() -> None:
    net, x = SmallConvNet().eval(), images(16, (3, 8, 8))
    data, threat = (x, decisions(net, x)), Threat(eps=0.004)
    attacks = [
        APGD(threat=threat, steps=4), APGD(threat=threat, objective=losses.dlr, targets=2, steps=4, name="t"),
        FAB(threat=threat, steps=2, targets=2), Square(threat=threat, steps=6),
        SPSA(threat=threat, steps=2, samples=4), RayS(threat=threat, steps=6),
    ]  # fmt: skip
    settings = {"mode": "cascade", "batch_size": 8, "speed": PLAIN}
    whole = evaluate(net, data, attacks, **settings)  # type: ignore[arg-type]
    assert 0 < whole.robust().correct < 16
    for life in range(1 + 2 * 8):  # the clean pass, then eight units for each of two chunks
        kept = MemoryStore()
        with pytest.raises(Cut):
            evaluate(net, data, attacks, store=CutStore(kept, life), **settings)  # type: ignore[arg-type]
        resumed = evaluate(net, data, attacks, store=kept, **settings)  # type: ignore[arg-type]
        for one, two in zip(whole.attacks, resumed.attacks, strict=True):
            assert (one.verdicts["digest"] == two.verdicts["digest"]).all(), f"cut in save {life}"


def test_squares_shrink_as_published() -> None:
    clean = torch.zeros(1, 3, 32, 32)
    sides = Square().side(torch.tensor([0, 10, 11, 51, 201, 501, 1001, 2001, 4001]), clean)
    assert sides.tolist() == [29, 29, 20, 14, 10, 7, 5, 4, 3]  # round(32 sqrt(0.8 / 2^k))
    assert len(HALVINGS) == 9


def test_targeted_runs_take_the_likeliest_classes_in_turn() -> None:
    net, x = LinearNet(classes=5).eval(), images(4)
    y = decisions(net, x)
    oracle = Oracle(Classifier(net), speed=PLAIN)
    attack, _ = APGD(objective=losses.dlr, targets=9).for_classes(5)
    assert attack.restarts == 4
    order = net(x).argsort(1, descending=True)
    for rank in range(4):
        state = attack.init(oracle, x, y, torch.arange(4), Rng(0, "apgd-t", rank))
        assert torch.equal(state.y[:, 1], order[:, rank + 1])


def test_standard_is_autoattack() -> None:
    attacks = suite("standard", Threat(eps=8 / 255))
    assert [attack.name for attack in attacks] == ["apgd-ce", "apgd-t", "fab-t", "square"]
    assert [attack.steps for attack in attacks] == [100, 100, 100, 5000]
    assert [attack.restarts for attack in attacks] == [1, 9, 9, 1]
    assert (preset("standard").mode, preset("standard").precision) == ("cascade", "tf32")
    assert preset("paper").mode == "independent"
    assert preset("pgd, standard,fast") == preset("standard")
    with pytest.raises(ValueError, match="restarts and step sizes are for pgd attacks, got 'standard'"):
        suite("standard", restarts=3)
    assert [attack.coarsest for attack in attacks] == ["bf16", "bf16", "fp16", "fp16"]


def test_searches_on_differences_of_logits_are_not_in_bf16() -> None:
    net, x = SmallConvNet().eval(), images(4, (3, 8, 8))
    seen: list[torch.dtype] = []
    handle = net.head.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].dtype))
    evaluate(net, (x, decisions(net, x)), [Square(steps=3)], speed=Speed(precision="bf16"))
    handle.remove()
    assert set(seen) == {torch.float32}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: APGD(steps=0), "steps must be >= 1, got 0"),
        (lambda: APGD(rho=2), "rho must be above 0 and at most 1, got 2"),
        (lambda: FAB(targets=0), "targets must be >= 1, got 0"),
        (lambda: Square(share=0), "share must be above 0 and at most 1, got 0"),
        (lambda: SPSA(rate=-1), "rate must be finite and > 0, got -1"),
        (lambda: RayS(threat=L2), "RayS is an attack under linf, got l2"),
    ],
)
def test_bad_settings_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
