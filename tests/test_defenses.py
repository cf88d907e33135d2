"""Defenses against re-derivations in plain torch, and the BatchNorm policy."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import defense_helpers as own
from defense_helpers import EPS, Twin, ce, into_ball, learner_of, number, small_images, small_net, uniform
from defense_helpers import weight_gradients as gradients
from scaleproof import defenses
from scaleproof.defenses import (
    Batch,
    BatchNormPolicy,
    Defense,
    Free,
    Outcome,
    defense,
    hypersphere,
    scale_invariant,
)
from scaleproof.models import Classifier, Output
from scaleproof.models.hypersphere import HypersphereHead
from scaleproof.training.learner import ModelLearner

ADVERSARIAL = [name for name in defenses.NAMES if name != "standard"]


def outcome_of(method: Defense, net: nn.Module, memory: dict[str, Tensor] | None = None) -> Outcome:
    """A defense's outcome on the small images, with the noise that `Twin` gets too."""
    x, y = small_images()
    batch = Batch(x, y, (uniform(x),) if method.draws else ())
    return method.outcome(learner_of(net, method.batch_norm), batch, memory or {})


def twin_of(net: Any, *, si: bool = False) -> Twin:
    x, y = small_images()
    return Twin(net, x, y, uniform(x), si)


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], net: nn.Module) -> None:
    """The same terms by name and value, and the same gradient of their sum in the weights."""
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert number(found[name]) == pytest.approx(number(value), rel=1e-10), name
    torch.testing.assert_close(gradients(found.values(), net), gradients(expected.values(), net))


