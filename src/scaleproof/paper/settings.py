"""Settings: the training or the published model that each row of the paper's tables means, in the names used here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from scaleproof.paper.claims import Claim, Row, claims

EPS = "8/255"
STEPS = 20  # of the attacks that evaluate; their step is eps / 4
SINGLE_STEP = ("free", "gat", "rfgsm", "gradalign")
TRAINING_IMAGES = {"cifar10": 50_000, "cifar100": 50_000, "svhn": 73_257}
TEST_IMAGES = {"cifar10": 10_000, "cifar100": 10_000, "svhn": 26_032}
STATED = "paper-literal"  # the recipe that the paper's text gives for every defense


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One model of the paper, all that it takes to get it, and the numbers that it settles."""

    model: str
    dataset: str
    architecture: str
    defense: str
    mechanism: str
    scale: float | None
    margin: float | None
    beta: float | None
    recipe: str | None  # the reading to start from; STATED is the text's own
    published: str | None  # under which name RobustBench has it
    claims: tuple[Claim, ...]

    @property
    def trained(self) -> bool:
        return self.recipe is not None

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(claim.table.id for claim in self.claims))

    @property
    def attacks(self) -> tuple[tuple[str, int], ...]:
        """Which attacks and suites to run, each with the most restarts that a number asks for."""
        wanted: dict[str, int] = {}
        for claim in self.claims:
            if claim.column.attack is not None:
                most = wanted.get(claim.column.attack, 0)
                wanted[claim.column.attack] = max(most, claim.column.restarts)
        return tuple(wanted.items())

    def command(self, recipe: str | None = None) -> tuple[str, ...]:
        """The words after `scaleproof` that train it, by the reading or by another recipe."""
        if not self.trained:
            raise ValueError(f"{self.model} is a model that others published: it is not trained here")
        words = ["train", self.defense, "--model", self.architecture, "--data", self.dataset]
        words += ["--recipe", recipe or str(self.recipe)]
        if self.mechanism == "he":
            words.append("--he")
        if self.mechanism == "si":
            words += ["--si", "--scale", f"{self.scale:g}", "--margin", f"{self.margin:g}"]
            words += ["--beta", f"{self.beta:g}"]
        return tuple(words)

    @property
    def weights(self) -> str | None:
        """The model's name for `scaleproof evaluate`, where RobustBench has it."""
        return None if self.published is None else f"robustbench:{self.dataset}/Linf/{self.published}"


@cache
def experiments(table: str | None = None) -> tuple[Experiment, ...]:
    """Every model once, in the order in which the tables first name it; or those of one table."""
    wanted = {claim.row.model for claim in claims(table)}
    groups: dict[str, list[Claim]] = {}
    for claim in claims():
        if claim.row.model in wanted:
            groups.setdefault(claim.row.model, []).append(claim)
    return tuple(experiment_of(tuple(found)) for found in groups.values())


# Models of our own that stand beside those which others published, where the checkpoints are not at hand.
OWN = {"attacks": ("cifar10/resnet18/at", "cifar10/resnet18/trades", "cifar10/resnet18/mart")}


@cache
def own_models(table: str) -> tuple[Experiment, ...]:
    """Trainings that no row of a table names but that its sentences can be held against; a ResNet-50 among them."""
    if table not in OWN:
        return ()
    found = tuple(experiment for experiment in experiments() if experiment.model in OWN[table])
    wide = replace(found[0], model="cifar10/resnet50/at", architecture="resnet50", defense="at", claims=())
    return (*found, wide)


def experiment_of(found: tuple[Claim, ...]) -> Experiment:
    row = found[0].row
    return Experiment(
        model=row.model,
        dataset=row.dataset,
        architecture=row.architecture,
        defense=row.defense,
        mechanism=row.mechanism,
        scale=row.scale,
        margin=row.margin,
        beta=row.beta,
        recipe=reading(row) if row.trained else None,
        published=row.published,
        claims=found,
    )


def reading(row: Row) -> str:
    """The recipe to start from: the text's own where it is that of the methods it cites, else theirs."""
    if row.defense in SINGLE_STEP:
        return "original"
    if row.dataset == "svhn":
        return "svhn"
    return STATED if row.architecture.startswith("wrn") else "pang"
