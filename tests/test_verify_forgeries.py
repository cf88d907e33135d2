"""A recount catches every kind of false claim."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from scaleproof import load, load_model
from scaleproof.cli.main import app
from scaleproof.evaluation import Share
from scaleproof.models import build, save_model
from scaleproof.store import read_arrays, write_arrays
from scaleproof.verify import verify
from verify_fixtures import COUNT, change, examples_of, failed, restored

CLAIMS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "more correct": (
        lambda d: d["worst_case"].update(Share(d["worst_case"]["correct"] + 1, COUNT).as_json()),
        "shares",
    ),
    "another percentage": (lambda d: d["worst_case"].update(accuracy=0.99), "shares"),
    "a narrow interval": (lambda d: d["worst_case"].update(interval=[0.4, 0.41]), "shares"),
    "better clean": (lambda d: d["clean"].update(Share(COUNT, COUNT).as_json()), "shares"),
    "an attack": (lambda d: d["attacks"][1]["robust"].update(Share(COUNT, COUNT).as_json()), "shares"),
    "a larger threat": (lambda d: d["threat"].update(eps=16 / 255), "threat"),
    "other weights": (lambda d: d["model"].update(weights_sha256="0" * 64), "weights"),
    "other data": (lambda d: d["data"].update(sha256="0" * 64), "data"),
    "the hash of the examples": (lambda d: d["examples"].update(sha256="0" * 64), "examples"),
    "no examples": (lambda d: d.pop("examples"), "examples"),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_changed_claim_is_caught(copied_run: Path, name: str) -> None:
    edit, caught = CLAIMS[name]
    change(copied_run, edit)
    assert caught in failed(verify(copied_run))


def test_changed_settings_are_caught(copied_run: Path) -> None:
    change(copied_run, lambda run: run["settings"].update(seed=7), "run.json")
    assert failed(verify(copied_run)) == {"settings"}


def test_a_smaller_threat_breaks_the_budget(copied_run: Path) -> None:
    change(copied_run, lambda document: document["threat"].update(eps=4 / 255))
    assert failed(verify(copied_run)) >= {"threat", "budget"}


def test_a_changed_example_is_caught(copied_run: Path) -> None:
    found, pixels = examples_of(copied_run)
    pixels[0, 0, 0, 0] = np.nextafter(pixels[0, 0, 0, 0], np.float32(0.5))
    restored(copied_run, found, pixels, digest=False)
    result = verify(copied_run)
    assert failed(result) == {"bits"}
    assert any(f"image {found.row[0]}" in check.seen for check in result.checks)


def test_examples_that_break_nothing_are_contradictions(copied_run: Path) -> None:
    """Whoever forges every hash still has to show an image that the model gets wrong."""
    found, pixels = examples_of(copied_run)
    pixels[:2] = load("sample").select(found.row[:2])[0].numpy()
    restored(copied_run, found, pixels, digest=True)
    result = verify(copied_run)
    assert failed(result) == set(), "no hash and no budget tells it"
    assert {flip.row for flip in result.contradictions} == set(found.row[:2].tolist())
    assert result.robust is not None
    assert result.robust.correct == result.claimed_robust.correct + 2
    done = CliRunner().invoke(app, ["verify", str(copied_run), "--device", "cpu"])
    assert done.exit_code == 1
    assert "2 contradict the claim" in done.output
    assert "NOT CONFIRMED" in done.output


@pytest.mark.parametrize(("step", "seen"), [(9 / 255, "size of a perturbation"), (2.0, r"pixels must be in")])
def test_a_broken_budget_is_caught(copied_run: Path, step: float, seen: str) -> None:
    found, pixels = examples_of(copied_run)
    clean = load("sample").select(found.row[:1])[0].numpy()[0]
    pixels[0, 0] = clean[0] + step * (np.where(clean[0] < 0.5, 1, -1) if step < 1 else 1)
    restored(copied_run, found, pixels, digest=True)
    result = verify(copied_run)
    assert failed(result) == {"budget"}
    assert any(seen in check.seen for check in result.checks)


def test_omitted_verdicts_and_examples(copied_run: Path) -> None:
    """An example without a broken verdict, then a broken verdict without an example."""
    arrays = read_arrays(copied_run / "verdicts.npz")
    assert arrays is not None
    found, pixels = examples_of(copied_run)
    row = int(found.row[0])
    forged = {name: values.copy() for name, values in arrays.items()}
    for name in ("pgd", "pgd-cw"):
        forged[f"broken__{name}"][:, row] = False
    write_arrays(copied_run / "verdicts.npz", forged)
    assert "examples" in failed(verify(copied_run))
    write_arrays(copied_run / "verdicts.npz", arrays)
    fewer = replace(found, row=found.row[1:], attack=found.attack[1:], restart=found.restart[1:])
    restored(copied_run, fewer, pixels[1:], digest=False)
    assert "examples" in failed(verify(copied_run))
    (copied_run / "examples.npz").write_bytes(b"something else")
    assert "examples" in failed(verify(copied_run))


def test_other_weights_are_caught(copied_run: Path, tmp_path: Path) -> None:
    net = load_model("demo").classifier
    with torch.no_grad():
        next(net.parameters()).flatten()[0] += 1e-6
    save_model(tmp_path / "other.safetensors", net, "resnet-small")
    assert failed(verify(copied_run, model=str(tmp_path / "other.safetensors"))) == {"weights"}
    torch.manual_seed(0)
    result = verify(copied_run, model=build("resnet-small").eval())
    assert failed(result) == {"weights"}
    assert len(result.contradictions) > 2, "a network that knows nothing has other verdicts"


def test_other_images_are_not_judged(copied_run: Path) -> None:
    whole = load("sample").first(COUNT)
    turned = replace(whole, images=whole.images[:, :, ::-1].copy())
    for data in (turned, whole.first(COUNT - 1), load("sample-train").first(COUNT)):
        result = verify(copied_run, data=data)
        assert failed(result) == {"data"}
        assert result.clean is None
    assert verify(copied_run, data=whole).confirmed
    assert verify(copied_run, data=load("sample")).confirmed, "the first images are taken"
