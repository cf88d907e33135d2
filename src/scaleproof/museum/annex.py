"""The annex of the museum: broken defenses that were written, with their expectations, before any check had seen them.

No limit of a check was set on them, so they say what the checks do with what they were not made for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from scaleproof.models.backward import identity
from scaleproof.models.classifier import Classifier
from scaleproof.museum import annex_networks as networks
from scaleproof.museum import annex_parts as parts
from scaleproof.museum.parts import Defended
from scaleproof.museum.rooms import (
    MANY_DRAWS,
    NO_SCALE,
    PASS_THROUGH,
    Key,
    Room,
    after,
    before,
    through,
    underneath,
)

COPIES = 5


def after_blocks(part: Callable[[float], nn.Module]) -> Callable[[nn.Module, float], nn.Module]:
    """A part after each block of a network."""

    def built(net: nn.Module, strength: float) -> nn.Module:
        blocks = net.get_submodule("blocks").children()
        net.blocks = nn.Sequential(*(nn.Sequential(block, part(strength)) for block in blocks))
        return net.eval()

    return built


def voting(net: nn.Module, noise: float) -> nn.Module:
    return Defended(net, before=parts.Copies(COPIES, noise), after=parts.Votes(COPIES))


def adapting(net: nn.Module, share: float) -> nn.Module:
    """Every BatchNorm mixes in the statistics of the batch."""
    norms = [name for name, part in net.named_modules() if isinstance(part, nn.BatchNorm2d)]
    for name in norms:
        norm = net.get_submodule(name)
        assert isinstance(norm, nn.BatchNorm2d)
        net.set_submodule(name, networks.AdaptiveNorm(norm, share))
    return net


def soft_votes(logits: Tensor) -> Tensor:
    return logits.softmax(1).reshape(-1, COPIES, logits.shape[1]).mean(1)


def mean_answer(answers: Tensor) -> Tensor:
    return answers.mean(1)


def normalising(net: nn.Module) -> Classifier:
    part = net.get_submodule("before")
    assert isinstance(part, parts.Denormalise)
    return Classifier(net, mean=(part.mean,) * 3, std=(part.std,) * 3)


def inside_the_graph(net: nn.Module) -> Classifier:
    part = net.get_submodule("before")
    assert isinstance(part, parts.Detector)
    return Classifier(net, backward={"before": part.inside})


def without_adapting(net: nn.Module) -> Classifier:
    found = copy.deepcopy(net)
    for part in found.modules():
        if isinstance(part, networks.AdaptiveNorm):
            part.share = 0.0
    return Classifier(found)


THROUGH_THE_END = partial(Classifier, backward={"after": identity})
INSIDE = Key(words="the network inside", opened=underneath)

ANNEX = (
    Room(
        name="total-variation",
        words="a smoother image, searched for outside the graph",
        strengths=(0.02, 0.04),
        built=before(parts.TotalVariation),
        caught_by="gradient-detached",
        key=PASS_THROUGH,
    ),
    Room(
        name="pixel-deflection",
        words="random pixels take a neighbour's colour",
        strengths=(0.05, 0.15),
        built=before(parts.Deflect),
        caught_by="determinism",
        key=MANY_DRAWS,
    ),
    Room(
        name="votes",
        words="votes of a few noisy copies",
        strengths=(0.02, 0.04),
        built=voting,
        caught_by="gradient-detached",
        key=Key(
            words="BPDA and EOT: mean probabilities in place of votes, 4 draws",
            opened=partial(Classifier, backward={"after": soft_votes}),
            draws=4,
        ),
    ),
    Room(
        name="activation-pruning",
        words="small activations dropped at random",
        strengths=(2.0, 1.0),
        built=after_blocks(parts.Prune),
        caught_by="determinism",
        key=MANY_DRAWS,
    ),
    Room(
        name="tanh",
        words="logits squeezed between -1 and 1",
        strengths=(10, 100),
        built=after(parts.Tanh),
        caught_by="gradient-zero",
        key=Key(words="BPDA: the identity in place of the squeeze", opened=THROUGH_THE_END),
    ),
    Room(
        name="powers",
        words="logits to a power",
        strengths=(3, 5),
        built=after(parts.Power),
        caught_by="scale",
        key=NO_SCALE,
    ),
    Room(
        name="half-precision",
        words="large logits in float16",
        strengths=(8, 32),
        built=after(parts.Half),
        caught_by="gradient-zero",
        key=NO_SCALE,
    ),
    Room(
        name="output-code",
        words="logits as bits of an error-correcting code",
        strengths=(64, 256),
        built=after(lambda bits: parts.Code(int(bits))),
        caught_by="gradient-zero",
        key=Key(words="BPDA: the identity in place of the code", opened=THROUGH_THE_END),
    ),
    Room(
        name="reversed",
        words="a hook that turns the gradient around",
        strengths=(1.0, 0.001),
        built=before(lambda size: parts.Hook(lambda gradient: -size * gradient)),
        caught_by="gradient-direction",
        key=PASS_THROUGH,
    ),
    Room(
        name="drowned",
        words="a hook that drowns the gradient in noise",
        strengths=(10, 100),
        built=before(lambda noise: parts.Hook(partial(parts.drowned, noise=noise))),
        caught_by="gradient-direction",
        key=PASS_THROUGH,
    ),
    Room(
        name="few-pixels",
        words="few pixels stay in the graph",
        strengths=(16, 64),
        built=before(lambda every: parts.FewPixels(int(every))),
        caught_by="gradient-pixels",
        key=PASS_THROUGH,
    ),
    Room(
        name="hashed-ensemble",
        words="a hash of the image chooses who answers",
        strengths=(2, 4),
        built=lambda net, members: networks.Hashed(net, int(members)),
        caught_by="gradient-direction",
        key=Key(
            words="BPDA: the mean answer in place of the choice",
            opened=partial(Classifier, backward={"choose": mean_answer}),
        ),
    ),
    Room(
        name="coarse-activations",
        words="activations in steps",
        strengths=(0.25, 0.5),
        built=after_blocks(parts.Steps),
        caught_by="gradient-zero",
        key=Key(words="BPDA: the identity in place of the steps", opened=through(parts.Steps)),
    ),
    Room(
        name="not-normalised",
        words="a network that waits for normalised images",
        strengths=(0.5, 0.25),
        built=before(lambda std: parts.Denormalise(0.5, std)),
        caught_by="normalisation",
        key=Key(words="the normalisation that it waits for", opened=normalising),
    ),
    Room(
        name="adaptive-norm",
        words="BatchNorm in eval mode that adapts to the batch",
        strengths=(0.5, 1.0),
        built=adapting,
        caught_by="batch",
        key=Key(words="the statistics of the training images", opened=without_adapting),
    ),
    Room(
        name="shifted-classes",
        words="classes counted from another place",
        strengths=(1, -1),
        built=after(lambda places: parts.Roll(int(places))),
        caught_by="labels",
        key=None,
    ),
    Room(
        name="chaos",
        words="a chaotic map on every pixel",
        strengths=(30, 50),
        built=before(lambda turns: parts.Chaos(int(turns))),
        caught_by="gradient-size",
        key=PASS_THROUGH,
    ),
    Room(
        name="memory",
        words="the first answer again to all that look alike",
        strengths=(10 / 255, 20 / 255),
        built=networks.Remember,
        caught_by="gradient-zero",
        key=INSIDE,
    ),
    Room(
        name="noise-detector",
        words="noisy images are smoothed outside the graph",
        strengths=(0.0035, 0.004),
        built=before(parts.Detector),
        caught_by="transfer",
        key=Key(words="BPDA: the same smoothing inside the graph", opened=inside_the_graph),
    ),
    Room(
        name="anti-adversary",
        words="each image is moved towards its own decision first",
        strengths=(4 / 255, 8 / 255),
        built=networks.Reassured,
        caught_by="transfer",
        key=INSIDE,
    ),
)