@pytest.mark.parametrize(
    ("name", "si"),
    [("standard", False), *((name, si) for name in ADVERSARIAL for si in (False, True) if name != "free")],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_loss_is_the_papers(name: str, si: bool, seed: int) -> None:
    net = small_net(seed)
    method = scale_invariant(defense(name)) if si else defense(name)
    expected = getattr(twin_of(net, si=si), name)()
    assert_same(outcome_of(method, net).terms, expected, net)


@pytest.mark.parametrize("si", [False, True], ids=["plain", "si"])
def test_free_loss_is_that_at_x_plus_delta(si: bool) -> None:
    net, (x, _) = small_net(), small_images()
    delta = EPS * (2 * uniform(x, seed=3) - 1)
    method = scale_invariant(Free()) if si else Free()
    found = outcome_of(method, net, {"delta": delta.clone()})
    expected = twin_of(net, si=si).free(delta)
    leaf = delta.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(sum(twin_of(net, si=si).free(leaf).values()), leaf)
    torch.stack(list(found.terms.values())).sum().backward(retain_graph=True)
    torch.testing.assert_close(found.leaf.grad, wanted)
    assert_same(found.terms, expected, net)


def test_gradaligns_clean_gradient_is_a_constant() -> None:
    net = small_net()
    found = gradients([outcome_of(defenses.GradientAlignment(), net).terms["alignment"]], net)
    constant, differentiated = (
        gradients([twin_of(net).gradalign(constant=choice)["alignment"]], net) for choice in (True, False)
    )
    torch.testing.assert_close(found, constant)
    assert number((found - differentiated).abs().max()) > 1e-3 * number(found.abs().max())


def test_si_halves_switch_separately() -> None:
    net = small_net()
    outer = outcome_of(scale_invariant(defenses.AdversarialTraining(), inner=False), net).terms
    assert number(outer["adversarial"]) == pytest.approx(number(twin_of(net).at()["adversarial"]), rel=1e-10)
    assert set(outer) == {"adversarial", "margin"}
    inner = outcome_of(scale_invariant(defenses.AdversarialTraining(), outer=False), net).terms
    both = twin_of(net, si=True).at()
    assert set(inner) == {"adversarial"}
    assert number(inner["adversarial"]) == pytest.approx(number(both["adversarial"]), rel=1e-10)
    assert number(inner["adversarial"]) != pytest.approx(number(outer["adversarial"]), rel=1e-6)


def test_a_weight_of_zero_means_no_margin_term() -> None:
    assert set(outcome_of(scale_invariant(defenses.Trades(), weight=0), small_net()).terms) == {
        "clean",
        "divergence",
    }


def test_si_settings_arrive() -> None:
    method = scale_invariant(defenses.AdversarialTraining(), scale=7, margin=0.3, weight=0.5)
    assert method.margin == defenses.Margin(scale=7, margin=0.3, weight=0.5)
    net, (x, y) = small_net(), small_images()
    found = method.margin.term(learner_of(net).outputs(x, "adversarial"), y)
    scores = 7 * (twin_of(net).cosines(x) - 0.3 * torch.eye(4).double()[y])
    assert number(found) == pytest.approx(number(0.5 * ce(scores, y).mean()), rel=1e-7)  # m s in float32


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_a_twin_differs_in_si_alone(name: str) -> None:
    plain, twin = defense(name).describe(), scale_invariant(defense(name)).describe()
    assert twin.pop("margin") == {"scale": 15.0, "margin": 0.2, "weight": 0.2}
    assert plain.pop("margin") is None
    for settings in (plain, twin):
        if settings["inner"] is not None:
            objective = settings["inner"].pop("objective")
            assert ("cosine_cross_entropy(15)" in objective) == (settings is twin)
    assert plain == twin
    assert type(scale_invariant(defense(name))) is type(defense(name))


def test_free_keeps_delta_and_steps_by_eps() -> None:
    """Two classes: the sign is d for label 0 and -d for label 1, whatever the image."""
    net, x, _ = own.linear_batch()
    x = 0.5 + 0 * x  # away from the ends of the pixel range
    weight = net.head.weight.detach()
    d = torch.sign(weight[1] - weight[0]).reshape(x.shape[1:]).expand_as(x)
    method, learner = Free(), learner_of(net)
    memory = method.new_memory(x)
    assert number(memory["delta"].abs().max()) == 0
    zeros, ones = torch.zeros(6, dtype=torch.int64), torch.ones(6, dtype=torch.int64)
    for y, rows, expected in (
        (zeros, 6, d),
        (zeros, 6, d),
        (ones, 6, 0 * d),
        (ones, 6, -d),
        (zeros, 2, 0 * d),
    ):
        kept = memory["delta"].clone()
        batch = Batch(x[:rows], y[:rows])
        outcome = method.outcome(learner, batch, memory)
        torch.stack(list(outcome.terms.values())).sum().backward()
        method.remember(outcome, batch, memory)
        torch.testing.assert_close(memory["delta"][:rows], EPS * expected[:rows])
        assert torch.equal(memory["delta"][rows:], kept[rows:])  # a smaller batch moves its own rows
    assert (method.replays, Free(replay=3).replays, defenses.Trades().replays) == (8, 3, 1)


def test_free_with_a_cosine_gradient_of_its_own() -> None:
    net, (x, y) = small_net(), small_images()
    method = Free(separate_cosine=15.0)
    memory = method.new_memory(x)
    found = outcome_of(method, net, memory)
    torch.stack(list(found.terms.values())).sum().backward()
    method.remember(found, Batch(x, y), memory)
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(ce(15 * twin_of(net).cosines(leaf), y).sum(), leaf)
    torch.testing.assert_close(memory["delta"], EPS * slope.sign())


@pytest.mark.parametrize(
    ("epoch", "step", "guidance", "weight"),
    [(0, 0, 0, 10), (0, 1, 10, 10), (85, 3, 10, 10), (86, 2, 0, 40), (86, 3, 40, 40)],
)
@pytest.mark.parametrize("si", [False, True], ids=["plain", "si"])
def test_gat_alternates_and_grows(epoch: int, step: int, guidance: float, weight: float, si: bool) -> None:
    """Both weights are four times as large from the 87th epoch on: after number 85 from 0, as in the authors' code."""
    net = small_net()
    method = (scale_invariant(defenses.Guidance()) if si else defenses.Guidance()).at(epoch, step)
    assert method.inner is not None
    assert isinstance(method.inner.objective, defenses.Guided)
    assert method.inner.objective.weight == guidance
    assert_same(outcome_of(method, net).terms, twin_of(net, si=si).gat(guidance, weight), net)


@pytest.mark.parametrize("name", ["at", "trades", "alp"])
def test_hypersphere_loss_is_that_of_s_cos_minus_m(name: str) -> None:
    net = small_net()
    net.head = HypersphereHead(6, 4).double()
    (x, y), seen = small_images(), []

    class Watching(ModelLearner):
        def outputs(self, x: Tensor, role: Any) -> Output:
            seen.append((role, x))
            return super().outputs(x, role)

    method = hypersphere(defense(name))
    learner = Watching(Classifier(net), method.batch_norm, own.PLAIN, False)
    found = method.outcome(learner, Batch(x, y, (uniform(x),)), {}).terms
    twin, shift = twin_of(net), 0.2 * torch.eye(4).double()[y]
    scores = {role: 15 * twin.cosines(x) for role, x in seen}
    share = 0.5 if name == "alp" else 1.0
    for role in ("clean", "adversarial"):
        if role in found:
            expected = share * ce(scores[role] - 15 * shift, y).mean()
            assert number(found[role]) == pytest.approx(number(expected), rel=1e-10)
    if name == "trades":
        expected = 6 * own.kl(scores["clean"], scores["adversarial"]).mean()
        assert number(found["divergence"]) == pytest.approx(number(expected), rel=1e-10)


def test_alp_as_printed_is_the_length_of_the_difference() -> None:
    net = small_net()
    found = outcome_of(defenses.LogitPairing(pairing="norm", share=0.25, weight=2.0), net).terms
    twin = twin_of(net)
    x = twin.multi_step()
    lengths = (twin.logits(x) - twin.logits(twin.x)).square().sum(1).sqrt()
    expected = {"clean": 0.25 * twin.mean_ce(twin.x), "adversarial": 0.75 * twin.mean_ce(x)}
    assert_same(found, {**expected, "pairing": 2 * lengths.mean()}, net)


# BatchNorm: the statistics that an attack uses, and the passes that move the running ones.


def norm_batch() -> Batch:
    x, y = small_images()
    return Batch(x, y, (uniform(x),))


def assert_moved(net: Any, expected: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close((net.bn1.running_mean, net.bn1.running_var), expected)


def test_attacks_in_eval_mode_neither_use_nor_move_statistics_of_the_batch() -> None:
    net, batch, method = own.norm_net(), norm_batch(), defense("at")
    before = own.statistics(net)
    together = method.adversarial(learner_of(net), batch)
    assert torch.equal(own.statistics(net), before)
    first = Batch(batch.x[:1], batch.y[:1], (batch.noise[0][:1],))
    torch.testing.assert_close(method.adversarial(learner_of(net), first), together[:1])
    with pytest.raises(ValueError, match="must be in train mode"):
        learner_of(deepcopy(net).eval())
    in_train = method.adversarial(learner_of(net, BatchNormPolicy(attack="train")), batch)
    assert number((in_train - together).abs().max()) > 1 / 255


@pytest.mark.parametrize("updates", ["all", "clean", "adversarial"])
def test_outer_passes_move_statistics_as_declared(updates: Any) -> None:
    net, batch = own.norm_net(), norm_batch()
    method = defenses.Trades(batch_norm=BatchNormPolicy(updates=updates))
    passes = {"clean": batch.x, "adversarial": method.adversarial(learner_of(net), batch)}
    expected = own.moved(net, [x for role, x in passes.items() if updates in ("all", role)])
    method.outcome(learner_of(net, method.batch_norm), batch, {})
    assert_moved(net, expected)
    assert {norm.momentum for norm in net.modules() if isinstance(norm, nn.BatchNorm2d)} == {0.1}


@pytest.mark.parametrize("name", ["rfgsm", "gradalign"])
@pytest.mark.parametrize("updates", [True, False])
def test_attacks_in_train_mode_move_statistics_as_declared(name: str, updates: bool) -> None:
    net, batch, original = own.norm_net(), norm_batch(), defense(name)
    policy = BatchNormPolicy(attack="train", attack_updates=updates)
    assert original.batch_norm == replace(policy, attack_updates=True)
    perturbed = original.adversarial(learner_of(deepcopy(net), policy), batch)
    start = into_ball(batch.x + EPS * (2 * batch.noise[0] - 1), batch.x)
    passes = {"rfgsm": [start, perturbed], "gradalign": [batch.x, perturbed, start]}[name]
    expected = own.moved(net, passes if updates else [perturbed])
    replace(original, batch_norm=policy).outcome(learner_of(net, policy), batch, {})
    assert_moved(net, expected)


def broken(output: Output, y: Tensor, reference: Output | None) -> Tensor:
    raise RuntimeError("broken on purpose")


broken.needs_reference = broken.needs_features = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("attack", ["eval", "train"])
@pytest.mark.parametrize("breaks", [False, True])
def test_an_attack_leaves_flags_momenta_and_gradients_alone(attack: Any, breaks: bool) -> None:
    net, method = own.norm_net(), defense("rfgsm")
    net.bn1.eval().momentum = 0.3
    net.conv1.requires_grad_(False)

    def state() -> list[object]:
        flags = [(module.training, getattr(module, "momentum", None)) for module in net.modules()]
        return [*flags, *((p.requires_grad, p.grad) for p in net.parameters())]

    before = state()
    if breaks:
        method = replace(method, inner=replace(method.inner, objective=broken))
        with pytest.raises(RuntimeError, match="broken on purpose"):
            method.adversarial(learner_of(net, BatchNormPolicy(attack=attack)), norm_batch())
    else:
        method.adversarial(learner_of(net, BatchNormPolicy(attack=attack)), norm_batch())
    assert state() == before
