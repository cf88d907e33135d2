"""Other people's attacks take part in an evaluation and are judged like our own."""

import json
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foreign_attacks import far, their_pgd
from helpers import LinearNet, SmallConvNet, decisions, images, worst_margin
from scaleproof import PGD, Evaluation, Rng, Threat, attack_batch, evaluate, load, load_model, suite
from scaleproof.attacks.adapters import foolbox_attack, named_attack, torchattacks_attack
from scaleproof.attacks.foreign import Foreign, seeded, tidied
from scaleproof.attacks.loop import Packing, perturb
from scaleproof.models import Classifier
from scaleproof.oracle import Oracle
from scaleproof.store import FolderStore
from test_cli import run as scaleproof

SMALL = Threat(eps=0.02)


def small() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    net, x = SmallConvNet().eval(), images(24, (3, 8, 8))
    return net, (x, decisions(net, x))


def foreign(function: Callable[..., object] = their_pgd, **settings: object) -> Foreign:
    return Foreign(function, **{"name": "theirs", "threat": SMALL, **settings})  # type: ignore[arg-type]


def same(left: Evaluation, right: Evaluation) -> bool:
    return all(
        np.array_equal(values, right.arrays()[name], equal_nan=values.dtype.kind == "f")
        for name, values in left.arrays().items()
    )


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


