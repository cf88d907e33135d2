"""Options of `scaleproof train` alone."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Hidden: dict[str, Any] = {"show_default": False}
FromRecipe: dict[str, Any] = {"show_default": "from the recipe"}

Method = Annotated[
    str,
    typer.Argument(
        help="at, trades, alp, mart, free, gat, rfgsm, gradalign or standard; or module:NAME, a Defense of your own."
    ),
]
Si = Annotated[
    bool,
    typer.Option("--si", "--scale-invariant", help="With the SI mechanism: cosine attack and margin term."),
]
SiHalf = Annotated[str, typer.Option(help="both halves of SI, or inner or outer alone.")]
Scale = Annotated[float, typer.Option(help="SI: s.")]
Margin = Annotated[float, typer.Option(help="SI and HE: m.")]
Beta = Annotated[float, typer.Option(help="SI: weight of the margin term.")]
He = Annotated[bool, typer.Option("--he", help="Hypersphere embedding, for at, trades and alp.")]
Model = Annotated[
    str,
    typer.Option(
        help="resnet-small, resnet18, resnet50, preact-resnet18, wrn-28-10, wrn-34-10, resnet-tiny, "
        "or module:factory; weights or a run folder to begin with."
    ),
]
TestData = Annotated[
    str | None, typer.Option(help="Test images, where --data has none of its own.", **Hidden)
]
TestLimit = Annotated[int | None, typer.Option(help="Test on the first N test images only.", **Hidden)]
Recipe = Annotated[
    str | None,
    typer.Option(
        help="pang, mart, paper-literal, svhn or original; by default original for free, gat, rfgsm and gradalign, "
        "pang for the others.",
        **Hidden,
    ),
]
Epochs = Annotated[int | None, typer.Option(help="The schedule is stretched or shrunk to fit.", **FromRecipe)]
Decays = Annotated[
    str | None, typer.Option(help="Epochs (from 1) of the decays, as 75,90,100.", **FromRecipe)
]
Rate = Annotated[float | None, typer.Option(help="Learning rate.", **FromRecipe)]
WeightDecay = Annotated[float | None, typer.Option(help="On all parameters.", **FromRecipe)]
BatchSize = Annotated[int | None, typer.Option(help="Images a step.", **FromRecipe)]
Weight = Annotated[
    float | None,
    typer.Option(help="Of the term of trades, alp, mart, gat or gradalign: lambda.", **FromRecipe),
]
Eps = Annotated[str | None, typer.Option(help="Size of the perturbation, as 8/255 or 0.5.", **FromRecipe)]
Steps = Annotated[int | None, typer.Option(help="Of the training attack.", **FromRecipe)]
StepSize = Annotated[str | None, typer.Option(help="Of the training attack, as 2/255.", **FromRecipe)]
Norm = Annotated[
    str | None, typer.Option(help="linf or l2 (with --eps; steps keep their share of eps).", **FromRecipe)
]
Schedule = Annotated[
    str | None, typer.Option(help="constant, steps (with --decays), cyclic or cosine.", **FromRecipe)
]
EpsWarmUp = Annotated[int | None, typer.Option(help="Epochs over which eps grows.", **FromRecipe)]
Average = Annotated[
    float | None, typer.Option(help="Keep a running mean of the weights, as 0.999.", **FromRecipe)
]
Validation = Annotated[
    int | None,
    typer.Option(
        help="Training images held out to select weights, a tenth at most; 0: the last are selected.",
        **FromRecipe,
    ),
]
Augment = Annotated[
    bool | None,
    typer.Option(
        "--augment/--no-augment",
        help="Random crops and flips of the training images.",
        **FromRecipe,
    ),
]
AttackMode = Annotated[
    str | None, typer.Option(help="BatchNorm in the training attack: eval or train.", **FromRecipe)
]
Guard = Annotated[
    str | None, typer.Option(help="When PGD accuracy collapses: off, stop or rollback.", **FromRecipe)
]
Seeds = Annotated[str | None, typer.Option(help="Several, side by side: 0,1,2.", **Hidden)]
Precision = Annotated[
    str,
    typer.Option(
        help="auto (bf16 on a GPU, on a CPU that has it in the attack alone), float32 (the plain loop), tf32 or "
        "bf16. Verdicts are float32 always."
    ),
]
Graph = Annotated[
    bool | None,
    typer.Option(
        "--graph/--no-graph",
        help="Replay a step as one CUDA graph: the same arithmetic, quicker. Default: yes, but not in float32.",
        show_default=False,
    ),
]
SyncBatchNorm = Annotated[
    bool, typer.Option("--sync-batch-norm", help="Statistics over all processes of torchrun.")
]
CheckpointSeconds = Annotated[
    float, typer.Option(help="The longest time between checkpoints, to the end of an epoch.")
]
Tensorboard = Annotated[bool, typer.Option("--tensorboard", help="Write curves for TensorBoard too.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be trained, setting by setting, and stop.")
]
