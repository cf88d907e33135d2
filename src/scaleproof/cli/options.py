"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        help="demo, undefended, a run folder, weights.safetensors (with --arch), module:factory, timm:NAME, "
        "robustbench:NAME@FOLDER or hf:FOLDER."
    ),
]
Arch = Annotated[
    str | None,
    typer.Option(
        "--arch",
        help="Of a .safetensors file: resnet18, resnet50, preact-resnet18, wrn-28-10, wrn-34-10, resnet-small, "
        "resnet-tiny.",
        show_default=False,
    ),
]
Data = Annotated[
    str,
    typer.Option(
        help="sample, sample-train, cifar10, cifar100, svhn, or a path: an .npz (images, labels, classes) or a folder "
        "(CLASS/*.png, or train/CLASS/*.png and test/CLASS/*.png; PNG, JPEG, WebP)."
    ),
]
OwnData = Annotated[
    str | None,
    typer.Option(
        help="sample, sample-train, cifar10, cifar100, svhn, or a path to .npz or a folder; by default the test data "
        "of the training that the model comes from, else sample.",
        show_default=False,
    ),
]
DataFolder = Annotated[
    Path | None, typer.Option(help="Where data sets are; else SCALEPROOF_DATA.", show_default=False)
]
Split = Annotated[str, typer.Option(help="test or train.")]
Limit = Annotated[int | None, typer.Option(help="Take the first N images only.", show_default=False)]
Attacks = Annotated[
    str,
    typer.Option(
        help="Suites (paper, objectives, standard, standard-bf16, quick, fast, rand, blackbox) or attacks, by commas: "
        "fgsm, pgd, pgd-cw, pgd-dlr, si-pgd, pgd-pm (probability margin), pgd-std (standardised logits), "
        "pgd-sm (their margin), apgd-ce, apgd-dlr, apgd-si, apgd-t, apgd-cw-t, fab-t, square, spsa-128, spsa-256, "
        "spsa-512, rays, fab-t-audit, square-audit (on a sample of the images, with a bound); "
        "from elsewhere: torchattacks:NAME, foolbox:NAME, module:function."
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        min=1, help="Steps of pgd attacks, 20 by default; the others have their own.", show_default=False
    ),
]
Restarts = Annotated[
    int | None,
    typer.Option(
        help="Random restarts of pgd attacks, 1 by default; the worst case over them counts.",
        show_default=False,
    ),
]
Norm = Annotated[str, typer.Option(help="linf or l2.")]
Eps = Annotated[
    str | None,
    typer.Option(
        help="Size of the perturbation, as 8/255 or 0.5; linf: 8/255 by default.", show_default=False
    ),
]
StepSize = Annotated[
    str | None, typer.Option(help="Step of each attack, as 2/255; eps / 4 by default.", show_default=False)
]
Head = Annotated[
    str | None,
    typer.Option(help="Dotted name of the last linear layer, where it is in doubt.", show_default=False),
]
AllowTrainMode = Annotated[bool, typer.Option(help="Make train mode a finding, not an error.")]
Report = Annotated[bool, typer.Option(help="Render the report page; scaleproof report does it later.")]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)]
BatchSize = Annotated[
    int | None,
    typer.Option(help="Images at a time; by default 128 on a CPU, 1024 on a GPU.", show_default=False),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Precision = Annotated[
    str, typer.Option(help="Of gradients: auto, float32, tf32, fp16 or bf16. Verdicts are float32 always.")
]
Compile = Annotated[bool, typer.Option("--compile", help="Use torch.compile for our own architectures.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Run folder; by default one under runs/ named after the settings.", show_default=False),
]


def number(text: str, field: str) -> float:
    """A number, or a fraction such as 8/255."""
    top, slash, bottom = text.partition("/")
    try:
        return float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError):
        raise ValueError(
            f"{field} must be a number such as 0.031 or a fraction such as 8/255, got {text!r}"
        ) from None


def seed_numbers(text: str) -> tuple[int, ...]:
    """Seeds with commas between: not negative, each once."""
    seeds = whole_numbers(text, "seeds")
    if min(seeds) < 0 or len({*seeds}) < len(seeds):
        raise ValueError(f"--seeds must be different numbers from 0 on, got {text!r}")
    return seeds


def whole_numbers(text: str, field: str) -> tuple[int, ...]:
    """Whole numbers with commas between."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ValueError(f"--{field} must be whole numbers with commas between, got {text!r}") from None
