"""What the steps of an epoch add up to, on the device, where no step waits for it: terms of the loss, right answers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from scaleproof.defenses.base import Defense, Outcome
from scaleproof.losses import logits
from scaleproof.parallel import Group
from scaleproof.training.checks import MOST_TERMS, check_names
from scaleproof.training.diverged import First

FACTS = 2  # slots before those of the terms: rows, right ones; in the flags of `First` steps, outputs


class Totals:
    """Running totals with a slot for each term that any step had so far, and what was no number first."""

    def __init__(self, defense: Defense, device: torch.device) -> None:
        self.defense = defense
        self.sums = torch.zeros(FACTS + MOST_TERMS, dtype=torch.float64, device=device)
        self.first = First(len(self.sums), device)
        self.names: list[str] = []

    def tensors(self) -> tuple[Tensor, Tensor]:
        return self.sums, self.first.flags

    def add(self, outcome: Outcome, y: Tensor) -> None:
        """Add a batch, or this rank's part of one."""
        outputs = logits(outcome.output)
        self.names += [name for name in outcome.terms if name not in self.names]
        check_names(self.names, self.defense)
        terms = [outcome.terms.get(name, outputs.new_zeros(())).detach() for name in self.names]
        self.first.look(outputs, terms)
        right = (outputs.argmax(1) == y).sum()
        rows = torch.full_like(right, len(y))
        values = [rows, right, *(term * len(y) for term in terms)]
        self.sums[: len(values)] += torch.stack([value.double() for value in values])

    def pass_over(self, rows: Tensor) -> None:
        """A step without rows, and without a fault."""
        self.first.look(rows, ())

    def agree(self, group: Group) -> None:
        """The same slot for a term on every rank: one may have had no rows where others met it first."""
        everywhere: Sequence[list[str]] = group.gathered(self.names)
        names = list(dict.fromkeys(chain(*everywhere)))
        if any(one != names for one in everywhere):
            check_names(names, self.defense)
            slots = [FACTS + names.index(name) for name in self.names]
            for tensor in self.tensors():
                mine = tensor[FACTS : FACTS + len(slots)].clone()
                tensor[FACTS:] = 0
                tensor[slots] = mine
            self.names = names

    def means(self, group: Group) -> dict[str, float]:
        """Since the last time: the terms, their sum as `loss`, and the accuracy on what was trained on."""
        self.agree(group)
        sums = self.sums.clone()
        group.add_up([sums])
        self.sums.zero_()
        rows, right, *terms = sums.tolist()
        means = {name: value / max(rows, 1) for name, value in zip(self.names, terms, strict=False)}
        loss = {"loss": sum(means.values())}  # first, also where a term of some steps is called so
        return loss | means | loss | {"train_accuracy": right / max(rows, 1)}

    def fault(self, group: Group) -> tuple[bool, list[str]]:
        """Whether outputs were the first to be no numbers, and which terms were."""
        self.agree(group)
        return self.first.read(self.names, group)
