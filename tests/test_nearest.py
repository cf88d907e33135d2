"""Scouting beside its closed form, and attacks that search the nearest images alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers import LinearNet, SmallConvNet, decisions, images
from scaleproof import PGD, Evaluation, Threat, evaluate, losses
from scaleproof.attacks import APGD, FAB, SPSA, Nearest, Sampled, Scouting
from scaleproof.attacks.sampled import Left, stages
from scaleproof.speed import PLAIN
from scaleproof.store import FolderStore

LINF, L2 = Threat(eps=0.05), Threat(norm="l2", eps=0.15)  # inside the pixel range of the images
SMALL = Threat(eps=0.004)
FIRST = PGD(threat=SMALL, steps=2, name="first")
SCOUTS = Scouting(threat=SMALL, among=1)  # leaves something to find
SEARCH = APGD(threat=SMALL, objective=losses.cw_margin, steps=10, targets=3, name="search", label="Search")
CASCADE = (FIRST, SCOUTS, Nearest(SEARCH, share=0.25))


def case(count: int = 60) -> tuple[torch.nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    net, x = SmallConvNet().eval(), images(count, (3, 8, 8))
    return net, (x, decisions(net, x))


def searched(**options: object) -> Evaluation:
    net, data = case()
    return evaluate(net, data, CASCADE, mode="cascade", speed=PLAIN, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("threat", [LINF, L2], ids=["linf", "l2"])
def test_scouting_gets_as_far_as_derived_by_hand(threat: Threat) -> None:
    """On a linear model: the best margin that a step of size eps towards any class has, in float64."""
    net, x = LinearNet(classes=6).eval(), images(50)
    y, rows = decisions(net, x), torch.arange(50)
    weight, bias = net.head.weight.detach().double(), net.head.bias.detach().double()
    best = torch.full((50,), -torch.inf, dtype=torch.float64)
    for target in range(6):
        direction = weight[target] - weight[y]
        unit = direction.sign() if threat.norm == "linf" else direction / direction.norm(dim=1, keepdim=True)
        logits = (x.flatten(1).double() + threat.eps * unit.nan_to_num()) @ weight.T + bias
        own = logits[rows, y].clone()
        margin = logits.scatter(1, y[:, None], -torch.inf).amax(1) - own
        best = torch.where(y == target, best, torch.maximum(best, margin))
    found = evaluate(net, (x, y), Scouting(threat=threat), mode="independent", speed=PLAIN).attacks[0]
    np.testing.assert_allclose(found.verdicts["margin"][0], best, rtol=1e-4, atol=1e-4)
    assert 0 < found.broken().sum() < 50
    assert found.backwards == 5 * 50, "one for each wrong class"


def test_the_nearest_are_those_with_the_largest_margins() -> None:
    rows = np.array([2, 3, 5, 8, 9])
    margins = np.array([9, 9, -3.0, -1.0, 9, -2.0, 9, 9, -4.0, -1.0])
    left = Left(rows=rows, margins={"scouting": margins}, total=10, seed=0)
    for share, wanted in ((0.2, [3]), (0.4, [3, 9]), (0.41, [3, 5, 9]), (1, [2, 3, 5, 8, 9])):
        assert rows[Nearest(SEARCH, share=share).takes(left)].tolist() == wanted


def test_only_the_nearest_of_what_is_left_are_searched() -> None:
    found = searched()
    first, scouts, search = found.attacks
    left = found.clean_correct & ~first.broken() & ~scouts.broken()
    looked = search.verdicts["attacked"].any(0)
    assert looked.sum() == np.ceil(0.25 * left.sum()) >= 5
    assert not looked[~left].any()
    margin = scouts.verdicts["margin"][0]
    assert margin[looked].min() >= margin[left & ~looked].max()
    assert search.broken().any()
    assert not search.broken()[~looked].any()


def test_an_image_is_as_near_as_the_best_restart_brought_it() -> None:
    net, data = case()
    attacks = (replace(FIRST, restarts=3), Nearest(SEARCH, share=0.25, by="first"))
    first, search = evaluate(net, data, attacks, mode="cascade", speed=PLAIN).attacks
    margin, left = first.verdicts["margin"], first.verdicts["attacked"].all(0) & ~first.broken()
    looked = search.verdicts["attacked"].any(0)
    assert looked.sum() == np.ceil(0.25 * left.sum()) >= 5
    best = margin.max(0)
    assert best[looked].min() >= best[left & ~looked].max()
    assert all(one[looked].min() < one[left & ~looked].max() for one in margin), "no restart alone says so"


def test_a_search_of_all_is_the_search() -> None:
    net, data = case()
    both = [
        evaluate(net, data, (FIRST, SCOUTS, last), mode="cascade", speed=PLAIN).attacks[2]
        for last in (Nearest(replace(SEARCH, name="s"), share=1), replace(SEARCH, name="s-nearest"))
    ]
    assert (both[0].broken() == both[1].broken()).all()


def test_batch_sizes_and_interruptions_do_not_matter(tmp_path: Path) -> None:
    whole = searched(store=FolderStore(tmp_path))
    for path in sorted(tmp_path.glob("*search*")):
        path.unlink()
    for other in (searched(store=FolderStore(tmp_path)), searched(batch_size=7), searched(batch_size=1)):
        for one, two in zip(whole.attacks, other.attacks, strict=True):
            assert (one.broken() == two.broken()).all()
            assert (one.verdicts["attacked"] == two.verdicts["attacked"]).all()


def test_the_order_of_stages_and_what_the_record_says() -> None:
    audit, near = Sampled(SEARCH, count=30), Nearest(SEARCH, share=0.05)
    found = stages([audit, near, FIRST, SCOUTS])
    assert [[one.name for one in stage] for stage in found] == [
        ["first", "scouting"],
        ["search-nearest"],
        ["search-audit"],
    ]
    assert near.describe() == {**SEARCH.describe(), "nearest": 0.05, "by": "scouting"}
    assert near.label == "Search (nearest 5%)"


@pytest.mark.parametrize(
    ("attacks", "mode", "message"),
    [
        (CASCADE, "independent", "search-nearest takes the nearest of what other attacks leave: give mode='cascade'"),
        ((FIRST, Nearest(SEARCH)), "cascade", "that 'scouting' brought nearest: give that attack too, got first"),
        ((Nearest(SEARCH),), "cascade", "give that attack too, got none"),
        ((SCOUTS, Nearest(SEARCH), FIRST), "cascade", "search-nearest runs when all attacks on all images have"),
        ((*CASCADE, Sampled(FIRST)), "cascade", "search-nearest and the audit first-audit both come last"),
    ],
)  # fmt: skip
def test_a_search_of_the_nearest_needs_somebody_who_says_which(
    attacks: tuple[object, ...], mode: str, message: str
) -> None:
    net, data = case(5)
    with pytest.raises(ValueError, match=message):
        evaluate(net, data, attacks, mode=mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("outer", [Nearest, Sampled])
@pytest.mark.parametrize("inner", [Nearest, Sampled])
def test_some_of_some_images_are_refused(outer: type[Nearest], inner: type[Nearest]) -> None:
    with pytest.raises(ValueError, match="an attack on some images cannot be on some of them again"):
        outer(inner(SEARCH))


@pytest.mark.parametrize("kind", [Nearest, Sampled])
def test_a_search_of_some_images_needs_the_numbers_of_the_whole_one(kind: type[Nearest]) -> None:
    attacks = (FIRST, FAB(), SPSA())
    assert [kind(attack).coarsest for attack in attacks] == ["bf16", "fp16", "float32"]


def test_a_share_is_no_more_than_it_says() -> None:
    for share, count, wanted in ((0.07, 100, 7), (0.14, 50, 7), (0.55, 100, 55), (0.07, 101, 8)):
        left = Left(rows=np.arange(count), margins={"scouting": np.zeros(count)}, total=count, seed=0)
        assert Nearest(SEARCH, share=share).takes(left).sum() == wanted


class Brittle(LinearNet):
    """No numbers where a pixel is bright."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.amax((1, 2, 3))[:, None] > 0.8, torch.nan, super().forward(x))


def test_answers_that_are_no_numbers_are_kept_as_broken() -> None:
    net, x = Brittle(classes=6).eval(), images(40)
    y, found = decisions(net, x), {}
    for attack in (Scouting(threat=LINF), PGD(threat=LINF, keep="best")):
        broken = evaluate(net, (x, y), attack, mode="independent", speed=PLAIN).attacks[0].broken()
        found[attack.name] = set(np.flatnonzero(broken).tolist())
    assert len(found["scouting"]) >= 0.9 * len(found["pgd"]) > 20


@pytest.mark.parametrize("share", [0, -0.1, 1.5, float("nan")])
def test_shares_are_shares(share: float) -> None:
    with pytest.raises(ValueError, match="share of the nearest images must be above 0 and at most 1"):
        Nearest(SEARCH, share=share)
