"""Stored examples are those that were judged; a recount confirms true claims and tells rounding from contradictions."""

import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from helpers import decisions
from scaleproof import load, load_model
from scaleproof.claims import read_claims
from scaleproof.cli.main import app
from scaleproof.evaluation import Share
from scaleproof.store import read_arrays, write_arrays
from scaleproof.verify import TOLERANCE, Flip, Verification, verify
from verify_fixtures import COMMAND, change, examples_of, failed, restored


def test_a_true_claim_is_confirmed(stored_run: Path) -> None:
    found = verify(stored_run)
    document = json.loads((stored_run / "evaluation.json").read_text())
    assert found.confirmed
    assert not found.flips
    assert {check.name for check in found.checks} >= {"weights", "data", "budget", "bits", "shares"}
    assert found.clean is not None
    assert found.robust is not None
    assert found.clean.as_json() == document["clean"]
    assert found.robust.as_json() == document["worst_case"]
    assert found.robust.correct < found.clean.correct, "or nothing was tested"
    done = CliRunner().invoke(app, ["verify", str(stored_run), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "CONFIRMED" in done.output


def test_the_budget_of_an_attack_that_does_not_say_its_norm_is_known(tmp_path: Path) -> None:
    """As the one in docs/add-an-attack.md does."""
    words = [
        "evaluate",
        "demo",
        "--limit",
        "8",
        "--attacks",
        "foreign_attacks:TellsLittle",
        "--device",
        "cpu",
    ]
    words += ["--no-checks", "--no-report", "--keep-examples", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    found = verify(tmp_path / "run")
    assert found.confirmed, found.checks


def test_examples_are_the_first_that_broke_an_image(stored_run: Path) -> None:
    claims, arrays = read_claims(stored_run), read_arrays(stored_run / "verdicts.npz")
    assert arrays is not None
    assert claims.examples is not None
    assert len(claims.examples) == claims.evaluation.clean.correct - claims.evaluation.robust().correct
    for row, name, restart in zip(
        claims.examples.row, claims.examples.attack, claims.examples.restart, strict=True
    ):
        order = [(attack, k) for attack in ("pgd", "pgd-cw") for k in (0, 1)]
        assert next((a, k) for a, k in order if arrays[f"broken__{a}"][k, row]) == (str(name), int(restart))
    assert claims.document["examples"]["count"] == len(claims.examples)


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


def test_rounding_is_told_from_a_contradiction(copied_run: Path) -> None:
    net, (found, pixels) = load_model("demo").classifier, examples_of(copied_run)
    clean, labels = load("sample").select(found.row)
    x, margin, scale = nearly_right(net, clean[0], torch.from_numpy(pixels[0]), int(labels[0]))
    assert 0 <= margin < 0.1 * TOLERANCE * scale
    pixels[0] = x.numpy()
    restored(copied_run, found, pixels, digest=True)
    arrays = read_arrays(copied_run / "verdicts.npz")
    assert arrays is not None
    arrays[f"margin__{found.attack[0]}"][found.restart[0], found.row[0]] = margin
    write_arrays(copied_run / "verdicts.npz", arrays)
    assert verify(copied_run).confirmed
    result = verify(copied_run, model=Shifted(net, int(labels[0]), 0.3 * TOLERANCE * scale).eval())
    assert [flip.row for flip in result.flips] == [found.row[0]]
    assert result.contradictions == ()
    assert failed(result) == {"weights"}
    assert not replace(result, checks=()).contradictions
    assert replace(result, checks=()).confirmed
    result = verify(copied_run, model=Shifted(net, int(labels[0]), 10 * TOLERANCE * scale).eval())
    assert found.row[0] in {flip.row for flip in result.contradictions}


def test_other_arithmetic_moves_margins_far_less_than_the_tolerance(stored_run: Path) -> None:
    """Convolutions without oneDNN add up in another order, as another machine's do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.backends.mkldnn.flags(enabled=False):
            result = verify(stored_run)
    assert result.confirmed
    assert 0 < result.largest_shift < 0.1 * TOLERANCE


def test_an_l2_run_is_confirmed(tmp_path: Path) -> None:
    words = [*COMMAND, "--norm", "l2", "--eps", "0.5", "--attacks", "pgd,apgd-ce", "--limit", "10"]
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


def test_what_cannot_be_verified_says_why(stored_run: Path, tmp_path: Path) -> None:
    words = [word for word in COMMAND if word != "--keep-examples"]
    assert CliRunner().invoke(app, [*words, "--out", str(tmp_path / "plain")]).exit_code == 0
    with pytest.raises(
        ValueError, match="keeps no examples to re-check: evaluate again with --keep-examples"
    ):
        verify(tmp_path / "plain")
    with pytest.raises(ValueError, match=r"must have evaluation.json"):
        verify(tmp_path / "nowhere")
    (tmp_path / "training.json").write_text("{}")
    with pytest.raises(
        ValueError, match=f"a training, give a run of scaleproof evaluate {tmp_path} --keep-examples"
    ):
        verify(tmp_path)
    with pytest.raises(ValueError, match="train mode"):
        verify(stored_run, model=load_model("demo").classifier.train())
    done = CliRunner().invoke(app, [*COMMAND, "--attacks", "rand", "--out", str(tmp_path / "rand")])
    assert "needs a model that answers alike each time, got 20 draws" in str(done.exception)


def test_two_processes_keep_the_examples_of_one(stored_run: Path, tmp_path: Path) -> None:
    mode = json.loads((stored_run / "evaluation.json").read_text())["mode"]
    port = str(29641 + len(mode))  # both modes may run at once
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port]
    asked = ["--checks", "--mode", mode, "--out", str(tmp_path / "two")]  # one of them examines the model
    words = [*launcher, "-m", "scaleproof", *COMMAND, *asked]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    one, two = (read_arrays(folder / "examples.npz") for folder in (stored_run, tmp_path / "two"))
    assert one is not None
    assert two is not None
    for name, values in one.items():
        np.testing.assert_array_equal(values, two[name])
    assert json.loads((tmp_path / "two" / "evaluation.json").read_text())["checks"]
    assert verify(tmp_path / "two").confirmed
