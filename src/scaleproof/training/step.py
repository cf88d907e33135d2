"""One optimisation step: augmentation, training attack, outer pass, SGD. On a GPU all of it is one captured graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from scaleproof.defenses.base import Batch, Defense
from scaleproof.models.classifier import Classifier, device_of, evaluating
from scaleproof.parallel import Group
from scaleproof.rng import seeded
from scaleproof.speed import GraphCache, Speed, choose
from scaleproof.speed.fold import is_own
from scaleproof.speed.precision import has_fast_bf16
from scaleproof.training.checks import checked_outcome
from scaleproof.training.config import TrainConfig
from scaleproof.training.diverged import masks, numbers, told
from scaleproof.training.images import Resident
from scaleproof.training.learner import ModelLearner
from scaleproof.training.repeatable import Watcher
from scaleproof.training.sgd import SGD
from scaleproof.training.totals import Totals

CHANCE = (nn.modules.dropout._DropoutNd, nn.RReLU)  # layers that draw random numbers in train mode
PRECISIONS = ("auto", "float32", "tf32", "bf16")
WATCHED = 2  # steps of a kind before it is captured, where a graph of it might not be the step again


@dataclass(frozen=True)
class Draws:
    """What chance gives to one step: which rows, where to crop them, noise for the attack."""

    rows: Tensor
    places: Tensor
    noise: tuple[Tensor, ...]
    key: int = 0  # of what layers such as dropout draw themselves

    def part(self, rows: slice) -> Draws:
        return Draws(self.rows[rows], self.places[rows], tuple(noise[rows] for noise in self.noise), self.key)


class Stepper:
    """Live weights, their momenta, what a defense remembers, and running totals; `step` moves them all."""

    def __init__(
        self,
        classifier: Classifier,
        defense: Defense,
        images: Resident,
        config: TrainConfig,
        speed: Speed,
        group: Group,
    ) -> None:
        self.classifier, self.images, self.group = classifier, images, group
        self.masks = masks(classifier)
        self.device = device_of(classifier)
        self.bf16 = trains_in_bf16(speed, self.device)
        self.speed = speed
        self.parameters = [p for p in classifier.parameters() if p.requires_grad]
        self.optimizer = SGD(self.parameters, momentum=config.momentum, weight_decay=config.weight_decay)
        self.memory = defense.new_memory(images.plain(slice(0, config.batch_size)))
        self.totals = Totals(defense, self.device)
        self.graded: list[nn.Parameter] = []
        self.defense = defense
        self.variants: list[Defense] = []
        self.has_chance = has_chance(classifier)
        captures = speed.graph and self.device.type == "cuda" and group.size == 1
        patience = WATCHED if self.has_chance else 0
        self.graphs = GraphCache(self.device, self.state, patience=patience) if captures else None
        self.watcher = Watcher(classifier) if captures and self.has_chance else None

    def state(self) -> Sequence[Tensor]:
        """Every tensor that a step changes."""
        return [
            *self.classifier.parameters(),
            *self.classifier.buffers(),
            *self.optimizer.momenta,
            *self.memory.values(),
            *self.totals.tensors(),
        ]

    def step(self, defense: Defense, draws: Draws, rate: float) -> None:
        """Train on one batch; the same batch on every rank, each of which takes its part."""
        self.optimizer.rate.fill_(rate)
        part = draws.part(self.group.part(len(draws.rows)))
        compute = partial(self.compute, defense, len(draws.rows))
        with self.own_chance(draws.key):
            if self.graphs is None:
                compute(part.rows, part.places, *part.noise)
            else:
                variant = self.variant(defense)
                seen = partial(self.seen, variant, compute)
                self.graphs(variant, seen, part.rows, part.places, *part.noise)

    def variant(self, defense: Defense) -> int:
        """The number of this defense among all that steps had: one of one's own may have no hash."""
        if defense not in self.variants:
            self.variants.append(defense)
        return self.variants.index(defense)

    def seen(
        self, variant: int, compute: Callable[..., tuple[Tensor, ...]], rows: Tensor, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """The step; where a graph of it would not be the step again there will be none."""
        if self.graphs is None or self.watcher is None:
            return compute(rows, *inputs)
        with self.watcher.watched((variant, len(rows))) as reasons:
            result = compute(rows, *inputs)
        if reasons:
            self.graphs.give_up(reasons[0])
            self.watcher = None
        return result

    def own_chance(self, key: int) -> AbstractContextManager[None]:
        """What draws from the global generators is seeded for this step and rank, and they are restored after it."""
        return seeded(self.device, key + self.group.rank) if self.has_chance else nullcontext()

    def compute(
        self, defense: Defense, whole: int, rows: Tensor, places: Tensor, *noise: Tensor
    ) -> tuple[Tensor, ...]:
        """The step itself, on this rank's rows of a batch of `whole`."""
        self.optimizer.forget_gradients()
        learner = ModelLearner(self.classifier, defense.batch_norm, self.speed, self.bf16)
        with learner.arithmetic(), torch.enable_grad():
            if len(rows):
                first = self.group.part(whole).start
                batch = Batch(self.images.cropped(rows, places), self.images.labels[rows], noise, first)
                outcome = checked_outcome(defense, defense.outcome(learner, batch, self.memory))
                (torch.stack(list(outcome.terms.values())).sum() * (len(rows) / whole)).backward()  # type: ignore[no-untyped-call]
                with torch.no_grad():
                    defense.remember(outcome, batch, self.memory)
                    self.totals.add(outcome, batch.y)
                self.graded = [p for p in self.parameters if p.grad is not None]
            else:
                self.totals.pass_over(rows)
            self.join(whole)
            self.optimizer.step()
        return ()

    def join(self, whole: int) -> None:
        """Gradients, and what each rank remembers of its rows, become those of the whole batch on every rank."""
        if self.group.size == 1:
            return
        if whole < self.group.size:  # a rank without rows knows of no gradient
            found = torch.tensor([float(p.grad is not None) for p in self.parameters], device=self.device)
            self.group.add_up([found])
            self.graded = [p for p, count in zip(self.parameters, found.tolist(), strict=True) if count]
        for parameter in self.graded:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.group.add_up([p.grad for p in self.graded if p.grad is not None])
        part = self.group.part(whole)
        for tensor in self.memory.values():
            mine = torch.zeros_like(tensor[:whole])
            mine[part] = tensor[:whole][part]
            self.group.add_up([mine])
            tensor[:whole].copy_(mine)

    def is_finite(self, *, weights: bool = False) -> bool:
        """Whether the running totals are numbers, and the weights too where they are asked for."""
        tensors = [self.totals.sums, *(numbers(self.classifier, self.masks) if weights else ())]
        sums = torch.stack([tensor.detach().double().sum() for tensor in tensors])
        self.group.add_up([sums])  # so that all ranks stop together
        return bool(sums.isfinite().all())

    def fault(self, when: str) -> tuple[str, str]:
        """What is no number any more, once `is_finite` said so, and the remedy."""
        outputs, terms = self.totals.fault(self.group)
        return told(when, outputs, terms, bf16=self.bf16)

    def notes(self) -> dict[str, object]:
        """What was chosen, for the record."""
        failure = None if self.graphs is None else self.graphs.failure
        attack, folded, said = self.attack_notes()
        said += [] if failure is None else [failure]
        if self.group.size > 1:
            said.append(f"{self.group.size} processes: not captured in a graph")
        return {
            "precision": "bf16" if self.bf16 else self.plain,
            "attack_precision": attack,
            "folded": folded,
            "graph": self.graphs is not None and failure is None,
            "notes": said,
        }

    def attack_notes(self) -> tuple[str, bool, list[str]]:
        """How the training attack is computed: its precision, whether it is folded, and why not."""
        outer = "bf16 autocast" if self.bf16 else self.plain
        if self.defense.inner is None:
            return outer, False, []
        if not self.defense.folds:
            mode = self.defense.batch_norm.attack
            said = (
                "the attack runs in train mode"
                if mode == "train"
                else "the attack's gradient has another use"
            )
            return outer, False, [f"{said}: not folded"]
        with evaluating(self.classifier):
            choice = choose(self.classifier, self.device, self.speed)
        own = [] if choice.folded or not self.speed.fold else ["not one of our own architectures: not folded"]
        return self.plain if choice.precision == "tf32" else choice.precision, choice.folded, own

    @property
    def plain(self) -> str:
        """What float32 is computed in; a CPU has no TF32."""
        return "tf32" if self.speed.precision == "tf32" and self.device.type == "cuda" else "float32"


def has_chance(classifier: Classifier) -> bool:
    """Whether passes may draw random numbers of their own; a network that is not ours may do so in any function."""
    return not is_own(classifier.net) or any(isinstance(module, CHANCE) for module in classifier.modules())


def check_precision(precision: str) -> None:
    """Gradients of weights leave the range of fp16."""
    if precision not in PRECISIONS:
        raise ValueError(
            f"the precision of a training must be one of {', '.join(PRECISIONS)}, got {precision!r}"
        )


def trains_in_bf16(speed: Speed, device: torch.device) -> bool:
    """Outer passes in bf16: on a GPU that has it; on a CPU only where it is asked for."""
    check_precision(speed.precision)
    if speed.precision == "auto":
        return device.type == "cuda" and has_fast_bf16(device)
    return speed.precision == "bf16"
