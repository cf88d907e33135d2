"""PGD against closed-form optima, hand-computed steps, and attacks that must be caught."""

import pytest
import torch

from helpers import (
    DoesNothing,
    IgnoresSeed,
    LinearNet,
    Oversteps,
    SmallConvNet,
    decisions,
    images,
    worst_margin,
)
from scaleproof import PGD, Rng, Speed, Threat, attack_batch, evaluate, fgsm, losses, si_pgd
from scaleproof.attacks import perturb
from scaleproof.attacks.pgd import likeliest_wrong
from scaleproof.losses import margin
from scaleproof.models import Classifier
from scaleproof.oracle import Oracle

LINF, L2 = Threat(norm="linf", eps=0.05), Threat(norm="l2", eps=0.3)
OBJECTIVES = {
    "ce": losses.cross_entropy,
    "cw": losses.cw_margin,
    "dlr falls back": losses.dlr,
    "probability margin": losses.probability_margin,
    "standardised falls back": losses.standardised_cross_entropy(),
}


def linear_case(seed: int = 0) -> tuple[LinearNet, torch.Tensor, torch.Tensor]:
    net, x = LinearNet(seed=seed).eval(), images(200, seed=seed + 1)
    return net, x, decisions(net, x)


def reaches_optimum(attack: PGD, tolerance: float = 1e-4) -> bool:
    """Whether an attack finds the exact worst margin of every image of a two-class linear model."""
    net, x, y = linear_case()
    found = attack_batch(attack, Classifier(net), x, y)
    reached = -margin(net(found).detach(), y).double()
    best = worst_margin(net, x, y, attack.threat)
    return bool(((reached - best).abs() < tolerance * (1 + best.abs())).all())


@pytest.mark.parametrize("threat", [LINF, L2], ids=["linf", "l2"])
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize("start", ["uniform", "none"])
def test_linear_optimum(threat: Threat, objective: losses.Objective, start: str) -> None:
    steps = 12 if threat is LINF else 200  # on a sphere the last degrees take many steps
    attack = PGD(threat=threat, objective=objective, steps=steps, start=start)  # type: ignore[arg-type]
    assert reaches_optimum(attack)


def test_an_attack_that_does_nothing_is_caught() -> None:
    assert not reaches_optimum(DoesNothing(threat=LINF))


def test_too_few_steps_are_caught() -> None:
    assert not reaches_optimum(PGD(threat=LINF, steps=2, start="none"))


def test_broken_images_are_those_that_can_be_broken() -> None:
    net, x, y = linear_case()
    evaluation = evaluate(net, (x, y), [PGD(threat=LINF), si_pgd(LINF)])
    breakable = (worst_margin(net, x, y, LINF) < 0).numpy()
    assert 0.1 < breakable.mean() < 0.9
    assert (evaluation.attacks[0].broken() == breakable).all()
    assert not (evaluation.attacks[1].broken() & ~breakable).any()  # nothing is broken that cannot be
    assert evaluation.robust().accuracy == pytest.approx(1 - breakable.mean())


@pytest.mark.parametrize("threat", [LINF, L2], ids=["linf", "l2"])
def test_an_excess_of_a_millionth_is_refused(threat: Threat) -> None:
    net, x, y = linear_case()
    evaluate(net, (x, y), [Oversteps(threat=threat, excess=0.0)])
    with pytest.raises(ValueError, match=r"attack 'oversteps' broke its own rules: .* must be at most"):
        evaluate(net, (x, y), [Oversteps(threat=threat, excess=1e-6)])


def same_twice(attack: PGD) -> bool:
    net, x, y = linear_case()
    runs = [evaluate(net, (x, y), [attack]).attacks[0].verdicts["digest"] for _ in range(2)]
    return bool((runs[0] == runs[1]).all())


def test_an_attack_that_ignores_the_seed_is_caught() -> None:
    attack = {"threat": LINF, "steps": 1, "step_size": 0.001}
    assert same_twice(PGD(**attack))  # type: ignore[arg-type]
    assert not same_twice(IgnoresSeed(**attack))  # type: ignore[arg-type]


def test_seeds_and_restarts_differ() -> None:
    net, x, y = linear_case()
    attack = PGD(threat=LINF, steps=1, step_size=0.001, restarts=2)
    one, two = (evaluate(net, (x, y), [attack], seed=seed).attacks[0].verdicts["digest"] for seed in (0, 1))
    assert not (one == two).any()
    assert not (one[0] == one[1]).any()


def test_one_hand_computed_step() -> None:
    """x = (.5, .5), W = ((1, 0), (0, 1)), y = 0: the loss grows along (-, +)."""
    net = LinearNet(2, (1, 1, 2)).eval()
    with torch.no_grad():
        net.head.weight.copy_(torch.eye(2))
        net.head.bias.zero_()
    x, y = torch.tensor([[[[0.5, 0.5]]]]), torch.tensor([0])
    classifier = Classifier(net)
    step = PGD(threat=Threat(eps=0.1), steps=1, start="none")
    assert attack_batch(step, classifier, x, y).flatten().tolist() == pytest.approx([0.475, 0.525])
    one = attack_batch(fgsm(Threat(eps=0.1)), classifier, x, y)
    assert one.flatten().tolist() == pytest.approx([0.4, 0.6])
    round_step = PGD(threat=Threat(norm="l2", eps=0.1), steps=1, step_size=0.1, start="none")
    assert attack_batch(round_step, classifier, x, y).flatten().tolist() == pytest.approx(
        [0.5 - 0.1 / 2**0.5, 0.5 + 0.1 / 2**0.5], abs=1e-5
    )


