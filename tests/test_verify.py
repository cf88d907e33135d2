"""Stored examples are those that were judged; a recount confirms true claims and catches every kind of false one."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from helpers import decisions
from scaleproof import Threat, load, load_model
from scaleproof.claims import read_claims
from scaleproof.cli.main import app
from scaleproof.evaluation import Share
from scaleproof.examples import Examples, pack
from scaleproof.models import build, save_model
from scaleproof.store import read_arrays, write_arrays, write_json
from scaleproof.units import digests
from scaleproof.verify import TOLERANCE, Flip, Verification, verify

COUNT = 48
QUICK = ["--attacks", "pgd,pgd-cw", "--steps", "6", "--restarts", "2", "--batch-size", "16"]
COMMAND = ["evaluate", "demo", "--limit", str(COUNT), *QUICK, "--device", "cpu", "--keep-examples"]


@pytest.fixture(scope="module", params=["independent", "cascade"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verify") / "run"
    done = CliRunner().invoke(app, [*COMMAND, "--mode", request.param, "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def copy(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored, tmp_path / "run"))


def failed(found: Verification) -> set[str]:
    assert not found.confirmed
    return {check.name for check in found.checks if not check.passed}


def test_a_true_claim_is_confirmed(stored: Path) -> None:
    found = verify(stored)
    document = json.loads((stored / "evaluation.json").read_text())
    assert found.confirmed
    assert not found.flips
    assert {check.name for check in found.checks} >= {"weights", "data", "budget", "bits", "shares"}
    assert found.clean is not None
    assert found.robust is not None
    assert found.clean.as_json() == document["clean"]
    assert found.robust.as_json() == document["worst_case"]
    assert found.robust.correct < found.clean.correct, "or nothing was tested"
    done = CliRunner().invoke(app, ["verify", str(stored), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "CONFIRMED" in done.output


def test_examples_are_the_first_that_broke_an_image(stored: Path) -> None:
    claims, arrays = read_claims(stored), read_arrays(stored / "verdicts.npz")
    assert arrays is not None
    assert claims.examples is not None
    assert len(claims.examples) == claims.evaluation.clean.correct - claims.evaluation.robust().correct
    for row, name, restart in zip(
        claims.examples.row, claims.examples.attack, claims.examples.restart, strict=True
    ):
        order = [(attack, k) for attack in ("pgd", "pgd-cw") for k in (0, 1)]
        assert next((a, k) for a, k in order if arrays[f"broken__{a}"][k, row]) == (str(name), int(restart))
    assert claims.document["examples"]["count"] == len(claims.examples)


def examples_of(folder: Path) -> tuple[Examples, np.ndarray]:
    """The stored examples and their pixels."""
    found, dataset = Examples.read(folder / "examples.npz"), load("sample")
    assert found is not None
    clean = dataset.select(found.row)[0].numpy()
    return found, found.unpacked(0, len(found), clean, Threat())


def restored(folder: Path, found: Examples, pixels: np.ndarray, *, digest: bool) -> None:
    """Put other pixels into a run, with the hash in the JSON corrected, and the digests of the verdicts if asked."""
    clean = load("sample").select(found.row)[0].numpy()
    code, rest = pack(pixels.astype(np.float32), clean, Threat())
    told = replace(found, code=code, rest=rest).save(folder)
    change(folder, lambda document: document.update(examples=told))
    if digest:
        arrays = read_arrays(folder / "verdicts.npz")
        assert arrays is not None
        for k, value in enumerate(digests(torch.from_numpy(pixels.astype(np.float32)))):
            arrays[f"digest__{found.attack[k]}"][found.restart[k], found.row[k]] = value
        write_arrays(folder / "verdicts.npz", arrays)


def change(folder: Path, edit: Callable[[dict[str, Any]], object], file: str = "evaluation.json") -> None:
    document = json.loads((folder / file).read_text())
    edit(document)
    write_json(folder / file, document)


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
def test_a_changed_claim_is_caught(copy: Path, name: str) -> None:
    edit, caught = CLAIMS[name]
    change(copy, edit)
    assert caught in failed(verify(copy))


def test_changed_settings_are_caught(copy: Path) -> None:
    change(copy, lambda run: run["settings"].update(seed=7), "run.json")
    assert failed(verify(copy)) == {"settings"}


def test_a_smaller_threat_breaks_the_budget(copy: Path) -> None:
    change(copy, lambda document: document["threat"].update(eps=4 / 255))
    assert failed(verify(copy)) >= {"threat", "budget"}


def test_a_changed_example_is_caught(copy: Path) -> None:
    found, pixels = examples_of(copy)
    pixels[0, 0, 0, 0] = np.nextafter(pixels[0, 0, 0, 0], np.float32(0.5))
    restored(copy, found, pixels, digest=False)
    result = verify(copy)
    assert failed(result) == {"bits"}
    assert any(f"image {found.row[0]}" in check.seen for check in result.checks)


def test_examples_that_break_nothing_are_contradictions(copy: Path) -> None:
    """Whoever forges every hash still has to show an image that the model gets wrong."""
    found, pixels = examples_of(copy)
    pixels[:2] = load("sample").select(found.row[:2])[0].numpy()
    restored(copy, found, pixels, digest=True)
    result = verify(copy)
    assert failed(result) == set(), "no hash and no budget tells it"
    assert {flip.row for flip in result.contradictions} == set(found.row[:2].tolist())
    assert result.robust is not None
    assert result.robust.correct == result.claimed_robust.correct + 2
    done = CliRunner().invoke(app, ["verify", str(copy), "--device", "cpu"])
    assert done.exit_code == 1
    assert "2 contradict the claim" in done.output
    assert "NOT CONFIRMED" in done.output


@pytest.mark.parametrize(("step", "seen"), [(9 / 255, "size of a perturbation"), (2.0, r"pixels must be in")])
def test_a_broken_budget_is_caught(copy: Path, step: float, seen: str) -> None:
    found, pixels = examples_of(copy)
    clean = load("sample").select(found.row[:1])[0].numpy()[0]
    pixels[0, 0] = clean[0] + step * (np.where(clean[0] < 0.5, 1, -1) if step < 1 else 1)
    restored(copy, found, pixels, digest=True)
    result = verify(copy)
    assert failed(result) == {"budget"}
    assert any(seen in check.seen for check in result.checks)


def test_omitted_verdicts_and_examples(copy: Path) -> None:
    """An example without a broken verdict, then a broken verdict without an example."""
    arrays = read_arrays(copy / "verdicts.npz")
    assert arrays is not None
    found, pixels = examples_of(copy)
    row = int(found.row[0])
    forged = {name: values.copy() for name, values in arrays.items()}
    for name in ("pgd", "pgd-cw"):
        forged[f"broken__{name}"][:, row] = False
    write_arrays(copy / "verdicts.npz", forged)
    assert "examples" in failed(verify(copy))
    write_arrays(copy / "verdicts.npz", arrays)
    fewer = replace(found, row=found.row[1:], attack=found.attack[1:], restart=found.restart[1:])
    restored(copy, fewer, pixels[1:], digest=False)
    assert "examples" in failed(verify(copy))
    (copy / "examples.npz").write_bytes(b"something else")
    assert "examples" in failed(verify(copy))


def test_other_weights_are_caught(copy: Path, tmp_path: Path) -> None:
    net = load_model("demo").classifier
    with torch.no_grad():
        next(net.parameters()).flatten()[0] += 1e-6
    save_model(tmp_path / "other.safetensors", net, "resnet-small")
    assert failed(verify(copy, model=str(tmp_path / "other.safetensors"))) == {"weights"}
    torch.manual_seed(0)
    result = verify(copy, model=build("resnet-small").eval())
    assert failed(result) == {"weights"}
    assert len(result.contradictions) > 2, "a network that knows nothing has other verdicts"


def test_other_images_are_not_judged(copy: Path) -> None:
    whole = load("sample").first(COUNT)
    turned = replace(whole, images=whole.images[:, :, ::-1].copy())
    for data in (turned, whole.first(COUNT - 1), load("sample-train").first(COUNT)):
        result = verify(copy, data=data)
        assert failed(result) == {"data"}
        assert result.clean is None
    assert verify(copy, data=whole).confirmed
    assert verify(copy, data=load("sample")).confirmed, "the first images are taken"


class Shifted(nn.Module):
    """Another machine, or another model: the logits of one class are a little larger."""

    def __init__(self, net: nn.Module, target: int, shift: float) -> None:
        super().__init__()
        self.net, self.target, self.shift = net, target, shift

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        logits[:, self.target] += self.shift
        return logits


def nearly_right(net: nn.Module, clean: Tensor, found: Tensor, y: int) -> tuple[Tensor, float, float]:
    """The last image on the way back to the clean one that is still wrong, its margin and its largest logit."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        wrong = int(decisions(net, (clean + middle * (found - clean))[None])) != y
        low, high = (low, middle) if wrong else (middle, high)
    x = clean + high * (found - clean)
    with torch.no_grad():
        logits = net(x[None])[0]
    others = torch.cat([logits[:y], logits[y + 1 :]])
    return x, float(others.max() - logits[y]), float(logits.abs().max())


