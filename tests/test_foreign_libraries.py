"""Attacks of torchattacks and foolbox, and functions by name, in Python and on the command line."""

import json
import re
from pathlib import Path

import pytest

from foreign_helpers import SMALL, same, small
from scaleproof import PGD, Threat, evaluate, load, load_model, suite
from scaleproof.attacks.adapters import foolbox_attack, named_attack, torchattacks_attack
from test_cli import run as scaleproof


def test_torchattacks_and_foolbox_agree_with_ours() -> None:
    torchattacks = pytest.importorskip("torchattacks")
    foolbox = named_attack("foolbox:LinfPGD", steps=10) if have("foolbox") else pytest.skip("needs foolbox")
    model, data = load_model("demo").classifier, load("sample").first(100)
    theirs = torchattacks_attack(
        lambda model: torchattacks.PGD(model, eps=8 / 255, alpha=2 / 255, steps=10), name="theirs"
    )
    found = evaluate(model, data, [PGD(steps=10), theirs, foolbox])
    ours, *others = (found.robust(result.name).correct for result in found.attacks)
    assert 0 < ours < found.clean.correct
    assert all(abs(other - ours) <= 2 for other in others), (ours, others)
    assert [result.backwards for result in found.attacks] == [found.clean.correct * 10] * 3


def have(package: str) -> bool:
    pytest.importorskip(package)
    return True


def test_foolbox_needs_the_same_norm() -> None:
    pytest.importorskip("foolbox")
    with pytest.raises(
        ValueError, match="the threat is l2, LinfProjectedGradientDescentAttack measures with p = inf"
    ):
        named_attack("foolbox:LinfPGD", Threat(norm="l2", eps=0.5))
    net, data = small()
    l2 = Threat(norm="l2", eps=0.25)
    for spec in ("foolbox:L2PGD", "torchattacks:PGDL2", "foolbox:L2DeepFoolAttack", "torchattacks:DeepFool"):
        found = evaluate(net, data, [named_attack(spec, l2, steps=5)])
        assert found.robust().correct < 24, spec


def test_foolbox_attacks_of_their_own_making() -> None:
    attacks = pytest.importorskip("foolbox").attacks
    net, data = small()
    attack = foolbox_attack(attacks.LinfFastGradientAttack(), name="fgsm-foolbox", threat=SMALL)
    found = evaluate(net, data, [attack, *suite("fgsm", SMALL)])
    assert found.robust("fgsm-foolbox").correct == found.robust("fgsm").correct
    assert attack.describe()["settings"]["foolbox"].startswith("LinfFastGradientAttack(")  # type: ignore[index]


def test_settings_reach_an_attack_by_its_signature() -> None:
    pytest.importorskip("torchattacks")
    threat = Threat(eps=0.1)
    taken = {
        name: named_attack(name, threat, steps=7).settings
        for name in ("torchattacks:PGD", "torchattacks:APGD")
    }
    assert {k: taken["torchattacks:PGD"][k] for k in ("eps", "steps", "alpha")} == {
        "eps": 0.1,
        "steps": 7,
        "alpha": 0.025,
    }
    assert taken["torchattacks:APGD"]["norm"] == "Linf"
    assert "steps" not in taken["torchattacks:APGD"], "steps go with a step size"
    assert named_attack("torchattacks:CW").minimal
    assert named_attack("foreign_attacks:their_pgd", threat).settings == {
        "spec": "foreign_attacks:their_pgd",
        "eps": 0.1,
    }


def test_a_single_step_keeps_its_own_size_unless_another_is_asked_for() -> None:
    """That of FFGSM is larger than eps: with the quarter of eps that many steps take it would hardly move."""
    pytest.importorskip("torchattacks")
    usual, asked = (
        named_attack("torchattacks:FFGSM", Threat(eps=0.1), step_size=size) for size in (None, 0.05)
    )
    assert "alpha" not in usual.settings
    assert asked.settings["alpha"] == 0.05


def test_torchattacks_seeds_follow_ours() -> None:
    pytest.importorskip("torchattacks")
    net, data = small()
    attack = named_attack("torchattacks:Square", SMALL, restarts=2)
    attack.function.settings["n_queries"] = 20  # type: ignore[attr-defined]
    first, again = (evaluate(net, data, [attack]) for _ in range(2))
    assert same(first, again)
    digests = first.attacks[0].verdicts["digest"]
    assert (digests[0] != digests[1]).any(), "restarts are not copies of each other"


