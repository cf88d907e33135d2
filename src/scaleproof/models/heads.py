"""Finding the head: the last linear layer, whose output the logits follow up to a positive scale."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

RESIDUAL = 1e-3  # relative residual up to which one positive factor explains the logits
CORRELATION = 0.9999  # least correlation of every row, where each sample has its own factor
ADVICE = "name the layer with `head=` or --head"
LISTED = 8  # modules that an error lists

Head = nn.Linear | nn.Conv2d


@dataclass(kw_only=True)
class Record:
    """What one linear module did during one forward pass of the network."""

    runs: int = 0
    order: int = 0  # position of its last run among all runs
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How closely a module's output follows the logits, each row's mean taken away."""

    factor: float  # the one factor that fits best
    residual: float  # what that factor leaves, relative to the logits
    unscaled: float  # what the factor one leaves
    correlation: float  # the lowest of all rows
    spread: float  # how much the rows of the module's output differ, relative to their size
    identical: bool
    tolerance: float

    def holds(self, classes: int, *, named: bool) -> bool:
        """One positive factor for all rows, or for three classes and more one for each row.

        Two classes leave one number per row, which any factor fits: then the rows must differ,
        unless the user named the module, when equal signs are all that can be asked."""
        if self.identical or self.unscaled < self.tolerance:
            return True
        if self.correlation > CORRELATION and (classes > 2 or named):
            return True
        return self.factor > 0 and self.residual < self.tolerance and (classes > 2 or self.spread > RESIDUAL)


def linear_modules(net: nn.Module) -> dict[str, Head]:
    """Every nn.Linear and every ungrouped 1x1 nn.Conv2d of a network, by name."""
    return {name: module for name, module in net.named_modules() if is_linear(module)}


def is_linear(module: nn.Module) -> TypeGuard[Head]:
    """Whether a module maps one vector to another by a weight matrix and a bias."""
    if isinstance(module, nn.Conv2d):
        return tuple(module.kernel_size) == (1, 1) and module.groups == 1
    return isinstance(module, nn.Linear)


def sizes(module: Head) -> tuple[int, int]:
    """How many numbers a linear module takes and gives per sample."""
    weight = module.weight
    return weight.shape[1], weight.shape[0]