def test_rounding_is_told_from_a_contradiction(copy: Path) -> None:
    net, (found, pixels) = load_model("demo").classifier, examples_of(copy)
    clean, labels = load("sample").select(found.row)
    x, margin, scale = nearly_right(net, clean[0], torch.from_numpy(pixels[0]), int(labels[0]))
    assert 0 <= margin < 0.1 * TOLERANCE * scale
    pixels[0] = x.numpy()
    restored(copy, found, pixels, digest=True)
    arrays = read_arrays(copy / "verdicts.npz")
    assert arrays is not None
    arrays[f"margin__{found.attack[0]}"][found.restart[0], found.row[0]] = margin
    write_arrays(copy / "verdicts.npz", arrays)
    assert verify(copy).confirmed
    result = verify(copy, model=Shifted(net, int(labels[0]), 0.3 * TOLERANCE * scale).eval())
    assert [flip.row for flip in result.flips] == [found.row[0]]
    assert result.contradictions == ()
    assert failed(result) == {"weights"}
    assert not replace(result, checks=()).contradictions
    assert replace(result, checks=()).confirmed
    result = verify(copy, model=Shifted(net, int(labels[0]), 10 * TOLERANCE * scale).eval())
    assert found.row[0] in {flip.row for flip in result.contradictions}


