"""Evaluations: verdicts that add up, batch sizes that do not matter, bad input that is refused."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import LinearNet, SmallConvNet, decisions, images
from scaleproof import Classifier, Threat, evaluate, suite
from scaleproof.attacks import PGD
from scaleproof.evaluation import Evaluation, Share, wilson
from scaleproof.progress import Progress
from scaleproof.store import MemoryStore

PAPER = suite("paper", Threat(eps=0.02), steps=5)


def case(count: int = 60, wrong: int = 6) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """A small network and images, the first few of which it gets wrong."""
    net, x = SmallConvNet(5).eval(), images(count, (3, 8, 8))
    y = decisions(net, x)
    y[:wrong] = (y[:wrong] + 1) % 5
    return net, (x, y)


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    net, data = case()
    return evaluate(net, data, suite("paper", Threat(eps=0.02), steps=5, restarts=3))


def test_shares_follow_from_the_verdicts(evaluation: Evaluation) -> None:
    assert evaluation.clean.correct == 54
    assert evaluation.count == 60
    alive = evaluation.clean_correct.copy()
    for result in evaluation.attacks:
        broken = result.verdicts["broken"]
        assert broken.shape == (3, 60)
        assert not broken[:, :6].any(), "images already wrong are not attacked"
        assert result.attacked == 54
        assert (broken == (result.verdicts["margin"] > 0))[:, 6:].all()
        assert (broken == (result.verdicts["prediction"] != evaluation.labels))[:, 6:].all()
        assert np.isnan(result.verdicts["size"][:, :6]).all()
        assert result.verdicts["size"][:, 6:].max() <= 0.02 + 1e-6
        assert evaluation.robust(result.name).correct == 54 - int(broken.any(0).sum())
        assert (result.forwards, result.backwards) == (54 * 3 * 6, 54 * 3 * 5)
        assert result.seconds > 0
        alive &= ~broken.any(0)
    assert evaluation.robust().correct == int(alive.sum())
    assert 0 < evaluation.robust().correct < 54


def test_si_results_carry_the_mismatch(evaluation: Evaluation) -> None:
    assert evaluation.cosine_disagrees is not None
    rows = {row["name"]: row for row in evaluation.as_json()["attacks"]}  # type: ignore[attr-defined]
    assert rows["si-pgd"]["cosine_mismatch"] == pytest.approx(float(evaluation.cosine_disagrees.mean()))
    assert rows["pgd"]["cosine_mismatch"] is None
    net, data = case()
    output = Classifier(net).outputs(data[0])
    expected = (output.cosines.argmax(1) != output.logits.argmax(1)).numpy()
    assert (evaluation.cosine_disagrees == expected).all()


def test_wilson_against_a_published_example() -> None:
    low, high = wilson(8, 10)  # Agresti and Coull's way to write Wilson's interval
    centre, spread = (8 + 1.96**2 / 2) / (10 + 1.96**2), 1.96 / (10 + 1.96**2) * math.sqrt(1.6 + 1.96**2 / 4)
    assert (low, high) == (pytest.approx(centre - spread, abs=1e-4), pytest.approx(centre + spread, abs=1e-4))
    assert wilson(0, 20)[0] == 0
    assert wilson(20, 20)[1] == 1
    assert wilson(0, 0) == (0, 1)
    assert 0.92 < coverage(0.5) < 0.97


def coverage(truth: float, count: int = 100) -> float:
    draws = np.random.default_rng(0).binomial(count, truth, 2000)
    return float(np.mean([low <= truth <= high for low, high in (wilson(int(k), count) for k in draws)]))


def test_batch_sizes_give_the_same_verdicts() -> None:
    """Random numbers are identical; verdicts may differ where float32 sums round another way, and then by a hair."""
    net, data = case(150, 0)
    runs = {size: evaluate(net, data, PAPER, batch_size=size) for size in (1, 7, 500)}
    listed = []
    for result in runs[500].attacks:
        for size in (1, 7):
            other = next(a for a in runs[size].attacks if a.name == result.name)
            differ = np.flatnonzero(result.broken() != other.broken())
            listed += [
                (result.name, size, int(row), float(result.verdicts["margin"][0, row])) for row in differ
            ]
    assert len(listed) <= 0.001 * 150 * len(PAPER) * 2, listed


def test_batch_sizes_give_identical_random_numbers() -> None:
    net, data = case(30, 3)
    start_only = [PGD(threat=Threat(eps=0.02), steps=0)]
    digests = [
        evaluate(net, data, start_only, batch_size=size).attacks[0].verdicts["digest"] for size in (1, 7, 500)
    ]
    assert (digests[0] == digests[1]).all()
    assert (digests[0] == digests[2]).all()


def test_the_model_and_the_random_state_are_left_alone() -> None:
    net, data = case()
    net.head.requires_grad_(False)
    modes = [(module.training, len(module._forward_hooks)) for module in net.modules()]
    state, weights = torch.get_rng_state(), {k: v.clone() for k, v in net.state_dict().items()}
    evaluate(net, data, PAPER, mode="cascade")
    assert modes == [(module.training, len(module._forward_hooks)) for module in net.modules()]
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(weights[k], v) for k, v in net.state_dict().items())
    assert not net.head.weight.requires_grad
    assert all(parameter.grad is None for parameter in net.parameters())


def test_work_that_is_done_already_is_no_work_left() -> None:
    net, data = case()
    store, seen = MemoryStore(), list[Progress]()
    evaluate(net, data, PAPER, store=store)
    evaluate(net, data, PAPER, store=store, progress=seen.append)
    assert (seen[-1].done, seen[-1].total) == (0, 0)


def test_progress_tells_the_truth() -> None:
    net, data = case()
    seen: list[Progress] = []
    evaluation = evaluate(net, data, PAPER, batch_size=20, progress=seen.append)
    assert seen[0].done == 0
    assert seen[-1].done == seen[-1].total == 3 * 4 * 6, (
        "three chunks, four attacks, five steps and a judgement"
    )
    assert [step.done for step in seen] == sorted(step.done for step in seen)
    assert {"PGD, part 1 of 3", "SI-PGD, part 3 of 3"} <= {step.label for step in seen}
    assert seen[0].unbroken == 54
    assert seen[-1].unbroken == evaluation.robust().correct
    assert [step.unbroken for step in seen] == sorted((s.unbroken for s in seen), reverse=True)


def test_an_attack_is_asked_for_by_a_name_it_has(evaluation: Evaluation) -> None:
    with pytest.raises(ValueError, match="no attack is called 'fab'"):
        evaluation.robust("fab")
    assert Share(1, 4).accuracy == 0.25


class Softmax(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = LinearNet(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).softmax(1)


X, Y = images(8), torch.arange(8) % 4
BAD = {
    "pixels": (lambda: (LinearNet(4).eval(), X * 2, Y), r"pixels must be in \[0, 1\], image \d has"),
    "normalised": (lambda: (LinearNet(4).eval(), X - 0.5, Y), "normalise inside the model"),
    "a few times too large": (lambda: (LinearNet(4).eval(), X * 2, Y), "normalise inside the model"),
    "normalised and large": (lambda: (LinearNet(4).eval(), X * 9 - 2.5, Y), "normalise inside the model"),
    "bytes as floats": (
        lambda: (LinearNet(4).eval(), X * 255, Y),
        r"image 0 has \d.* to \d+.*: divide them by 255",
    ),
    "more than bytes": (lambda: (LinearNet(4).eval(), X * 1000, Y), "normalise inside the model"),
    "nan": (lambda: (LinearNet(4).eval(), torch.where(X > 0.79, torch.nan, X), Y), "got NaN in image"),
    "bytes": (lambda: (LinearNet(4).eval(), (X * 255).byte(), Y), "divide bytes by 255"),
    "label range": (lambda: (LinearNet(3).eval(), X, Y), "labels must be in 0 to 2, got 3 for image 3"),
    "negative label": (lambda: (LinearNet(4).eval(), X, Y - 1), "got -1 for image 0"),
    "length": (lambda: (LinearNet(4).eval(), X, Y[:-1]), "equally many, got 8 and 7"),
    "label kind": (lambda: (LinearNet(4).eval(), X, Y.float()), "labels must be whole numbers"),
    "train mode": (
        lambda: (nn.Sequential(nn.Dropout(), LinearNet(4)), X, Y),
        r"train mode \(0 \(Dropout\)\)",
    ),
    "probabilities": (lambda: (Softmax().eval(), X, Y), "its outputs are probabilities"),
    "nothing": (lambda: (LinearNet(4).eval(), X[:0], Y[:0]), "at least one image"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    make, message = BAD[name]
    net, x, y = make()
    with pytest.raises(ValueError, match=message):
        evaluate(net, (x, y), PAPER)


def test_nan_logits_are_refused() -> None:
    net = LinearNet(4).eval()
    with torch.no_grad():
        net.head.bias[1] = math.nan
    with pytest.raises(ValueError, match="NaN or infinite logits"):
        evaluate(net, (X, Y), PAPER)


def test_train_mode_can_be_a_finding() -> None:
    net = nn.Sequential(nn.BatchNorm2d(3), LinearNet(4))
    net[0].train()
    before = net[0].running_mean.clone()
    evaluation = evaluate(net, (X, Y), suite("pgd"), allow_train_mode=True)
    assert evaluation.findings[0].name == "train-mode"
    assert torch.equal(net[0].running_mean, before), "running statistics are put back"


@pytest.mark.parametrize(
    ("words", "message"),
    [({"mode": "parallel"}, "mode must be one of"), ({"batch_size": 0}, "batch_size must be >= 1, got 0")],
)
def test_bad_options(words: dict[str, object], message: str) -> None:
    net, data = case(4, 0)
    with pytest.raises(ValueError, match=message):
        evaluate(net, data, PAPER, **words)  # type: ignore[arg-type]


def test_names_must_be_unique() -> None:
    net, data = case(4, 0)
    with pytest.raises(
        ValueError, match=r"attack names must be unique.*got pgd, pgd: give one pgd another name="
    ):
        evaluate(net, data, (PGD(steps=2), PGD(steps=3)))
    with pytest.raises(ValueError, match="Did you mean 'si-pgd'"):
        suite("sipgd")


class NanGradient(nn.Module):
    """The same decisions, and a gradient that is not a number."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) + (0 * x).sum((1, 2, 3)).sqrt()[:, None]


