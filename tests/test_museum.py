"""The museum: every broken defense is caught by the check whose business it is, and opened by its key."""

from __future__ import annotations

import math

import pytest

from scaleproof import Threat, load, load_model
from scaleproof.checks import examine, failed
from scaleproof.museum import HELD_BACK, ROOMS, SETTING, Room, room, visit

COUNT = 40
CASES = [(found, strength) for found in ROOMS for strength in found.strengths]
NAMES = [f"{found.name}-{strength:g}" for found, strength in CASES]
QUICK = {found.strengths[-1] for found in ROOMS}


def test_fourteen_rooms_in_two_halves() -> None:
    assert len(ROOMS) >= 14
    assert len({found.name for found in ROOMS}) == len(ROOMS)
    assert abs(len(SETTING) - len(HELD_BACK)) <= 1
    assert all(len(found.strengths) >= 2 for found in ROOMS)
    with pytest.raises(ValueError, match="no room of the museum is called 'cellar'; there are quantisation"):
        room("cellar")


@pytest.mark.parametrize(("found", "strength"), CASES, ids=NAMES)
def test_caught_and_opened(found: Room, strength: float) -> None:
    net, images = load_model("undefended").classifier.net, load("sample").first(COUNT)
    seen = visit(found, strength, net, images, Threat())
    assert seen.caught, (
        failed(seen.checks),
        [(c.name, c.value) for c in seen.checks if c.name == found.caught_by],
    )
    if found.key is not None:
        assert seen.after is not None
        assert seen.after < 0.1, seen
        assert math.isnan(seen.clean) or seen.clean > 0.2  # it is a classifier at all


@pytest.mark.parametrize("name", ["demo", "undefended"])
def test_healthy_networks_are_not_accused(name: str) -> None:
    surrogate = load_model("undefended").classifier
    checks = examine(load_model(name).classifier, load("sample"), surrogate=surrogate)
    assert failed(checks) == ()
    assert all(check.passed for check in checks)  # every question could be asked