def rude(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    model.train()
    model.requires_grad_(False)
    model(x)  # moves running statistics
    model.classifier.net[0].register_forward_hook(lambda *_: None)  # type: ignore[union-attr, index, operator]
    model.requires_grad_(True)
    F.cross_entropy(model(x), y).backward()
    x.zero_()
    y.zero_()
    return x + 0.01 * 0


def test_the_model_and_the_images_are_as_before() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)).eval()
    net[0].weight.requires_grad_(False)
    net[3].bias.grad = torch.ones(3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x = images(6, (3, 8, 8))
    y = decisions(net, x)
    copies = x.clone(), y.clone()
    with pytest.raises(ValueError, match="attack 'theirs' broke its own rules: the linf size"):
        evaluate(net, (x, y), [foreign(rude)])
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [value.requires_grad for value in net.parameters()] == [False, True, True, True, True, True]
    assert [value.grad is None for value in net.parameters()] == [True] * 5 + [False]
    assert torch.equal(net[3].bias.grad, torch.ones(3))
    assert not any(module.training or module._forward_hooks for module in net.modules())
    assert torch.equal(x, copies[0])
    assert torch.equal(y, copies[1])


def test_changed_weights_are_refused_and_put_back() -> None:
    net, data = small()
    weight = net.head.weight.clone()

    def cheats(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        for parameter in model.parameters():
            parameter.data = parameter.data * 0
        return x

    with pytest.raises(ValueError, match="'theirs' must leave the model's weights alone, it changed 6 of 6"):
        evaluate(net, data, [foreign(cheats)])
    assert torch.equal(net.head.weight, weight)


ANSWERS: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "none": (lambda x: None, "one floating tensor of shape .24, 3, 8, 8., got NoneType"),
    "tuple": (lambda x: (x, True), "got tuple: return the examples alone"),
    "shape": (lambda x: x[:3], r"got shape \(3, 3, 8, 8\)"),
    "bytes": (lambda x: (x * 255).byte(), "got torch.uint8: pixels are in"),
    "array": (lambda x: x.numpy(), "got ndarray"),
    "nan": (lambda x: x * torch.nan, "'theirs' broke its own rules: a pixel is NaN or infinite"),
    "far": (lambda x: far(nn.Identity(), x, x), "the linf size of a perturbation must be at most 0.02"),
    "range": (lambda x: x - 1, "broke its own rules: pixels must be in"),
    "error": (
        lambda x: x.reshape(-1, 7),
        r"'theirs' raised RuntimeError \(test_foreign.py, line \d+\): shape",
    ),
}


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("mode", ["independent", "cascade"])
def test_what_comes_back_is_checked(kind: str, mode: str) -> None:
    (net, data), (answer, message) = small(), ANSWERS[kind]
    with pytest.raises(ValueError, match=message):
        evaluate(net, data, [foreign(lambda model, x, y: answer(x))], mode=mode)  # type: ignore[arg-type]


def test_another_precision_is_converted() -> None:
    net, data = small()
    plain = evaluate(net, data, [foreign(lambda model, x, y: x)])
    double = evaluate(net, data, [foreign(lambda model, x, y: x.double())])
    assert same(plain, double)


@pytest.mark.parametrize("threat", [Threat(eps=0.1), Threat(norm="l2", eps=3.0)])
def test_rounding_is_forgiven_and_nothing_else(threat: Threat) -> None:
    clean = images(4)
    edge = threat.project(clean + 1, clean)
    over = clean + (edge - clean) * (1 + 5e-7)
    assert threat.violation(tidied(over, clean, threat), clean) is None
    assert torch.equal(tidied(edge, clean, threat), edge), "what fits is not touched"
    beyond = clean + (edge - clean) * (1 + 1e-5)
    assert threat.violation(tidied(beyond, clean, threat), clean) is not None
    black = torch.zeros(1, 3, 4, 4)
    assert bool((tidied(black - 1e-7, black, threat) == 0).all())
    assert bool((tidied(black - 1e-5, black, threat) < 0).all())


def test_a_minimal_attack_fails_where_it_leaves_the_budget() -> None:
    net, (x, y) = small()

    def smallest(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return torch.where((y == y[0])[:, None, None, None], far(model, x, y), x + 0.01)

    found = evaluate(net, (x, y), [foreign(smallest, minimal=True)])
    size = found.attacks[0].verdicts["size"][0]
    assert {round(float(value), 4) for value in size} == {0.0, 0.01}
    assert "outside counts as a failure" in found.attacks[0].notes[0]


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


MISTAKES = {
    "name": ({"name": "a/b"}, "letters, digits"),
    "restarts": ({"restarts": 0}, "restarts must be >= 1, got 0"),
    "settings": ({"settings": {"a": torch.ones(1)}}, "settings must be plain data"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_mistakes(kind: str) -> None:
    settings, message = MISTAKES[kind]
    with pytest.raises(ValueError, match=message):
        foreign(**settings)
    with pytest.raises(ValueError, match="must be a callable"):
        Foreign(3, name="x")  # type: ignore[arg-type]


def test_another_source_is_another_run(tmp_path: Path) -> None:
    net, data = small()
    evaluate(net, data, [foreign(lambda model, x, y: x)], store=FolderStore(tmp_path))
    with pytest.raises(ValueError, match="another run"):
        evaluate(net, data, [foreign(lambda model, x, y: x + 0)], store=FolderStore(tmp_path))


def test_attack_batch_takes_it_too() -> None:
    net, (x, y) = small()
    found = attack_batch(foreign(partial(their_pgd, eps=0.02)), net, x, y)
    assert bool((net(found).argmax(1) != y).any())


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


def test_torchattacks_seeds_follow_ours() -> None:
    pytest.importorskip("torchattacks")
    net, data = small()
    attack = named_attack("torchattacks:Square", SMALL, restarts=2)
    attack.function.settings["n_queries"] = 20  # type: ignore[attr-defined]
    first, again = (evaluate(net, data, [attack]) for _ in range(2))
    assert same(first, again)
    digests = first.attacks[0].verdicts["digest"]
    assert (digests[0] != digests[1]).any(), "restarts are not copies of each other"


WRONG = {
    "torchattacks:PGDD": "which has no 'PGDD'; did you mean 'PGD'",
    "foolbox:LinfPGDAttack": "which has no 'LinfPGDAttack'; did you mean 'Linf",
    "no_such_module:attack": "no module 'no_such_module' here or installed",
    "foreign_attacks:NOT_A_FUNCTION": "must name a function .model, x, y. -> x_adv, got a int",
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
