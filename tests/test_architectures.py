"""Our architectures are the published ones, and weights files fill them exactly or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from model_zoo import images, seeded
from scaleproof.models import Classifier, build, save_model, weights_digest
from scaleproof.models.architectures import ARCHITECTURES, fill, read_weights

# PreActResNet-18 is often counted as 11,171,146 without the last BatchNorm (He et al. 2016b have it).
PUBLISHED = {
    "resnet18": 11_173_962,
    "resnet50": 23_520_842,
    "preact-resnet18": 11_171_146 + 2 * 512,
    "wrn-28-10": 36_479_194,
    "wrn-34-10": 46_160_474,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_are_the_published_ones(name: str) -> None:
    with torch.device("meta"):
        net = build(name)
    assert sum(parameter.numel() for parameter in net.parameters()) == PUBLISHED[name]


def test_every_architecture_has_a_name() -> None:
    assert set(ARCHITECTURES) == {*PUBLISHED, "resnet-small", "resnet-tiny"}


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "preact-resnet18", "resnet-small", "resnet-tiny"])
def test_head_and_features_are_the_forward_pass(name: str) -> None:
    net, x = seeded(lambda: build(name, classes=7)), images(2)
    assert torch.equal(net.head(net.features(x)), net(x))
    assert net(x).shape == (2, 7)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("resnet_18", "resnet18"),
        ("WRN34-10", "wrn-34-10"),
        ("preactresnet18", "preact-resnet18"),
        ("wide_resnet34_10", "wrn-34-10"),
    ],
)
def test_unknown_architecture_suggests_the_nearest(asked: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"got '{asked}'; did you mean '{meant}'"):
        build(asked)


def test_names_that_are_equally_near_are_all_suggested() -> None:
    with pytest.raises(ValueError, match="got 'wideresnet'; did you mean 'wrn-28-10' or 'wrn-34-10'"):
        build("wideresnet")
    with pytest.raises(ValueError, match=r"got 'vgg'$"):
        build("vgg")


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="two classes or more, got 1"):
        build("resnet18", classes=1)


def test_save_is_atomic_and_read_gives_it_back(tmp_path: Path) -> None:
    net, path = seeded(lambda: build("resnet-small")), tmp_path / "model.safetensors"
    path.write_bytes(b"older")
    digest = save_model(path, net, "resnet-small", {"epochs": "3"})
    assert digest == weights_digest(net)
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    weights = read_weights(path)
    assert weights.metadata == {"epochs": "3", "architecture": "resnet-small"}
    fresh = build("resnet-small")
    assert weights_digest(fresh) != digest
    assert fill(fresh, weights) == ()
    assert weights_digest(fresh) == digest


def test_failed_save_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError("disk full")

    path = tmp_path / "model.safetensors"
    path.write_bytes(b"older")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        save_model(path, nn.Linear(2, 2), "resnet-small")
    assert path.read_bytes() == b"older"
    assert len(list(tmp_path.iterdir())) == 1


def test_metadata_must_be_strings(tmp_path: Path) -> None:
    metadata: dict[str, str] = {"epochs": 3}  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"metadata must be strings, those of \['epochs'\]"):
        save_model(tmp_path / "model.safetensors", nn.Linear(2, 2), "resnet-small", metadata)


def test_tied_weights_are_saved(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    save_model(tmp_path / "tied.safetensors", net, "custom")
    stored = load_file(tmp_path / "tied.safetensors")
    assert torch.equal(stored["0.weight"], stored["1.weight"])


def test_digest_sees_names_types_shapes_and_bytes() -> None:
    net = nn.Linear(4, 6, bias=False)
    same = nn.Linear(4, 6, bias=False)
    same.load_state_dict(net.state_dict())
    assert weights_digest(net) == weights_digest(same) == weights_digest(Classifier(same))
    reshaped = nn.Linear(6, 4, bias=False)
    reshaped.load_state_dict({"weight": net.weight.detach().reshape(4, 6)})
    others = [nn.Sequential(same), nn.Linear(4, 6, bias=False), reshaped, copy_in_half(net)]
    assert len({weights_digest(other) for other in [net, *others]}) == 5


def copy_in_half(net: nn.Linear) -> nn.Module:
    """The same weights in half precision."""
    other = nn.Linear(net.in_features, net.out_features, bias=False)
    other.load_state_dict(net.state_dict())
    return other.half()


def test_equal_weights_are_equal_bytes(tmp_path: Path) -> None:
    net = build("resnet-tiny")
    metadata = {name: name for name in "hgfedcba"}
    files = [tmp_path / f"{number}.safetensors" for number in range(3)]
    for file in files:
        save_model(file, net, "resnet-tiny", metadata)
    assert len({file.read_bytes() for file in files}) == 1
    with safe_open(files[0], "pt") as found:
        assert found.metadata() == metadata | {"architecture": "resnet-tiny"}
    for name, tensor in load_file(files[0]).items():
        assert torch.equal(tensor, net.state_dict()[name])