@contextmanager
def recorded(modules: Mapping[str, Head], *, probing: bool = False) -> Iterator[dict[str, Record]]:
    """Record what modules take in (or, while probing, give out) by hooks that are removed at the end."""
    records = {name: Record() for name in modules}
    log: list[str] = []

    def hook(name: str) -> Any:
        def remember(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
            record = records[name]
            log.append(name)
            record.runs, record.order = record.runs + 1, len(log)
            record.inputs = [args[0] if args else kwargs["input"]]
            record.outputs = [output.detach().clone()] if probing else []

        return remember

    with ExitStack() as stack:
        for name, module in modules.items():
            stack.callback(module.register_forward_hook(hook(name), with_kwargs=True).remove)
        yield records


def one_vector_each(module: Head, record: Record, batch: int) -> bool:
    """Whether the module took one feature vector per sample: no tokens, no spatial extent."""
    if not record.inputs or record.inputs[0].shape[:1] != (batch,):
        return False
    return record.inputs[0].numel() == batch * sizes(module)[0]


def features_of(name: str, module: Head, record: Record, batch: int) -> Tensor:
    """The (B, D) input of a head in this forward pass, or an error when it is not one vector per sample."""
    if record.runs != 1:
        raise ValueError(
            f"the head must run exactly once in a forward pass, {name!r} ran {times(record.runs)}: "
            f"{ADVICE}; wrap the network anew if it was compiled or changed after it was wrapped"
        )
    if not one_vector_each(module, record, batch):
        raise ValueError(
            f"the head must take one vector of {sizes(module)[0]} numbers per sample, {name!r} took "
            f"{tuple(record.inputs[0].shape)} for a batch of {batch}: pool before the head, or {ADVICE}"
        )
    return record.inputs[0].flatten(1)


def agreement(logits: Tensor, candidate: Tensor) -> Agreement:
    """Compare two (B, K) tensors in float64 on the CPU."""
    precision = max(torch.finfo(logits.dtype).eps, torch.finfo(candidate.dtype).eps)
    left, right = centred(logits), centred(candidate)
    rows = (left * right).sum(dim=1)
    lengths = left.norm(dim=1) * right.norm(dim=1)
    constant = (left.norm(dim=1) == 0) & (right.norm(dim=1) == 0)
    correlations = torch.where(lengths > 0, rows / lengths, torch.zeros_like(rows))[~constant]
    factor = ratio(rows.sum(), right.square().sum())
    return Agreement(
        factor=factor,
        residual=ratio((left - factor * right).norm(), left.norm()),
        unscaled=ratio((left - right).norm(), left.norm()),
        correlation=float(correlations.min()) if correlations.numel() else 0.0,
        spread=ratio((right - right.mean(dim=0)).norm(), right.norm()),
        identical=torch.equal(logits, candidate),
        tolerance=max(RESIDUAL, 4 * precision),
    )


def centred(values: Tensor) -> Tensor:
    """Each row without its mean, in float64; rows that only rounding keeps from constant become zero."""
    wide = values.detach().cpu().double()
    rows = wide - wide.mean(dim=1, keepdim=True)
    noise = 4 * torch.finfo(values.dtype).eps * wide.abs().amax(dim=1, keepdim=True)
    return torch.where(rows.abs().amax(dim=1, keepdim=True) <= noise, torch.zeros_like(rows), rows)


def ratio(numerator: Tensor, denominator: Tensor) -> float:
    """A quotient that is infinite, not an error, where the denominator is zero."""
    return float(numerator / denominator) if float(denominator) != 0 else float("inf")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The linear modules of a network, what each did on the probe batch, and the logits."""

    modules: Mapping[str, Head]
    records: Mapping[str, Record]
    logits: Tensor

    def agreement(self, name: str) -> Agreement | None:
        """The agreement of one module with the logits, None where shapes forbid the comparison."""
        module, record = self.modules[name], self.records[name]
        if not one_vector_each(module, record, len(self.logits)):
            return None
        output = record.outputs[0]
        return agreement(self.logits, output.flatten(1)) if output.numel() == self.logits.numel() else None

    def agrees(self, name: str, *, named: bool = False) -> bool:
        """Whether this module may be the head: it ran once and the logits follow its output."""
        found = self.agreement(name) if self.records[name].runs == 1 else None
        return found is not None and found.holds(self.logits.shape[1], named=named)

    def last(self) -> str:
        """The last module to run that agrees with the logits."""
        names = sorted(self.modules, key=lambda name: self.records[name].order, reverse=True)
        chosen = next((name for name in names if self.agrees(name)), None)
        if chosen is None:
            raise ValueError(self.doubt("no linear module runs once and agrees with the logits", names))
        return chosen

    def confirmed(self, name: str) -> str:
        """The name of a head that the user gave, once the probe bears it out."""
        features_of(name, self.modules[name], self.records[name], len(self.logits))
        if not self.agrees(name, named=True):
            raise ValueError(self.doubt(f"the logits do not follow the output of head={name!r}", [name]))
        return name

    def doubt(self, reason: str, names: Sequence[str]) -> str:
        """An error message: the rule, the modules seen, and what to do."""
        classes = self.logits.shape[1]
        likely = [name for name in names if sizes(self.modules[name])[1] == classes] or list(names)
        seen = "".join(f"\n  {self.describe(name)}" for name in likely[:LISTED])
        more = f"\n  and {len(likely) - LISTED} more" if len(likely) > LISTED else ""
        return (
            f"the head must be a linear layer or 1x1 convolution with {classes} outputs that the logits "
            f"follow up to a positive scale, but {reason}; modules seen:{seen or ' none'}{more}\n{ADVICE}, "
            "give more and different images, or end the network at its logits; "
            "only attacks on cosines (si-pgd, apgd-si) need a head: --attacks pgd,pgd-cw,pgd-dlr does without"
        )

    def describe(self, name: str) -> str:
        """One line on a module: name, type, shapes, times run, agreement."""
        module, record = self.modules[name], self.records[name]
        taken = f" {tuple(record.inputs[0].shape)}" if record.inputs else ""
        given = f" to {tuple(record.outputs[0].shape)}" if record.outputs else ""
        found = self.agreement(name)
        fit = "not comparable with the logits"
        if found is not None:
            fit = f"factor {found.factor:.3g}, residual {found.residual:.2g}, "
            fit += f"lowest row correlation {found.correlation:.5f}"
        kind = f"{type(module).__name__}{sizes(module)}"
        return f"{name!r}: {kind}{taken}{given}, ran {times(record.runs)}, {fit}"


def times(count: int) -> str:
    """A count of runs in words."""
    return "once" if count == 1 else f"{count} times"


def named_head(net: nn.Module, name: str) -> str:
    """The name of a linear module in the unwrapped network, or an error that suggests the nearest."""
    modules = linear_modules(net)
    plain = ".".join(part for part in name.split(".") if part not in ("_orig_mod", "module"))
    for spelling in (name, plain):
        if spelling in modules:
            return spelling
    nearest = difflib.get_close_matches(name, modules, n=3, cutoff=0.4)
    listed = ", ".join(repr(each) for each in nearest or list(modules)[-LISTED:]) or "none in this network"
    raise ValueError(f"head= must name a linear layer or 1x1 convolution, got {name!r}: nearest are {listed}")
