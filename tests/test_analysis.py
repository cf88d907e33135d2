"""A whole analysis: parts that are left out, work that survives a stop, models left as found, mistakes."""

import copy
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from analysis_helpers import THREAT, Normed, conv_subject, without_seconds
from helpers import LinearNet, SmallConvNet, decisions, images
from scaleproof import analyse
from scaleproof.analysis import (
    PARTS,
    ClassPlan,
    CosinePlan,
    EpsPlan,
    Plan,
    StepPlan,
    Subject,
    SurfacePlan,
    WeightPlan,
    class_robustness,
    cosine_histograms,
    filter_normalised_direction,
)
from scaleproof.analysis.kept import Course
from scaleproof.models import Classifier
from scaleproof.progress import Progress
from scaleproof.store import FolderStore, MemoryStore
from scaleproof.threat import Threat

SMALL = Plan(
    surfaces=SurfacePlan(images=2, points=3),
    weights=WeightPlan(images=6, points=3, steps=2),
    cosines=CosinePlan(steps=2),
    eps=EpsPlan(factors=(0.5, 1.0), steps=2),
    steps=StepPlan(steps=(1, 2), restarts=2, restart_steps=2),
    classes=ClassPlan(steps=2),
)


class Headless(nn.Module):
    """Logits that come from no linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).mean((2, 3))


def test_without_a_head_the_cosine_parts_are_left_out_with_a_note() -> None:
    torch.manual_seed(0)
    net, x = Headless().eval(), images(6, (3, 8, 8))
    done = analyse(net, (x, decisions(net, x)), SMALL, threat=THREAT)
    assert set(done.parts) == set(PARTS) - {"cosines"}
    assert done.notes[0].startswith("Cosines are left out: the head must be a linear layer")
    assert list(done.parts["surfaces"].losses) == ["cross_entropy"]  # type: ignore[union-attr]
    assert [line.attack for line in done.parts["eps"].lines] == ["pgd"]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="cosines need the head"):
        cosine_histograms(Subject.of(net, (x, decisions(net, x)), threat=THREAT))


def arrays_of(
    plan: Plan, store: Any = None, seed: int = 0, **settings: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    net = SmallConvNet().eval()
    x = images(12, (3, 8, 8))
    done = analyse(net, (x, decisions(net, x)), plan, threat=THREAT, store=store, seed=seed, **settings)
    return done.arrays(), without_seconds(done.as_json())


@dataclass
class StopsAfter:
    """A folder store that stops the run after so many pieces of work."""

    inner: Any
    left: list[int] = field(default_factory=lambda: [0])

    def load(self, key: str) -> Any:
        return self.inner.load(key)

    def save(self, key: str, arrays: Any) -> None:
        if self.left[0] == 0:
            raise KeyboardInterrupt
        self.left[0] -= 1
        self.inner.save(key, arrays)

    def part(self, name: str) -> "StopsAfter":
        return StopsAfter(self.inner.part(name), self.left)


def test_an_analysis_that_was_stopped_goes_on_bit_for_bit(tmp_path: Path) -> None:
    wanted = arrays_of(SMALL)
    for pieces in (1, 4, 8, 14):
        with pytest.raises(KeyboardInterrupt):
            arrays_of(SMALL, StopsAfter(FolderStore(tmp_path), [pieces]))
    saved = sorted(path for path in tmp_path.rglob("*.npz"))
    found = arrays_of(SMALL, FolderStore(tmp_path))
    assert len(saved) >= 14
    assert found[1] == wanted[1]
    assert all(np.array_equal(found[0][name], wanted[0][name]) for name in wanted[0])


def test_a_store_never_answers_for_another_analysis(tmp_path: Path) -> None:
    plan = Plan(parts=("surfaces",), surfaces=SMALL.surfaces)
    arrays_of(plan, FolderStore(tmp_path))
    with pytest.raises(ValueError, match="pieces of another analysis"):
        arrays_of(plan, FolderStore(tmp_path), seed=1)


def test_the_seed_and_not_the_batch_size_decides() -> None:
    plan = Plan(parts=("surfaces", "weights", "cosines"), surfaces=SMALL.surfaces, weights=SMALL.weights)
    one, same, other = arrays_of(plan), arrays_of(plan, batch_size=5), arrays_of(plan, seed=1)
    for name in one[0]:
        np.testing.assert_allclose(one[0][name], same[0][name], rtol=2e-3, atol=2e-4)
    assert any(not np.allclose(one[0][name], other[0][name], atol=1e-3) for name in one[0])


def test_progress_only_grows_and_ends_at_the_end() -> None:
    seen: list[Progress] = []
    net, x = SmallConvNet().eval(), images(6, (3, 8, 8))
    analyse(net, (x, decisions(net, x)), SMALL, threat=THREAT, progress=seen.append)
    assert [one.done for one in seen] == sorted(one.done for one in seen)
    assert seen[-1].done == seen[-1].total
    told: list[Progress] = []
    Course(told.append, {"a": 10, "b": 30}).piece("b")(
        Progress(done=1, total=2, label="x", unbroken=1, count=1)
    )
    assert (told[0].done, told[0].total, told[0].label) == (25, 40, "b, x")


def test_known_classes_are_taken_as_given() -> None:
    net, subject = conv_subject()
    given = class_robustness(subject, ClassPlan(steps=1))
    x, y = subject.images.select(np.arange(12))
    done = analyse(net, (x, y), Plan(parts=("classes",)), threat=THREAT, classes=given)
    assert done.parts["classes"] is given


def test_hooks_modes_and_gradients_are_left_alone() -> None:
    net = SmallConvNet().eval()
    net.body[0].weight.requires_grad_(False)
    x = images(6, (3, 8, 8))
    analyse(net, (x, decisions(net, x)), SMALL, threat=THREAT, store=MemoryStore())
    assert not net.training
    assert [parameter.requires_grad for parameter in net.parameters()].count(False) == 1
    assert not any(module._forward_hooks for module in net.modules())
    assert all(parameter.grad is None for parameter in net.parameters())


MISTAKES: dict[str, tuple[Any, str]] = {
    "parts": (lambda: Plan(parts=("surface",)), "parts must be some of surfaces, weights"),
    "no parts": (lambda: Plan(parts=()), "got none"),
    "even": (lambda: SurfacePlan(points=4), "points must be odd and >= 3"),
    "span": (lambda: SurfacePlan(span=0.0), "must be finite and > 0, got 0"),
    "images": (lambda: WeightPlan(images=0), "images must be >= 1, got 0"),
    "factors": (lambda: EpsPlan(factors=(-1.0,)), "factors must be finite and > 0"),
    "steps": (lambda: StepPlan(steps=()), "at least one number"),
    "eps": (
        lambda: Subject.of(LinearNet().eval(), (images(1), torch.tensor([0])), threat=Threat(eps=0.0)),
        "above 0",
    ),
    "mode": (lambda: Subject.of(SmallConvNet(), (images(1), torch.tensor([0]))), "train mode"),
    "none": (
        lambda: Subject.of(LinearNet().eval(), (images(0), torch.zeros(0).long())),
        "at least one image",
    ),
    "weights": (lambda: filter_normalised_direction(nn.BatchNorm2d(3), 0), "the model has none"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_explained(name: str) -> None:
    make, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_train_mode_can_be_allowed_and_buffers_stay() -> None:
    torch.manual_seed(0)
    net = Normed().train()
    x = images(6, (3, 8, 8))
    before = copy.deepcopy(net.state_dict())
    done = analyse(Classifier(net), (x, torch.arange(6)), SMALL, threat=THREAT, allow_train_mode=True)
    assert any("train mode" in note for note in done.notes)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_the_page_on_analysis_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[1] / "docs" / "analysis.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile("\n".join(blocks), "analysis.md", "exec"), {"__name__": "page"})
    assert "clean_true" in capsys.readouterr().out
