"""Models by name: what loads, and what each mistake is answered with."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from model_zoo import images, seeded, timm_model
from scaleproof.attacks import suite
from scaleproof.models import Classifier, build, load_model, save_model, weights_digest
from scaleproof.models import specs as specs_module

FACTORIES = """
import torch
from torch import nn
from scaleproof.models import Classifier

def network():
    import lazily_imported
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 10))

def classifier():
    return Classifier(network(), logit_scale=2.0)

def nothing():
    return None

def needy(path):
    return network()

number = 3
"""


@pytest.fixture
def net() -> nn.Module:
    return seeded(lambda: build("resnet-small", classes=4))


@pytest.fixture
def saved(net: nn.Module, tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_model(path, net, "resnet-small")
    return path


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"factories_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(FACTORIES)
    (tmp_path / "lazily_imported.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return name


def test_weights_file(net: nn.Module, saved: Path) -> None:
    loaded = load_model(str(saved))
    assert (loaded.spec, loaded.architecture, loaded.notes) == (str(saved), "resnet-small", ())
    assert loaded.sha256 == weights_digest(net)
    assert not any(module.training for module in loaded.classifier.modules())
    assert torch.equal(loaded.classifier(images()), net(images()))


def test_run_folder(net: nn.Module, saved: Path) -> None:
    with pytest.raises(ValueError, match=r"lacks \['run.json'\]"):
        load_model(str(saved.parent))
    (saved.parent / "run.json").write_text("{}")
    assert load_model(str(saved.parent)).sha256 == weights_digest(net)


def test_settings_of_a_classifier_are_kept(net: nn.Module, tmp_path: Path) -> None:
    classifier = Classifier(net, mean=[0.4, 0.5, 0.6], std=[0.2, 0.3, 0.1], logit_scale=2.5)
    save_model(tmp_path / "own.safetensors", classifier, "resnet-small")
    loaded = load_model(str(tmp_path / "own.safetensors"))
    assert torch.equal(loaded.classifier(images()), classifier(images()))


def test_demo(net: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs_module, "ASSETS", tmp_path)
    with pytest.raises(ValueError, match="which this installation lacks"):
        load_model("demo")
    half = {name: t.half() if t.is_floating_point() else t for name, t in net.state_dict().items()}
    save_file(half, tmp_path / "demo.safetensors", {"architecture": "resnet-small"})
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    loaded = load_model("demo")
    assert loaded.notes == ()
    assert {p.dtype for p in loaded.classifier.parameters()} == {torch.float32}
    torch.testing.assert_close(loaded.classifier(images()), net(images()), rtol=0.02, atol=0.02)


def test_architecture_is_needed_where_the_file_does_not_say(net: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "bare.safetensors"
    save_file({f"module.{name}": tensor for name, tensor in net.state_dict().items()}, path)
    with pytest.raises(ValueError, match="does not say its architecture"):
        load_model(str(path))
    loaded = load_model(str(path), architecture="resnet-small")
    assert loaded.notes == ("the prefix 'module.' was taken off every name in the weights",)
    assert loaded.sha256 == weights_digest(net)
    with pytest.raises(ValueError, match="did you mean 'resnet18'"):
        load_model(str(path), architecture="resnet-18")


def test_misfit_lists_what_is_wrong(saved: Path) -> None:
    tensors = load_file(saved)
    tensors["extra.weight"] = tensors.pop("conv1.weight")
    tensors["bn1.weight"] = torch.zeros(7)
    tensors["bn1.num_batches_tracked"] = torch.tensor(0.5)
    save_file(tensors, saved, {"architecture": "resnet-small"})
    with pytest.raises(ValueError) as caught:
        load_model(str(saved))
    text = str(caught.value)
    assert "missing: 1 (conv1.weight)" in text
    assert "unexpected: 1 (extra.weight)" in text
    assert "another shape: 2 (bn1.weight (7,) for (16,), bn1.num_batches_tracked () for () int64)" in text


def test_another_architecture_than_the_file_says_is_told_so(saved: Path) -> None:
    with pytest.raises(ValueError) as caught:
        load_model(str(saved), architecture="resnet18")
    assert "are those of 'resnet-small', got 'resnet18'" in str(caught.value)
    assert str(caught.value).endswith("leave out --arch (architecture=)")
    assert "missing" not in str(caught.value)


def test_another_architecture_is_counted_and_shortened(saved: Path) -> None:
    save_file(load_file(saved), saved)  # a file that does not say what it is
    with pytest.raises(ValueError, match=r"must fit PreActResNet.*missing: \d+ \(.*, \.\.\.\)"):
        load_model(str(saved), architecture="preact-resnet18")


@pytest.mark.parametrize("old", [False, True])
def test_pickles_are_recognised(net: nn.Module, tmp_path: Path, old: bool) -> None:
    path = tmp_path / "model.pt"
    torch.save(net.state_dict(), path, _use_new_zipfile_serialization=not old)
    with pytest.raises(ValueError, match=r'is a pickle(.|\n)*torch.load\("model.pt".*weights_only=True'):
        load_model(str(path), architecture="resnet-small")


def test_advice_on_pickles_works(net: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(net.state_dict(), tmp_path / "model.pt")
    with pytest.raises(ValueError) as caught:
        load_model(str(tmp_path / "model.pt"))
    monkeypatch.chdir(tmp_path)
    lines = [line.strip() for line in str(caught.value).splitlines()[1:]]
    exec("\n".join(["import torch, safetensors.torch", *lines]), {})
    assert load_model("model.safetensors", architecture="resnet-small").sha256 == weights_digest(net)


def test_damaged_files(saved: Path) -> None:
    whole = saved.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"hello", b"\xff" * 100, whole + b"more"):
        saved.write_bytes(content)
        with pytest.raises(ValueError, match="is damaged or something else"):
            load_model(str(saved))


def test_header_that_begins_like_a_pickle_is_read(net: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    path.write_bytes((0x280).to_bytes(8, "little") + header.ljust(0x280) + b"\0" * 4)
    with pytest.raises(ValueError, match=r"unexpected: 1 \(w\)"):
        load_model(str(path), architecture="resnet-small")


def test_missing_file_suggests_its_neighbour(saved: Path) -> None:
    with pytest.raises(
        ValueError, match=r"there is none at .*modle.safetensors; did you mean .*model.safetensors"
    ):
        load_model(str(saved.parent / "modle.safetensors"))


def test_factories(factories: str) -> None:
    path = list(sys.path)
    loaded = load_model(f"{factories}:network")
    assert loaded.architecture == "Sequential"
    assert loaded.classifier(images()).shape == (5, 10)
    assert load_model(f"{factories}:classifier").classifier.logit_scale == 2.0
    assert sys.path == path


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("nothing", "must return a torch.nn.Module or a Classifier, got NoneType"),
        ("needy", "callable without arguments: missing a required argument: 'path'"),
        ("number", "must name a function without arguments, got int"),
        ("netwrk", "which has no 'netwrk'; did you mean 'network'"),
    ],
)
def test_factories_that_are_none(factories: str, name: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        load_model(f"{factories}:{name}")


def test_imports_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="no module 'absent_module' here or installed"):
        load_model("absent_module:factory")
    with pytest.raises(ValueError, match="did you mean 'timm:'"):
        load_model("tim:resnet18")
    (tmp_path / "importing_the_absent.py").write_text("import something_absent")
    with pytest.raises(ModuleNotFoundError, match="something_absent"):
        load_model("importing_the_absent:factory")


@pytest.mark.parametrize("spec", ["", "demmo", ":", "a:", ":b"])
def test_unknown_specs(spec: str) -> None:
    with pytest.raises(ValueError, match=f"a model spec must be demo.*got '{spec}'"):
        load_model(spec)
    if spec == "demmo":
        with pytest.raises(ValueError, match="did you mean 'demo'"):
            load_model(spec)


def test_architecture_goes_with_files_only() -> None:
    with pytest.raises(ValueError, match="goes with weights files only"):
        load_model("timm:resnet18", architecture="resnet18")


def test_timm(tmp_path: Path) -> None:
    net = timm_model("mobilenetv3_small_050").eval()
    loaded = load_model("timm:mobilenetv3_small_050", classes=3)
    assert loaded.classifier(images(size=32)).shape == (5, 3)
    assert loaded.notes == ("no weights were given: they are random",)
    path = tmp_path / "own.safetensors"
    save_file(net.state_dict(), path)
    loaded = load_model(f"timm:mobilenetv3_small_050@{path}", classes=3)
    x = images(size=32)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    expected = net((x - mean[:, None, None]) / std[:, None, None])
    torch.testing.assert_close(loaded.classifier(x), expected)
    with pytest.raises(ValueError, match="did you mean 'timm:resnet18'"):
        load_model("timm:resnet181")


def test_timm_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ValueError, match="pip install -e"):
        load_model("timm:resnet18")


def test_a_run_that_is_not_finished_and_a_file_for_a_module_are_told(tmp_path: Path) -> None:
    (tmp_path / "unfinished.json").write_text("{}")
    with pytest.raises(ValueError, match="the run is not finished, run its command again"):
        load_model(str(tmp_path))
    with pytest.raises(ValueError, match="did you mean 'mynet:build', without the ending"):
        load_model("mynet.py:build")


@pytest.mark.parametrize("ending", ["", ".py"])
def test_a_path_for_a_module_is_told_the_folder_to_go_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    (tmp_path / "net_by_path.py").write_text("from torch import nn\ndef build(): return nn.Linear(3, 2)\n")
    for folder, told in (
        (f"{tmp_path}", f"cd {re.escape(str(tmp_path))} and "),
        ("sub", "cd sub and "),
        (".", ""),
    ):
        for call in (load_model, suite):
            with pytest.raises(ValueError, match=f"a module is no path, so {told}give 'net_by_path:build'"):
                call(f"{folder}/net_by_path{ending}:build")
    monkeypatch.chdir(tmp_path)
    assert load_model("net_by_path:build").architecture == "Linear"
