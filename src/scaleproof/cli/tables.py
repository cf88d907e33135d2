"""Results as tables on a terminal."""

from __future__ import annotations

from rich.table import Table

from scaleproof.analysis import Sweep
from scaleproof.evaluation import Evaluation, Share


def percent(share: Share) -> str:
    return f"{100 * share.accuracy:.2f}"


def interval(share: Share) -> str:
    low, high = share.interval
    return f"{100 * low:.1f} to {100 * high:.1f}"


def evaluation_table(evaluation: Evaluation) -> Table:
    """One row an attack; robust accuracy is an upper bound."""
    table = Table(title=f"Accuracy in %, n = {evaluation.count}, {evaluation.mode}", title_justify="left")
    for name in ("attack", "1 restart", "all restarts", "95% interval", "seconds"):
        table.add_column(name, justify="left" if name == "attack" else "right", no_wrap=True)
    table.add_row("clean", "", percent(evaluation.clean), interval(evaluation.clean), "")
    for result in evaluation.attacks:
        first, worst = evaluation.robust(result.name, 1), evaluation.robust(result.name)
        table.add_row(result.label, percent(first), percent(worst), interval(worst), f"{result.seconds:.1f}")
    table.add_section()
    worst = evaluation.robust()
    table.add_row("worst case", "", percent(worst), interval(worst), f"{evaluation.seconds:.1f}")
    return table


def remarks(evaluation: Evaluation) -> list[str]:
    """What a reader must know beside the numbers, one sentence each."""
    said: list[str] = []
    for result in evaluation.attacks:
        if result.needs_features and evaluation.cosine_mismatch is not None:
            share = f"{100 * evaluation.cosine_mismatch:.1f}%"
            said.append(
                f"{result.label}: the cosine's argmax is not the decision on {share} of the clean images."
            )
        said += [f"{result.label}: {note}." for note in result.notes]
    return said + [f"{finding.severity}: {finding.meaning}." for finding in evaluation.findings]


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
