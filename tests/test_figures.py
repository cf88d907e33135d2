"""The paper's figures: which runs they need, what those runs settle, and what the pictures say."""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image
from typer.testing import CliRunner

from analysis_fixtures import write_analysis
from paper_helpers import values
from scaleproof.cli.main import app
from scaleproof.paper import drawing, experiments, figure, figures, judge, prose, quantities
from scaleproof.paper.figures import TRADES, WITH_SI, draw, measured
from scaleproof.paper.measures import mean_of, rises, roughness
from scaleproof.paper.prose import items

COUNT = 6
QUICK = ["--limit", str(COUNT), "--device", "cpu"]
MEASURED = [one for one in figures() if one.command is not None]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Path]]:
    """Tiny runs of every figure by its own command and options, without their pages."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("scaleproof.report.render", lambda folder: (folder / "report.html",))
        return runs(tmp_path_factory.mktemp("figures"))


def runs(root: Path) -> dict[str, dict[str, Path]]:
    found: dict[str, dict[str, Path]] = {}
    for one in MEASURED:
        found[one.id] = {}
        networks = ["demo"] if one.command == "sweep" else ["networks:small", "networks:other"]
        quicker = ["--steps", "5"] if one.command == "sweep" else []
        for model, spec in zip(one.models, networks, strict=True):
            folder = root / f"{one.id}-{spec.replace(':', '-')}"
            words = [str(one.command), spec, *QUICK, *quicker, *one.options, "--out", str(folder)]
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, done.output
            found[one.id][model] = folder
    return found


def document(folder: Path, name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / name).read_text())
    return read


def arrays(folder: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = np.load(folder / "analysis.npz", allow_pickle=False)
    return found


# Which figures there are.


def test_figures_name_what_exists() -> None:
    known = {experiment.model for experiment in experiments()}
    assert [one.id for one in figures()] == [
        *("fig-scale", "fig-geometry", "fig-loss-surface", "fig-weight-surface", "fig-cosines")
    ]
    assert all(set(one.models) <= known for one in figures())
    assert len({one.label for one in figures()}) == len(figures())
    settled = [quantity for one in figures() for quantity in one.quantities]
    expected = {quantity.id for quantity in quantities() if quantity.source != "training"}
    assert sorted(settled) == sorted(expected), "each quantity of an analysis by one figure"
    assert figure("fig-cosines").options == ("--parts", "cosines")
    with pytest.raises(ValueError, match=r"must be one of fig-scale, .*, fig-cosines, got 'fig-7'"):
        figure("fig-7")


# What runs settle.


def test_every_sentence_about_an_analysis_can_be_judged(folders: dict[str, dict[str, Path]]) -> None:
    found = {key: value for one in MEASURED for key, value in measured(one, folders[one.id]).items()}
    sources = {quantity.id for quantity in quantities() if quantity.source != "training"}
    about = [one for one in prose() if one.left.get("quantity") in sources]
    assert len(about) == 8
    for sentence in about:
        for side in (sentence.left, sentence.right):
            wanted = {item.key for item in items(side) if item.value is None}
            assert wanted <= set(found), f"{sentence.id}: {wanted - set(found)}"
        assert judge(sentence, found).verdict != "not measured"
    verdicts = {one.id: judge(one, found).verdict for one in about}
    assert verdicts["si-pgd-does-not-move"] == "holds", "bit for bit the same examples have no error"
    assert verdicts["pgd-gradient-vanishes"] == "holds"


def test_a_sweep_by_hand(folders: dict[str, dict[str, Path]]) -> None:
    one = figure("fig-scale")
    found, rows = values(one, folders[one.id]), document(folders[one.id][TRADES], "sweep.json")["rows"]
    assert len(found) == 7 * 4 * 2 + 4
    for row in rows:
        key = f"{TRADES}/{row['attack']}/{row['alpha']:g}"
        assert found[f"robust-at-scale/{key}"] == pytest.approx(100 * row["robust"]["correct"] / COUNT)
        assert found[f"zero-gradients/{key}"] == row["zero_gradients"]
    counts = [row["robust"]["correct"] for row in rows if row["attack"] == "pgd"]
    assert max(counts) > min(counts)
    assert found[f"swing/{TRADES}/pgd"] == pytest.approx(100 * (max(counts) - min(counts)) / COUNT)
    assert found[f"swing/{TRADES}/si-pgd"] == 0
    errors = measured(one, folders[one.id])
    low, high = (100 * end for end in rows[0]["robust"]["interval"])
    key = f"robust-at-scale/{TRADES}/{rows[0]['attack']}/{rows[0]['alpha']:g}"
    assert errors[key].error == pytest.approx((high - low) / 2)
    assert errors[f"swing/{TRADES}/si-pgd"].error == 0
    assert errors[f"swing/{TRADES}/pgd"].error > errors[key].error


def test_an_analysis_by_hand(folders: dict[str, dict[str, Path]]) -> None:
    one = figure("fig-loss-surface")
    for model, value in by_model(values(one, folders[one.id])).items():
        losses = arrays(folders[one.id][model])["surfaces__cross_entropy"].astype(float)
        bends = [
            abs(surface[i - 1][j] - 2 * surface[i][j] + surface[i + 1][j])
            for stack in (losses, losses.transpose(0, 2, 1))
            for surface in stack
            for i in range(1, 20)
            for j in range(21)
        ]
        assert value == pytest.approx(sum(bends) / len(bends), rel=1e-9)
    one = figure("fig-weight-surface")
    for model, value in by_model(values(one, folders[one.id])).items():
        losses = arrays(folders[one.id][model])["weights__loss_adversarial"]
        assert losses.shape == (10, 21), "as many directions as the figure asks for"
        rise = sum(losses[d][p] - losses[d][10] for d in range(10) for p in range(21)) / (10 * 20)
        assert value == pytest.approx(rise)
    one = figure("fig-cosines")
    for model, value in by_model(values(one, folders[one.id])).items():
        seen = arrays(folders[one.id][model])["cosines__adversarial_true"]
        assert value == pytest.approx(float(seen.astype(float).mean()), abs=1e-6)
        part = document(folders[one.id][model], "analysis.json")["parts"]["cosines"]
        assert part["plan"]["steps"] == 10, "PGD-10, as the paper says"
        assert sum(part["all_classes"]["adversarial"]) == 10 * COUNT
        error = measured(one, folders[one.id])[f"true-cosine/{model}"].error
        assert error == pytest.approx(1.96 * seen.std(ddof=1) / math.sqrt(COUNT), abs=0.025)


def by_model(found: Mapping[str, float]) -> dict[str, float]:
    assert len(found) == 2
    return {key.split("/", 1)[1]: value for key, value in found.items()}


def test_known_surfaces() -> None:
    x = np.linspace(-2, 2, 9)  # half a unit apart: the second difference of a x^2 is a / 2
    bowl = 3 * x[:, None] ** 2 + 5 * x[None, :] ** 2 + 7 * x[:, None] * x[None, :] - 2
    flat = x[:, None] - 4 * x[None, :]
    found = roughness(np.stack([bowl, -2 * bowl, flat]).astype(np.float32))
    assert found == pytest.approx([(3 / 2 + 5 / 2) / 2, (3 + 5) / 2, 0], abs=1e-5)
    assert rises(np.array([[4.0, 2.0, 1.0, 2.0, 4.0], [0.0, 1.0, 1.0, 1.0, 2.0]])).tolist() == [2.0, 0.0]
    several = mean_of(np.array([1.0, 2.0, 3.0]))
    assert (several.value, several.error) == (2.0, pytest.approx(1.96 / math.sqrt(3), rel=1e-3))
    assert mean_of(np.array([5.0])).error == 0


# What cannot be drawn.


def test_runs_that_do_not_fit(folders: dict[str, dict[str, Path]], tmp_path: Path) -> None:
    one = figure("fig-cosines")
    with pytest.raises(ValueError, match=r"fig-cosines needs a run of at least one of .*trades"):
        draw(one, {}, tmp_path)
    with pytest.raises(
        ValueError, match=r"drawn from `scaleproof analyse \.\.\. --parts cosines`, .* another kind"
    ):
        draw(one, folders["fig-scale"], tmp_path)
    with pytest.raises(ValueError, match="another kind of run"):
        draw(one, {TRADES: folders["fig-weight-surface"][TRADES]}, tmp_path)
    with pytest.raises(ValueError, match="another kind of run"):
        draw(figure("fig-scale"), {TRADES: folders["fig-cosines"][TRADES]}, tmp_path)
    other = write_analysis(tmp_path / "other")
    with pytest.raises(ValueError, match="must have the same images, eps and seed"):
        values(one, {**folders[one.id], TRADES: other})
    assert not list(tmp_path.glob("*.png"))


def test_without_matplotlib(
    folders: dict[str, dict[str, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match="pictures need matplotlib: pip install matplotlib"):
        draw(figure("fig-scale"), folders["fig-scale"], tmp_path)


# What is drawn.


def texts_of(monkeypatch: pytest.MonkeyPatch, id: str, runs: Mapping[str, Path], out: Path) -> str:
    """All that a picture says."""
    seen: list[str] = []

    def read(canvas: Any) -> bytes:
        seen.extend(text.get_text() for text in canvas.findobj(Text) if text.get_visible())
        return b"read"

    monkeypatch.setattr(drawing, "png", read)
    assert draw(figure(id), runs, out).read_bytes() == b"read"
    return " ".join(seen)


@pytest.mark.parametrize("one", MEASURED, ids=lambda one: one.id)
def test_pictures(one: Any, folders: dict[str, dict[str, Path]], tmp_path: Path) -> None:
    path = draw(one, folders[one.id], tmp_path / "new")
    assert path == tmp_path / "new" / f"{one.id}.png"
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert picture.width >= 800
        assert len(set(picture.convert("L").tobytes())) > 20
    again = draw(one, folders[one.id], tmp_path / "other.png")
    assert again == tmp_path / "other.png"
    assert again.read_bytes() == path.read_bytes(), "the same bytes every time"
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("one", MEASURED, ids=lambda one: one.id)
def test_pictures_say_what_they_show(
    one: Any, folders: dict[str, dict[str, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = texts_of(monkeypatch, one.id, folders[one.id], tmp_path)
    for words in (one.title, "seed 0", "radius 8/255", "commit", "sample"):
        assert words in text
    assert "Not measured" not in text
    names = [drawing.name_of(model) for model in one.models]
    assert all(name in text for name in names)
    if len(names) > 1:
        alone = texts_of(monkeypatch, one.id, {one.models[1]: folders[one.id][one.models[1]]}, tmp_path)
        assert f"Not measured: {names[0]} ({one.models[0]})." in alone


def test_a_run_that_kept_fewer_cosines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = TRADES + WITH_SI
    folder = write_analysis(tmp_path / "run")
    text = texts_of(monkeypatch, "fig-cosines", {model: folder}, tmp_path)
    assert "True class" in text
    assert "All classes" not in text
    means = document(folder, "analysis.json")["parts"]["cosines"]["means"]
    assert values(figure("fig-cosines"), {model: folder}) == {
        f"true-cosine/{model}": means["adversarial_true"]
    }