@pytest.mark.parametrize(("name", "usual"), [("Own", 4), ("made_of", 6)])
def test_attacks_of_our_own_kind_keep_their_steps_unless_others_are_asked_for(name: str, usual: int) -> None:
    spec = f"foreign_attacks:{name}"
    assert [attack.steps for attack in suite(f"pgd,{spec}")] == [20, usual]
    assert [attack.steps for attack in suite(f"pgd,{spec}", steps=9)] == [9, 9]
    assert [attack.restarts for attack in suite("foreign_attacks:Own", restarts=2)] == [2]
    assert [attack.steps for attack in suite("foreign_attacks:READY", steps=9)] == [3], "it is made already"


WRONG = {
    "foreign_attacks:makes_none": "must give an Attack, got a int",
    "foreign_attacks:breaks": "'foreign_attacks:breaks' raised KeyError .foreign_attacks.py, line",
    "foreign_attacks:with_threat": "must be callable as .model, x, y.: missing a required argument: 'threat'",
    "foreign_attacks:Needy": "'foreign_attacks:Needy' raised TypeError .*strength",
    "torchattacks:PGDD": "which has no 'PGDD'; did you mean 'PGD'",
    "foolbox:LinfPGDAttack": "which has no 'LinfPGDAttack'; did you mean 'Linf",
    "no_such_module:attack": "no module 'no_such_module' here or installed",
    "foreign_attacks:NOT_A_FUNCTION": "must name a function .*, an Attack, or what makes one .*, got a int",
    "foreign_attacks:Tensor": "must name a function",
    "os:getcwd": "must be callable as .model, x, y.: too many positional arguments",
    ":x": "torchattacks:NAME, foolbox:NAME or module:function, got ':x'",
}


@pytest.mark.parametrize("spec", WRONG)
def test_wrong_specs(spec: str) -> None:
    pytest.importorskip(spec.partition(":")[0] if spec.startswith(("torchattacks", "foolbox")) else "torch")
    with pytest.raises(ValueError, match=WRONG[spec]):
        suite(f"pgd,{spec}")


def test_on_the_command_line_beside_our_own(tmp_path: Path) -> None:
    pytest.importorskip("torchattacks"), pytest.importorskip("foolbox")
    (tmp_path / "mine.py").write_text((Path(__file__).parent / "foreign_attacks.py").read_text())
    words = ["evaluate", "demo", "--limit", 16, "--steps", 3, "--device", "cpu", "--out", "x", "--attacks"]
    done = scaleproof(*words, "pgd,torchattacks:PGD,foolbox:LinfPGD,mine:their_pgd", cwd=tmp_path)
    assert "torchattacks PGD" in done.stdout
    attacks = json.loads((tmp_path / "x" / "evaluation.json").read_text())["attacks"]
    assert [attack["name"] for attack in attacks] == [
        *("pgd", "torchattacks-PGD", "foolbox-LinfPGD", "mine-their_pgd"),
    ]
    assert [attack["backwards"] // attacks[0]["attacked"] for attack in attacks] == [3, 3, 3, 10]
    assert "foolbox LinfPGD" in (tmp_path / "x" / "report.md").read_text()
    words[-2] = "y"
    done = scaleproof(*words, "mine:far", cwd=tmp_path, code=2)
    assert "attack 'mine-far' broke its own rules" in done.stderr


def test_the_page_on_other_people_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).resolve().parents[1] / "docs" / "interoperate.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile("\n".join(blocks), page.name, "exec"), {"__name__": "page"})
    assert "their-fgsm" in capsys.readouterr().out


def test_attacks_of_our_own_kind_by_name() -> None:
    threat = Threat(eps=0.01)
    own = named_attack("foreign_attacks:Own", threat)
    assert (own.name, own.steps, own.threat) == ("own", 4, threat)
    assert named_attack("foreign_attacks:HandsOn", threat).threat == threat
    assert named_attack("foreign_attacks:READY", Threat()).name == "ready"
    made = named_attack("foreign_attacks:made_of", threat)
    assert (made.name, made.steps, made.threat) == ("made", 6, threat)
    with pytest.raises(ValueError, match=r"'foreign_attacks:READY' attacks within .*the others within"):
        named_attack("foreign_attacks:READY", threat)
