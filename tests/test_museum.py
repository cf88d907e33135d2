"""The museum: every broken defense is caught by the check whose business it is, and opened by its key."""

from __future__ import annotations

import pytest
from rich.console import Console

from scaleproof import Classifier, Threat, load, load_model
from scaleproof.checks import failed
from scaleproof.cli.museum import show
from scaleproof.museum import ANNEX, HEALTHY, HELD_BACK, ROOMS, SETTING, Room, Visit, examined, room, visit

COUNT = 40
CASES = [
    pytest.param(
        found, strength, id=f"{found.name}-{strength:g}", marks=() if number == 0 else pytest.mark.long
    )
    for found in ROOMS
    for number, strength in enumerate(found.strengths)
]


def test_fourteen_rooms_in_two_halves() -> None:
    assert len(ROOMS) >= 14
    assert len({found.name for found in ROOMS}) == len(ROOMS)
    assert abs(len(SETTING) - len(HELD_BACK)) <= 1
    assert all(len(found.strengths) >= 2 for found in ROOMS)
    with pytest.raises(ValueError, match=r"is called 'cellar'\. There are quantisation"):
        room("cellar")


@pytest.mark.parametrize(("found", "strength"), CASES)
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
        assert seen.clean is None or seen.clean > 0.2  # it is a classifier at all


QUICK = ("half-precision", "adaptive-norm", "shifted-classes")
OTHERWISE = {"noise-detector", "anti-adversary"}  # another check than expected catches them
IN_THE_ANNEX = [
    pytest.param(found, id=found.name, marks=() if found.name in QUICK else pytest.mark.long)
    for found in ANNEX
]


def test_an_annex_of_other_rooms() -> None:
    names = [found.name for found in (*ROOMS, *ANNEX)]
    assert len(set(names)) == len(names)
    assert len(ANNEX) == 20  # as the documents say
    assert all(len(set(found.strengths)) == 2 for found in ANNEX)
    assert room("tanh", ANNEX).caught_by == "gradient-zero"
    with pytest.raises(ValueError, match="no room of this wing of the museum is called 'tanh'"):
        room("tanh")


@pytest.mark.parametrize("found", IN_THE_ANNEX)
def test_rooms_of_the_annex_are_caught_and_opened(found: Room) -> None:
    net, images = load_model("undefended").classifier.net, load("sample").first(COUNT)
    seen = visit(found, found.strengths[-1], net, images, Threat(), surrogate=Classifier(net))
    assert failed(seen.checks)
    assert seen.caught or found.name in OTHERWISE, failed(seen.checks)
    assert (seen.after is None) == (found.key is None)
    assert seen.after is None or seen.after < 0.1, seen


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_networks_are_not_accused(name: str) -> None:
    checks = examined(name).checks
    assert failed(checks) == (), [(check.name, check.value) for check in checks if not check.passed]
    assert all(check.passed for check in checks)  # every question could be asked


@pytest.mark.parametrize("wing", [ROOMS, ANNEX])
@pytest.mark.parametrize("width", [80, 200])
def test_no_word_of_the_table_is_broken(wing: tuple[Room, ...], width: int) -> None:
    visits = [
        Visit(
            room=one.name,
            words=one.words,
            strength=one.strengths[-1],
            clean=1.0,
            before=1.0,
            checks=(),
            caught_by=one.caught_by,
            key=None if one.key is None else one.key.words,
            after=1.0,
        )
        for one in wing
    ]
    console = Console(width=width)
    with console.capture() as shown:
        show(visits, 100, console)
    text = shown.get()
    for found in visits:
        assert f"{found.room} " in text
        assert found.caught_by in text
        assert (found.key or "nothing is hidden") in text
    assert ("Key of " in text) == (width == 80)
    assert max(len(line) for line in text.splitlines() if "│" in line) <= width
