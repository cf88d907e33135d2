"""Twins: for a network that is not ours, one that computes the same and that gradients pass through faster.

A network whose graph is plain (`traced.py`) and whose weights are called as in widespread code of ResNets,
PreActResNets and WideResNets is one of ours under other names; any other plain one is folded as it is. Both are tried
on images first: logits and gradients have to be those of the network itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from scaleproof.models.architectures import Weights, fill
from scaleproof.models.classifier import Classifier, device_of
from scaleproof.models.naming import recognised
from scaleproof.models.robustbench import plain, without_normalisation
from scaleproof.rng import Rng, chance_kept
from scaleproof.speed.activations import with_known_activations
from scaleproof.speed.fold import can_fold, is_own
from scaleproof.speed.precision import exact_float32
from scaleproof.speed.traced import Tracer, UntraceableError, lowered, made_like, trace

ROWS = 8
OTHER_GRADIENTS = "its gradients are not those of its layers"
NOISE = 8 / 255
SAME_LOGITS = 1e-4  # of their spread, see `apart`
SAME_GRADIENT = 1e-2  # of its length: a ReLU on the edge may fall to either side
SOUND_LOGITS = 0.1  # of their spread, in bf16
SOUND_GRADIENT = 0.9  # cosine in bf16, in the middle over the images
WORST_GRADIENT = 0.5  # the same at every one of them


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
        cosines = F.cosine_similarity(gradient, exact)
        cosine, worst = float(cosines.median()), float(cosines.min())
        sound = cosine > SOUND_GRADIENT and worst > WORST_GRADIENT  # not where it is NaN
        sound = sound and apart(logits, wanted) < SOUND_LOGITS
        return found if sound else None


def twin_of(classifier: Classifier, images: Tensor) -> Twin | str:
    """A twin that agrees on these images, or why there is none."""
    images = images[:ROWS]
    try:
        with chance_kept(images.device):
            graph, net = followed(classifier.net)
            named = classifier if net is classifier.net else around(classifier, net)
            if not same_graph(around(classifier, graph), named, images):
                return OTHER_GRADIENTS
            if named is not classifier and not agrees(named, classifier, sizes(images)):
                return OTHER_GRADIENTS
            for twin in (ours(classifier, graph), folded(classifier, graph)):
                if twin is not None and agrees(twin.classifier, classifier, (images, noisy(images))):
                    return twin
    except UntraceableError as reason:
        return str(reason)
    except Exception as error:  # code of other people meets a symbolic image: it may raise anything
        return f"{type(error).__name__} while its forward was traced"
    return OTHER_GRADIENTS


def followed(net: nn.Module) -> tuple[fx.GraphModule, nn.Module]:
    """The network's graph, and the network that it is the graph of: with known activations, where it needs them."""
    try:
        return trace(net), net
    except Exception:
        plain_net = with_known_activations(net)
        if plain_net is net:
            raise
        return trace(plain_net), plain_net


def same_graph(traced: Classifier, classifier: Classifier, images: Tensor) -> bool:
    """Whether the trace takes the very same steps back: behind no function stands another gradient than its own.

    Code that asks for a tensor's kind may hide what depends on the size of a batch. The network itself comes first: of
    images that it does not take, torch would print the lines of the trace.
    """
    for points in sizes(images):
        (wanted, exact), (found, logits) = (steps_back(one, points) for one in (classifier, traced))
        if found != wanted or apart(logits, exact) > SAME_LOGITS:
            return False
    return True


def sizes(images: Tensor) -> tuple[Tensor, ...]:
    """These images, one of them, and a larger batch."""
    return images, images[:1], images.repeat(3, 1, 1, 1)[: 2 * ROWS + 1]


def steps_back(classifier: Classifier, images: Tensor) -> tuple[Counter[str], Tensor]:
    """The names of all functions in the graph from the logits to the images, and the logits."""
    with exact_float32(), torch.enable_grad():
        logits = classifier(images.detach().requires_grad_())
    seen: set[Any] = set()
    ahead: list[Any] = [logits.grad_fn]
    while ahead:
        step = ahead.pop()
        if step is not None and step not in seen:
            seen.add(step)
            ahead += [one for one, _ in step.next_functions]
    names = Counter(step.name() for step in seen)
    return Counter({name: names[name] for name in names if "AccumulateGrad" not in name}), logits.detach()


def ours(classifier: Classifier, graph: fx.GraphModule) -> Twin | None:
    """One of our networks with the same weights, if names and shapes fit and its graph is made of the same parts."""
    path = Path(type(classifier.net).__name__)
    try:
        tensors, _ = plain(classifier.net.state_dict())
        tensors, normalisation = without_normalisation(tensors)
        with torch.device("meta"):  # nothing is spent on one that does not fit
            plan, _, _ = recognised(tensors, path)
        size = sum(tensor.numel() for tensor in tensors.values())
        if not is_own(plan) or sum(weight.numel() for weight in plan.parameters()) > size:
            return None
        net, name, found = recognised(tensors, path)
        fill(net, Weights(path=path, tensors=found, metadata={}))
    except ValueError:
        return None
    mean, std = normalisation or listed(classifier)
    if normalisation is not None and classifier.mean is not None:  # twice
        return None
    net = net.to(device_of(classifier)).eval()
    if not made_like(graph, fx.GraphModule(net, Tracer(graded=False).trace(net)), 2 if normalisation else 0):
        return None
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


def agrees(twin: Classifier, classifier: Classifier, batches: Sequence[Tensor]) -> bool:
    """Whether logits and gradients are the same on all of these images, up to rounding."""
    for points in batches:
        (logits, gradient), (wanted, exact) = slope(twin, points), slope(classifier, points)
        error = torch.linalg.vector_norm(gradient - exact, dim=1)
        lengths = torch.linalg.vector_norm(exact, dim=1)
        same = bool((error <= SAME_GRADIENT * lengths).all()) and bool((lengths > 0).any())
        if not (same and apart(logits, wanted) <= SAME_LOGITS):
            return False
    return True


def noisy(images: Tensor) -> Tensor:
    signs = torch.where(Rng(0, "twins").uniform(torch.arange(len(images)), images.shape[1:]) < 0.5, -1.0, 1.0)
    return (images + NOISE * signs.to(images)).clamp(0, 1)


def apart(logits: Tensor, wanted: Tensor) -> float:
    """The largest difference, as a share of how far logits usually are from an image's middle one."""
    spread = (wanted - wanted.median(1, keepdim=True).values).abs().quantile(0.75)
    differences = (logits - wanted).abs() / (
        spread + wanted.abs() * torch.finfo(wanted.dtype).eps / SAME_LOGITS
    )
    return float(differences.max())


def slope(classifier: Classifier, images: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, K), and the gradient of a fixed mixture of them (B, D)."""
    with exact_float32(), torch.enable_grad():
        point = images.detach().requires_grad_()
        logits = classifier(point)
        mixture = torch.cos(torch.arange(logits.shape[1], device=logits.device) * 0.7)
        (gradient,) = torch.autograd.grad((logits * mixture).sum(), point)
    return logits.detach(), gradient.flatten(1)
