"""Examples: bit for bit what was judged, in little space, also after a kill."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import SmallConvNet, decisions, images
from scaleproof import Threat, attack_batch, evaluate, load, load_model, suite
from scaleproof.examples import pack, unpack
from scaleproof.progress import Progress
from scaleproof.store import FolderStore, npz_bytes, read_arrays


class KilledError(Exception):
    pass


@pytest.mark.parametrize("mode", ["independent", "cascade"])
def test_examples_survive_a_kill(tmp_path: Path, mode: Any) -> None:
    net, x = SmallConvNet(5).eval(), images(60, (3, 8, 8))
    data, attacks = (x, decisions(net, x)), suite("pgd,pgd-cw", Threat(eps=0.02), steps=4, restarts=2)
    whole = evaluate(net, data, attacks, mode=mode, batch_size=16, keep_examples=True).examples
    assert whole is not None
    plain = FolderStore(tmp_path / "plain")
    assert evaluate(net, data, attacks, mode=mode, batch_size=16, store=plain).examples is None
    assert not any("example_row" in (read_arrays(path) or {}) for path in plain.folder.glob("*.npz"))

    def stop(at: int) -> Callable[[Progress], None]:
        def report(progress: Progress) -> None:
            if progress.done >= at:
                raise KilledError

        return report

    for name, moments in (("cut", (12, 18, 25)), ("plain", ())):  # the last had its units without examples
        store = FolderStore(tmp_path / name)
        for at in moments:
            with pytest.raises(KilledError):
                evaluate(
                    net,
                    data,
                    attacks,
                    mode=mode,
                    batch_size=16,
                    store=store,
                    progress=stop(at),
                    keep_examples=True,
                )
        again = evaluate(
            net, data, attacks, mode=mode, batch_size=16, store=store, keep_examples=True
        ).examples
        assert again is not None
        for field in ("row", "attack", "restart", "code", "rest"):
            np.testing.assert_array_equal(getattr(whole, field), getattr(again, field))


@given(
    st.integers(0, 2**31 - 1),
    st.sampled_from([Threat(eps=8 / 255), Threat(eps=0), Threat(norm="l2", eps=0.5)]),
    st.sampled_from([np.float32, np.float64]),
)
def test_packing_loses_no_bit(seed: int, threat: Threat, kind: Any) -> None:
    random = np.random.default_rng(seed)
    clean = (random.integers(0, 256, (3, 3, 4, 4)) / 255).astype(kind)
    noise = random.choice([-1, 1, 0.3, random.random()], clean.shape) * threat.eps
    perturbed = threat.project(
        torch.from_numpy((clean + noise).astype(kind)), torch.from_numpy(clean)
    ).numpy()
    perturbed[0, 0, 0, 0] = -0.0
    code, rest = pack(perturbed, clean, threat)
    again = unpack(code, rest, clean, threat)
    assert again.dtype == perturbed.dtype
    assert again.tobytes() == perturbed.tobytes()


def test_packed_examples_are_small() -> None:
    net, (x, y) = load_model("demo").classifier, load("sample").batch(0, 20)
    found = attack_batch(suite("pgd")[0], net, x, y).numpy()
    code, rest = pack(found, x.numpy(), Threat())
    assert len(npz_bytes({"code": code, "rest": rest})) < 0.15 * found.nbytes
    assert len(npz_bytes({"images": found})) > 0.3 * found.nbytes, "or there is no need to pack"
