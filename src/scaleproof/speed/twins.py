"""Twins: for a network that is not ours, one that computes the same and that gradients pass through faster.

A network whose graph is plain (`traced.py`) and whose weights are called as in widespread code of ResNets,
PreActResNets and WideResNets is one of ours under other names; any other plain one is folded as it is. Both are tried
on images first: logits and gradients have to be those of the network itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from scaleproof.models.architectures import Weights, fill
from scaleproof.models.classifier import Classifier, device_of, random_state_kept
from scaleproof.models.naming import recognised
from scaleproof.models.robustbench import plain, without_normalisation
from scaleproof.rng import Rng
from scaleproof.speed.fold import can_fold
from scaleproof.speed.precision import exact_float32
from scaleproof.speed.traced import UntraceableError, lowered, made_of_relus, trace

ROWS = 8
NOISE = 8 / 255
SAME_LOGITS = 1e-4  # of the largest one
SAME_GRADIENT = 1e-2  # of its length: a ReLU on the edge may fall to either side
SOUND_LOGITS = 0.1  # the same in bf16
SOUND_GRADIENT = 0.9  # cosine in bf16, in the middle over the images


@dataclass(frozen=True)
class Twin:
    """A classifier with the function of another one: a network of ours, or a graph, which can be lowered further."""

    classifier: Classifier
    note: str
    graph: fx.GraphModule | None = None

    def coarse(self, images: Tensor) -> Classifier | None:
        """The graph in bf16, if its gradients on these images are good enough."""
        assert self.graph is not None
        found = around(self.classifier, lowered(self.graph, torch.bfloat16))
        try:
            (logits, gradient), (wanted, exact) = (slope(one, images) for one in (found, self.classifier))
        except RuntimeError:  # formats that do not go together
            return None
        cosine = float(F.cosine_similarity(gradient, exact).median())
        sound = cosine > SOUND_GRADIENT and apart(logits, wanted) < SOUND_LOGITS  # not where it is NaN
        return found if sound else None


def twin_of(classifier: Classifier, images: Tensor) -> Twin | str:
    """A twin that agrees on these images, or why there is none."""
    images = images[:ROWS]
    try:
        with random_state_kept(images):
            graph = trace(classifier.net)
        for twin in (ours(classifier) if made_of_relus(graph) else None, folded(classifier, graph)):
            if twin is not None and agrees(twin.classifier, classifier, images):
                return twin
    except UntraceableError as reason:
        return str(reason)
    except Exception as error:  # code of other people meets a symbolic image: it may raise anything
        return f"{type(error).__name__} while its forward was traced"
    return "its gradients are not those of its layers"


def ours(classifier: Classifier) -> Twin | None:
    """One of our networks with the same weights, if their names and shapes fit."""
    path = Path(type(classifier.net).__name__)
    try:
        tensors, _ = plain(classifier.net.state_dict())
        tensors, normalisation = without_normalisation(tensors)
        with random_state_kept(torch.empty(0)):
            net, name, found = recognised(tensors, path)
        fill(net, Weights(path=path, tensors=found, metadata={}))
    except ValueError:
        return None
    mean, std = normalisation or listed(classifier)
    if normalisation is not None and classifier.mean is not None:  # twice
        return None
    net = net.to(device_of(classifier)).eval()
    same = Classifier(net, mean=mean, std=std, logit_scale=classifier.logit_scale)
    return Twin(same, f"computed as our {name}") if can_fold(net) else None


def folded(classifier: Classifier, graph: fx.GraphModule) -> Twin:
    return Twin(around(classifier, lowered(graph, torch.float32)), "traced and folded", graph)


def around(classifier: Classifier, net: nn.Module) -> Classifier:
    """The same normalisation, head and logit scale around another network with the same parts."""
    mean, std = listed(classifier)
    head = classifier.head_name or classifier._given
    return Classifier(net, head=head, mean=mean, std=std, logit_scale=classifier.logit_scale)


def listed(classifier: Classifier) -> tuple[Sequence[float] | None, Sequence[float] | None]:
    if classifier.mean is None or classifier.std is None:
        return None, None
    return classifier.mean.tolist(), classifier.std.tolist()


def agrees(twin: Classifier, classifier: Classifier, images: Tensor) -> bool:
    """Whether logits and gradients are the same on these images, as they are and with noise, up to rounding."""
    signs = torch.where(Rng(0, "twins").uniform(torch.arange(len(images)), images.shape[1:]) < 0.5, -1.0, 1.0)
    for points in (images, (images + NOISE * signs.to(images)).clamp(0, 1)):
        (logits, gradient), (wanted, exact) = slope(twin, points), slope(classifier, points)
        error = torch.linalg.vector_norm(gradient - exact, dim=1)
        same = bool((error <= SAME_GRADIENT * torch.linalg.vector_norm(exact, dim=1)).all())
        if not (same and apart(logits, wanted) <= SAME_LOGITS):
            return False
    return True


def apart(logits: Tensor, wanted: Tensor) -> float:
    """The largest difference, as a share of the largest logit."""
    return float((logits - wanted).abs().max() / wanted.abs().max().clamp_min(torch.finfo(wanted.dtype).tiny))


def slope(classifier: Classifier, images: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, K), and the gradient of a fixed mixture of them (B, D)."""
    with exact_float32(), torch.enable_grad():
        point = images.detach().requires_grad_()
        logits = classifier(point)
        mixture = torch.cos(torch.arange(logits.shape[1], device=logits.device) * 0.7)
        (gradient,) = torch.autograd.grad((logits * mixture).sum(), point)
    return logits.detach(), gradient.flatten(1)