def test_other_arithmetic_moves_margins_far_less_than_the_tolerance(stored: Path) -> None:
    """Convolutions without oneDNN add up in another order, as another machine's do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.backends.mkldnn.flags(enabled=False):
            result = verify(stored)
    assert result.confirmed
    assert 0 < result.largest_shift < 0.1 * TOLERANCE


def test_an_l2_run_is_confirmed(tmp_path: Path) -> None:
    words = [*COMMAND, "--norm", "l2", "--eps", "0.5", "--attacks", "pgd,apgd-ce", "--limit", "20"]
    done = CliRunner().invoke(app, [*words, "--mode", "cascade", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    claims = read_claims(tmp_path / "run")
    assert claims.examples is not None
    assert len(claims.examples) > 0
    assert verify(tmp_path / "run").confirmed
    change(tmp_path / "run", lambda document: document["threat"].update(eps=0.4))
    assert "budget" in failed(verify(tmp_path / "run"))


def test_rounding_does_not_explain_many_images() -> None:
    flips = [
        Flip(
            row=k,
            on="clean",
            claimed="right",
            recounted="wrong",
            margin=1e-9,
            claimed_margin=np.nan,
            scale=1.0,
        )
        for k in range(3)
    ]
    shares = {"claimed_clean": Share(150, 200), "claimed_robust": Share(90, 200)}
    few = Verification(
        **shares, clean=Share(148, 200), robust=Share(90, 200), checks=(), flips=tuple(flips[:2])
    )
    assert few.confirmed
    many = replace(few, flips=tuple(flips))
    assert not many.confirmed
    assert len(many.contradictions) == 3
    assert not replace(flips[0], margin=1e-3).numerical
    assert not replace(flips[0], claimed_margin=0.5).numerical


def test_a_run_in_which_nothing_broke(tmp_path: Path) -> None:
    words = [*COMMAND, "--eps", "0", "--attacks", "pgd", "--out", str(tmp_path / "run")]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert not (tmp_path / "run" / "examples.npz").exists()
    assert verify(tmp_path / "run").confirmed


def test_what_cannot_be_verified_says_why(stored: Path, tmp_path: Path) -> None:
    words = [word for word in COMMAND if word != "--keep-examples"]
    assert CliRunner().invoke(app, [*words, "--out", str(tmp_path / "plain")]).exit_code == 0
    with pytest.raises(
        ValueError, match="keeps no examples to re-check: evaluate again with --keep-examples"
    ):
        verify(tmp_path / "plain")
    with pytest.raises(ValueError, match=r"must have evaluation.json"):
        verify(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="train mode"):
        verify(stored, model=load_model("demo").classifier.train())
    done = CliRunner().invoke(app, [*COMMAND, "--attacks", "rand", "--out", str(tmp_path / "rand")])
    assert "needs a model that answers alike each time, got 20 draws" in str(done.exception)


def test_two_processes_keep_the_examples_of_one(stored: Path, tmp_path: Path) -> None:
    mode = json.loads((stored / "evaluation.json").read_text())["mode"]
    port = str(29641 + len(mode))  # both modes may run at once
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port]
    words = [*launcher, "-m", "scaleproof", *COMMAND, "--mode", mode, "--out", str(tmp_path / "two")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    one, two = (read_arrays(folder / "examples.npz") for folder in (stored, tmp_path / "two"))
    assert one is not None
    assert two is not None
    for name, values in one.items():
        np.testing.assert_array_equal(values, two[name])
    assert verify(tmp_path / "two").confirmed
