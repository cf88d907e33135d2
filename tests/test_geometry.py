"""The geometric sketch: its vectors are the network's, its gradients have a closed form."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from paper_helpers import values
from scaleproof import load, load_model
from scaleproof.paper import figure
from scaleproof.paper.figures import draw
from scaleproof.paper.geometry import CLASSES, Plane, gradient, learned, objectives, plane, pull, vanished


@pytest.fixture(scope="module")
def seen() -> Plane:
    return plane()


def test_the_plane_is_that_of_the_network(seen: Plane) -> None:
    again = plane()
    torch.testing.assert_close(again.features, seen.features)
    torch.testing.assert_close(again.adversarial, seen.adversarial, rtol=1e-3, atol=1e-3)
    data, model = load("sample"), load_model("demo").classifier
    numbers = [data.classes.index(name) for name in CLASSES]
    x, y = data.batch(0, len(data))
    chosen = (y == numbers[0]) | (y == numbers[1])
    with torch.no_grad():
        logits = model(x[chosen]) - model.net.get_submodule("head").bias
    torch.testing.assert_close(seen.logits(seen.features), logits[:, numbers], rtol=1e-4, atol=1e-4)
    assert torch.equal(seen.labels, (y[chosen] == numbers[1]).long())
    assert seen.logits(seen.clean).argmax() == 0
    assert seen.logits(seen.adversarial).argmax() == 1, "PGD took it across"
    assert (seen.clean - seen.adversarial).norm() > 0.1


def test_the_pull_of_both_losses_is_their_closed_form(seen: Plane) -> None:
    entropy, cosine = objectives().values()
    gap = seen.weights[1] - seen.weights[0]
    wrong = (seen.features @ seen.weights.T).double().softmax(1)[:, 1:]
    torch.testing.assert_close(
        pull(entropy, seen.features, seen.weights).double(), wrong * gap, rtol=1e-3, atol=1e-6
    )
    sideways = pull(cosine, seen.features, seen.weights)
    along = (sideways * seen.features).sum(1) / (sideways.norm(dim=1) * seen.features.norm(dim=1))
    assert along.abs().max() < 1e-3, "a cosine does not change along the feature"
    longer = pull(cosine, seen.features, seen.weights, 100.0)
    torch.testing.assert_close(longer, sideways, rtol=1e-3, atol=1e-6)


def test_gradients_vanish_where_exponentials_do(seen: Plane) -> None:
    entropy, cosine = objectives().values()
    logits = seen.logits(seen.right).double()
    margins = logits[:, 0] - logits[:, 1]
    gone = vanished(entropy, seen, [100.0])[0] * len(margins)
    least, most = (int((100 * margins > limit).sum()) for limit in (115, 80))
    assert len(margins) / 2 < least <= round(gone) <= most, (
        "exp(-103) is the smallest number of float32 above 0"
    )
    assert (
        vanished(entropy, seen, [1.0])
        == vanished(cosine, seen, [1e-3])
        == vanished(cosine, seen, [1e3])
        == [0.0]
    )


def test_the_cosine_turns_weights_and_cross_entropy_stretches_them(seen: Plane) -> None:
    entropy, cosine = objectives().values()
    weights = seen.weights.clone().requires_grad_()
    step = gradient(cosine, seen.adversarial[None], weights, weights)
    assert (step * seen.weights).sum(1).abs().max() < 1e-4 * step.norm(), "no part along the weights"
    lengths = seen.weights.norm(dim=1)
    for objective in (entropy, cosine):
        after = learned(objective, seen.adversarial, seen.weights)
        assert (after @ seen.adversarial).softmax(0)[0] >= 0.9
        stretched = (after.norm(dim=1) / lengths - 1).abs()
        assert bool((stretched > 0.1).all()) if objective is entropy else bool((stretched < 0.01).all())


def test_the_sketch_needs_no_run(tmp_path: Path) -> None:
    path = draw(figure("fig-geometry"), {}, tmp_path)
    with Image.open(path) as picture:
        assert picture.width >= 800
    assert values(figure("fig-geometry"), {}) == {}
