"""Image classifiers of transformers from a local folder, and timm's from a local file."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers import images
from scaleproof import PGD, Threat, evaluate
from scaleproof.losses import cw_margin
from scaleproof.models import load_model, save_model
from scaleproof.models.operators import make_torchvision_importable

make_torchvision_importable()
transformers = pytest.importorskip("transformers")
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]


def vit(size: int = 32) -> Any:
    config = transformers.ViTConfig(**SMALL, image_size=size, patch_size=8, num_labels=5)
    return transformers.ViTForImageClassification(config).eval()


def resnet() -> Any:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=4
    )
    return transformers.ResNetForImageClassification(config).eval()


def saved(net: Any, folder: Path, **processor: Any) -> str:
    net.save_pretrained(folder)
    if processor:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return f"hf:{folder}"


def reference(net: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = net(pixel_values=x).logits
    return logits


@pytest.mark.parametrize("make", [vit, resnet])
def test_logits_are_those_of_the_model(make: Any, tmp_path: Path) -> None:
    net, x = make(), images(4, (3, 32, 32), low=0, high=1)
    spec = saved(
        net, tmp_path, image_mean=MEAN, image_std=STD, do_normalize=True, size={"height": 32, "width": 32}
    )
    loaded = load_model(spec)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    assert torch.allclose(loaded.classifier(x), reference(net, (x - mean) / std), atol=1e-5)
    assert loaded.architecture == type(net).__name__
    assert not any(module.training for module in loaded.classifier.modules())


def test_small_images_are_resized_inside(tmp_path: Path) -> None:
    net, x = vit(48), images(3, (3, 32, 32))
    loaded = load_model(saved(net, tmp_path, size={"height": 48, "width": 48}, resample=3))
    larger = torch.nn.functional.interpolate(x, (48, 48), mode="bicubic", align_corners=False, antialias=True)
    assert torch.allclose(loaded.classifier(x), reference(net, larger), atol=1e-5)
    assert any("resized to 48 x 48" in note for note in loaded.notes)


def test_without_a_processor(tmp_path: Path) -> None:
    net, x = vit(), images(3, (3, 32, 32))
    loaded = load_model(saved(net, tmp_path))
    assert torch.allclose(loaded.classifier(x), reference(net, x), atol=1e-5)
    assert any("names no normalisation" in note for note in loaded.notes)


def test_a_processor_that_keeps_bytes(tmp_path: Path) -> None:
    net, x = vit(), images(3, (3, 32, 32))
    settings = {"image_mean": [100.0] * 3, "image_std": [50.0] * 3, "do_rescale": False}
    loaded = load_model(saved(net, tmp_path, **settings))
    assert torch.allclose(loaded.classifier(x), reference(net, (255 * x - 100) / 50), atol=1e-4)


def test_it_can_be_attacked(tmp_path: Path) -> None:
    loaded = load_model(saved(vit(), tmp_path, image_mean=MEAN, image_std=STD))
    x = images(6, (3, 32, 32))
    with torch.no_grad():
        (first, second), y = loaded.classifier(x).topk(2).values.T, loaded.classifier(x).argmax(1)
    found = evaluate(loaded.classifier, (x, y), [PGD(threat=Threat(eps=0.1), objective=cw_margin, steps=5)])
    margin = torch.from_numpy(found.attacks[0].verdicts["margin"][0])
    assert found.clean.correct == 6
    assert (margin > second - first).all()


def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a folder with config.json in it, got .*nowhere"):
        load_model(f"hf:{tmp_path / 'nowhere'}")
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(ValueError, match=r"weights must be safetensors, .* a pickle may run code"):
        load_model(f"hf:{tmp_path}")
    saved(vit(), tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="holds no image classifier that transformers can build"):
        load_model(f"hf:{tmp_path}")


def test_code_in_the_folder_does_not_run(tmp_path: Path) -> None:
    spec = saved(vit(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {
        "model_type": "mine",
        "auto_map": {"AutoModelForImageClassification": "mine.Mine", "AutoConfig": "mine.C"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    with pytest.raises(ValueError, match="holds no image classifier"):
        load_model(spec)
    assert not (tmp_path / "owned").exists()


def test_timm_offline(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    fresh = load_model("timm:test_vit", classes=7)
    assert "random" in fresh.notes[0]
    file = tmp_path / "weights.safetensors"
    save_model(file, fresh.classifier, "test_vit")
    again = load_model(f"timm:test_vit@{file}")
    x = images(2, (3, 160, 160))
    assert torch.equal(again.classifier(x), fresh.classifier(x))
    assert again.sha256 == fresh.sha256
    torch.save(fresh.classifier.net.state_dict(), tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="is a pickle, which may run code: convert it"):
        load_model(f"timm:test_vit@{tmp_path / 'weights.pt'}")