class Detached(NanGradient):
    """The same decisions, and no gradient at all."""

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.detach())


@pytest.mark.parametrize(
    ("wrapper", "name"), [(NanGradient, "gradient-not-finite"), (Detached, "gradient-zero")]
)
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_useless_gradients_are_said(wrapper: type[NanGradient], name: str, norm: str) -> None:
    net, data = case(20, 0)
    attacks = suite("pgd", Threat(norm=norm, eps=0.02), steps=3)  # type: ignore[arg-type]
    assert name not in {finding.name for finding in evaluate(net, data, attacks).findings}
    findings = evaluate(wrapper(net).eval(), data, attacks).findings
    assert name in {finding.name for finding in findings}


def test_a_store_never_answers_for_another_run() -> None:
    net, data = case(10, 0)
    store = MemoryStore()
    evaluate(net, data, PAPER, store=store)
    evaluate(net, data, PAPER, store=store)
    for changed in ({"seed": 1}, {"batch_size": 3}):
        with pytest.raises(ValueError, match="units of another run"):
            evaluate(net, data, PAPER, store=store, **changed)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="units of another run"):
        evaluate(Classifier(net).rescaled(2.0), data, PAPER, store=store)
    x, y = data
    others = (x, torch.cat([y[:9], 1 - y[9:]])), (torch.cat([x[:9], 1 - x[9:]]), y)  # beyond the first look
    for other in others:
        with pytest.raises(ValueError, match="units of another run"):
            evaluate(net, other, PAPER, store=store)


def test_a_model_that_does_not_take_the_images() -> None:
    with pytest.raises(
        ValueError, match=r"does not take these images, torch.float32 of shape \(8, 3, 4, 4\)"
    ):
        evaluate(LinearNet(4, (3, 8, 8)).eval(), (X, Y), PAPER)
    with pytest.raises(ValueError, match=r"its parameters are torch\.float64"):
        evaluate(LinearNet(4).double().eval(), (X, Y), PAPER)


def test_probabilities_are_seen_at_any_scale() -> None:
    with pytest.raises(ValueError, match="its outputs are probabilities"):
        evaluate(Classifier(Softmax().eval()).rescaled(1e-3), (X, Y), suite("pgd"))


def test_callers_modes_do_not_matter() -> None:
    net, data = case(10, 0)
    expected = evaluate(net, data, PAPER).robust()
    with torch.inference_mode():
        assert evaluate(net, data, PAPER).robust() == expected
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert evaluate(net, (data[0].clone().requires_grad_(), data[1]), PAPER).robust() == expected
    classifier = Classifier(net.train())
    net.eval()
    assert evaluate(classifier, data, PAPER).robust() == expected