def test_best_iterate_is_never_worse_than_the_last() -> None:
    net, x = SmallConvNet().eval(), images(40, (3, 8, 8))
    y, classifier = decisions(net, x), Classifier(net)
    for objective in (losses.cross_entropy, losses.cosine_cross_entropy()):
        last, best = (
            attack_batch(
                PGD(objective=objective, steps=7, step_size=16 / 255, keep=keep),  # type: ignore[arg-type]
                classifier,
                x,
                y,
                speed=Speed(precision="float32"),
            )
            for keep in ("last", "best")
        )
        values = [objective(classifier.outputs(found), y) for found in (last, best)]
        broken = [net(found).argmax(1) != y for found in (last, best)]
        better = (values[1] >= values[0] - 1e-5) | (broken[1] & ~broken[0])
        assert bool(better.all())
        assert bool((values[1] > values[0]).any())


@pytest.mark.parametrize(
    "objective", [losses.cross_entropy, losses.cw_margin, losses.dlr, losses.cosine_cross_entropy()]
)
def test_targets_are_approached(objective: losses.Objective) -> None:
    net, x = LinearNet(6).eval(), images(60)
    y = decisions(net, x)
    attack = PGD(threat=Threat(eps=0.02), objective=objective, target=2, steps=10)
    found = attack_batch(attack, Classifier(net), x, y)
    target = likeliest_wrong(net(x).detach(), y, 2)
    gap = [
        (logits.gather(1, target[:, None]) - logits.gather(1, y[:, None])).detach()
        for logits in (net(x), net(found))
    ]
    assert bool((gap[1] > gap[0]).float().mean() > 0.95)


def test_likeliest_wrong() -> None:
    logits, y = torch.tensor([[3.0, 1.0, 2.0, 0.0]] * 2), torch.tensor([0, 2])
    assert likeliest_wrong(logits, y, 1).tolist() == [2, 0]
    assert likeliest_wrong(logits, y, 3).tolist() == [3, 3]


@pytest.mark.parametrize("classes", [2, 3, 4, 10])
def test_any_number_of_classes(classes: int) -> None:
    net, x = LinearNet(classes).eval(), images(20)
    every = [
        PGD(threat=LINF, objective=objective, target=target, name=f"{objective.name}-{target}")
        for objective in (*OBJECTIVES.values(), losses.cosine_cross_entropy())
        for target in (None, 1)
    ]
    evaluation = evaluate(net, (x, decisions(net, x)), every)
    notes = {result.name: result.notes for result in evaluation.attacks}
    assert bool(notes["dlr-None"]) == (classes < 3)
    assert bool(notes["dlr-1"]) == (classes < 4)
    assert not notes["cross_entropy-None"]


def test_restarts_only_help() -> None:
    net, x = SmallConvNet().eval(), images(50, (3, 8, 8))
    attack = PGD(threat=Threat(eps=0.01), steps=1, step_size=0.002, restarts=4)
    evaluation = evaluate(net, (x, decisions(net, x)), [attack])
    by_restarts = [evaluation.robust("pgd", count).correct for count in range(1, 5)]
    assert by_restarts == sorted(by_restarts, reverse=True)
    assert by_restarts[-1] < by_restarts[0], "some image needs another start"


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    net, x, y = linear_case()
    oracle, attack, index = (
        Oracle(Classifier(net), speed=Speed(precision="float32")),
        PGD(threat=LINF),
        torch.arange(200),
    )
    together = perturb(attack, oracle, x, y, index, Rng(0, "pgd"))
    alone = perturb(attack, oracle, x[7:8], y[7:8], index[7:8], Rng(0, "pgd"))
    torch.testing.assert_close(together[7:8], alone)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"steps": -1}, "steps must be >= 0, got -1"),
        ({"restarts": 0}, "restarts must be >= 1, got 0"),
        ({"start": "normal"}, "start must be one of uniform, none, got 'normal'"),
        ({"keep": "first"}, "keep must be one of last, best, got 'first'"),
        ({"step_size": -0.1}, "step_size must be finite and >= 0"),
        ({"target": 0}, "target must be >= 1"),
    ],
)
def test_bad_settings(words: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PGD(**words)  # type: ignore[arg-type]


def test_a_target_beyond_the_classes() -> None:
    with pytest.raises(ValueError, match="target must be below the number of classes 2, got 2"):
        PGD(target=2).for_classes(2)


def test_a_batch_is_checked_and_the_model_left_alone() -> None:
    net, x, y = linear_case()
    with pytest.raises(ValueError, match=r"pixels must be in \[0, 1\]"):
        attack_batch(PGD(), net, x + 1, y)
    with pytest.raises(ValueError, match="labels must be in 0 to 1, got 2"):
        attack_batch(PGD(), net, x, y + 1)
    trained = torch.nn.Sequential(torch.nn.BatchNorm2d(3), net)
    before = trained[0].running_mean.clone()
    found = attack_batch(PGD(threat=LINF, steps=2), trained, x, y.int())
    assert LINF.violation(found, x) is None
    assert torch.equal(trained[0].running_mean, before)
