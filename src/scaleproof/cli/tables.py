"""Results as tables on a terminal."""

from __future__ import annotations

from rich.table import Table

from scaleproof.analysis import Sweep
from scaleproof.evaluation import Evaluation, Share


def percent(share: Share) -> str:
    return f"{100 * share.accuracy:.2f}"


def with_interval(share: Share) -> str:
    low, high = share.interval
    return f"{percent(share)}  [{100 * low:.1f}, {100 * high:.1f}]"


def evaluation_table(evaluation: Evaluation) -> Table:
    """One row an attack; robust accuracy is an upper bound."""
    table = Table(title=f"Accuracy in %, n = {evaluation.count}, {evaluation.mode}", title_justify="left")
    columns = (
        "attack",
        "1 restart",
        "worst of restarts [95% interval]",
        "forwards",
        "backwards",
        "seconds",
        "",
    )
    for name in columns:
        table.add_column(name, justify="left" if name in ("attack", "") else "right")
    table.add_row("clean", "", with_interval(evaluation.clean), "", "", "", "")
    for result in evaluation.attacks:
        table.add_row(
            result.label,
            percent(evaluation.robust(result.name, 1)),
            f"{with_interval(evaluation.robust(result.name))}",
            f"{result.forwards:,}",
            f"{result.backwards:,}",
            f"{result.seconds:.1f}",
            "; ".join(remarks(evaluation, result.needs_features, result.notes)),
        )
    table.add_section()
    table.add_row(
        "worst case", "", with_interval(evaluation.robust()), "", "", f"{evaluation.seconds:.1f}", ""
    )
    return table


def remarks(evaluation: Evaluation, needs_features: bool, notes: tuple[str, ...]) -> list[str]:
    mismatch = evaluation.cosine_mismatch
    if needs_features and mismatch is not None:
        return [f"cosine is not the decision on {100 * mismatch:.1f}% of images", *notes]
    return list(notes)


def sweep_table(sweep: Sweep) -> Table:
    """One row a scale, one column an attack."""
    table = Table(
        title=f"Robust accuracy in % when logits are multiplied by alpha, n = {sweep.clean.count}",
        title_justify="left",
    )
    labels = {row.attack: row.label for row in sweep.rows}
    table.add_column("alpha", justify="right")
    for label in labels.values():
        table.add_column(label, justify="right")
    for alpha in sweep.alphas:
        cells = [percent(row.robust) for name in labels for row in sweep.of(name) if row.alpha == alpha]
        table.add_row(f"{alpha:g}", *cells)
    table.add_section()
    table.add_row("swing", *[f"{100 * sweep.swing(name):.2f}" for name in labels])
    table.add_row("same bits", *["yes" if sweep.identical[name] else "no" for name in labels])
    return table
