"""A training whose numbers are none any more: what was the first to be NaN or infinite, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from scaleproof.models.classifier import Classifier
from scaleproof.parallel import Group
from scaleproof.training.checkpoint import read_checkpoint


class First:
    """What was the first to be no number: outputs, then terms by place. It stays on the device, where no step waits."""

    def __init__(self, slots: int, device: torch.device) -> None:
        self.flags = torch.zeros(1 + slots, dtype=torch.int64, device=device)  # after the steps that had none

    def look(self, outputs: Tensor, terms: Iterable[Tensor]) -> None:
        """Of one step; nothing counts after the first step that had any."""
        found = torch.stack([~outputs.isfinite().all(), *(~term.detach().isfinite() for term in terms)])
        sound = ~self.flags[1:].any()
        self.flags[1 : 1 + len(found)] += found & sound
        self.flags[0] += sound & ~found.any()

    def read(self, names: Sequence[str], group: Group) -> tuple[bool, list[str]]:
        """Whether outputs of the network were among them, and which terms were, on the ranks that had any first."""
        table = self.flags.new_zeros(group.size, len(self.flags))
        table[group.rank] = self.flags
        group.add_up([table])
        table = table[table[:, 1:].any(1)]
        outputs, *terms = (
            table[table[:, 0] == table[:, 0].amin(), 1:].any(0).tolist() if len(table) else [False]
        )
        return outputs, [name for name, flag in zip(names, terms, strict=False) if flag]


def told(when: str, outputs: bool, terms: Sequence[str], *, bf16: bool) -> tuple[str, str]:
    """What became NaN or infinite, and the remedy."""
    gentler = slower(bf16)
    if outputs:
        remedy = f"{gentler}; where that changes nothing, a gradient is NaN (of a root or a norm at 0)"
        return f"the loss is NaN or infinite {when} (the network's outputs were before it)", remedy
    if terms:
        named = " and ".join(map(repr, terms))
        return (
            f"the loss is NaN or infinite {when} (first in it {named}, of outputs that were numbers)",
            f"look at how {named} is computed (logarithms, roots and quotients of 0), or {gentler}",
        )
    return f"weights or statistics are NaN or infinite {when} (the loss was a number)", gentler


def slower(bf16: bool) -> str:
    """The remedy where numbers grew too large."""
    return f"lower the learning rate{', or train in float32' if bf16 else ''}"


def failure(what: str, remedy: str, folder: Path | None) -> ValueError:
    """The error that ends a training, with what is left of it."""
    found = None if folder is None else read_checkpoint(folder)
    kept = "" if found is None else f"; the checkpoint of epoch {found.epoch} is kept in {folder}"
    return ValueError(f"{what}{kept}: {remedy}")


def masks(classifier: Classifier) -> frozenset[str]:
    """The names of buffers that hold infinities from the start, and so are no statistics."""
    named = classifier.named_buffers()
    return frozenset(name for name, buffer in named if bool(buffer.isinf().any()))


def numbers(classifier: Classifier, without: frozenset[str]) -> list[Tensor]:
    """The tensors that have to stay numbers: weights and statistics as they are now, but for these masks."""
    named = (*classifier.named_parameters(), *classifier.named_buffers())
    return [tensor for name, tensor in named if name not in without and tensor.is_floating_point()]


def check_numbers(classifier: Classifier) -> None:
    """Refuse weights and statistics that are none before a training begins; masks may hold infinities, not NaN."""
    named, infinite = [*classifier.named_parameters(), *classifier.named_buffers()], masks(classifier)
    wrong = [
        name
        for name, tensor in named
        if bool(tensor.isnan().any() if name in infinite else ~tensor.isfinite().all())
    ]
    if wrong:
        raise ValueError(
            f"weights must be numbers before a training begins, {wrong[0]} has NaN or infinite ones "
            f"({len(wrong)} of {len(named)} tensors do): look at what builds or loads the network"
        )
