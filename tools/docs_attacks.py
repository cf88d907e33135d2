"""Generated parts on suites of attacks: beside the published AutoAttack, on all images, without gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from docs_parts import RESULTS, percent, provenance, read, table

ROBUST = "robust-resnet18"  # run folders of one adversarially trained network


def parity() -> str:
    """AutoAttack standard beside the published implementation, stage by stage, for each machine and precision."""
    parts = []
    for path in sorted((RESULTS / "benchmarks").glob("parity-*.json")):
        record = read(f"benchmarks/{path.name}")
        for precision, stages in record["rows"].items():
            seconds = [sum(row[who]["seconds"] for row in stages) for who in ("ours", "theirs")]
            last = [f"all: {seconds[1] / seconds[0]:.2f} times as fast", "", "", ""]
            rows = [parity_row(row) for row in stages]
            rows.append([*last, f"{seconds[0]:.1f} / {seconds[1]:.1f}", "", ""])
            head = ["after", "ours, %", "pyautoattack, %", "same images, %"]
            head += ["seconds", "forwards", "backwards"]
            threat = record.get("threat", "linf 8/255")
            what = f"{record.get('model', 'demo')}, {threat}, our gradients in {precision}, n = {record['images']}"
            batch = f"batch {record['batch']}, " if "batch" in record else ""
            place = f"{batch}{record['hardware']['name']}, commit {record['commit']}"
            parts.append(table(head, rows) + f"\n(ours / theirs; {what}, {place})\n")
    return "\n".join(parts)


def parity_row(row: dict[str, Any]) -> list[str]:
    ours, theirs = row["ours"], row["theirs"]
    shares = [f"{value:.2f}" for value in (ours["robust"], theirs["robust"], row["agreement"])]
    costs = [f"{ours[kind]:,} / {theirs[kind]:,}" for kind in ("forwards", "backwards")]
    return [row["stage"], *shares, f"{ours['seconds']:.1f} / {theirs['seconds']:.1f}", *costs]


def autoattack_line() -> str:
    """The same in a few sentences."""
    record = read("benchmarks/parity-h200.json")
    seconds = {
        name: {who: sum(row[who]["seconds"] for row in rows) for who in ("ours", "theirs")}
        for name, rows in record["rows"].items()
    }
    same = min(row["agreement"] for rows in record["rows"].values() for row in rows)
    exact, fast = seconds["tf32"], seconds["bf16"]
    evaluation, run = both("fast")
    where = "docs/results/README.md#autoattack-beside-the-published-implementation"
    commits = " and ".join(sorted({record["commit"], run["commit"]}))
    place = f"{record['hardware']['name']}, commit {commits}, seed {run['seed']}"
    return (
        f"AutoAttack on {record['images']:,} images of a robust ResNet-18: the published implementation takes "
        f"{exact['theirs']:.0f} s, `standard` {exact['ours']:.0f} s, `standard-bf16` {fast['ours']:.0f} s,\n"
        f"with the same verdict after every stage on at least {same:.1f}% of the images. On all "
        f"{evaluation['clean']['count']:,}, `fast` takes {run['seconds']:.0f} s ({place}; [more]({where})).\n"
    )


def suites() -> str:
    """`fast` and `standard-bf16` on the same images of the same network."""
    rows, facts = [], []
    for name in ("fast", "standard-bf16"):
        evaluation, run = both(name)
        attacks = evaluation["attacks"]
        robust, seconds = percent(evaluation["worst_case"]), f"{run['seconds']:.1f}"
        costs = [f"{sum(attack[kind] for attack in attacks):,}" for kind in ("forwards", "backwards")]
        rows.append([f"[`{name}`]({ROBUST}/{name}/)", robust, seconds, *costs])
        facts.append(f"`{name}`: {provenance(run, evaluation['clean']['count'])}")
        facts += [found["meaning"] for found in evaluation["findings"] if found["name"] == "audit"]
    head = ["suite", "robust, %", "seconds", "forwards", "backwards"]
    return table(head, rows) + "\n" + "\n\n".join(f"{fact}." for fact in facts) + "\n"


def near_misses() -> str:
    """How near to the boundary the two short PGDs had brought those images that targeted APGD then broke."""
    with np.load(RESULTS / ROBUST / "fast" / "verdicts.npz") as arrays:
        rows = arrays["attacked__apgd-t"][0].nonzero()[0]
        margins = np.maximum(arrays["margin__pgd-pm"][0], arrays["margin__pgd-std"][0])[rows]
        broken = arrays["broken__apgd-t"].any(0)[rows]
        by_target = arrays["broken__apgd-t"].sum(1)
    ranks = np.flatnonzero(broken[np.argsort(-margins)])
    evaluation, run = both("fast")
    targets, facts = ", ".join(map(str, by_target)), provenance(run, evaluation["clean"]["count"])
    return (
        f"Targeted APGD broke {broken.sum()} of the {len(rows):,} images that PGD on probability margins and on "
        f"standardised logits had left (by target, likeliest class first: {targets}).\n"
        f"All of them were among the {ranks.max() + 1:,} whose margin those two had brought nearest to zero, half of "
        f"them among the {int(np.median(ranks)) + 1}\n([fast](results/{ROBUST}/fast/), {facts}).\n"
    )


def without_gradients() -> str:
    """The black-box attacks of the paper: what is left, and how fast queries are answered."""
    from scaleproof.paper.measured import rays_values

    rows, facts = [], set()
    for name in ("spsa-128", "spsa-256", "spsa-512", "rays"):
        if not (RESULTS / ROBUST / name / "run.json").exists():
            rows.append([name, "not measured", "", "", "", ""])
            continue
        evaluation, run = both(name)
        (attack,) = evaluation["attacks"]
        robust, distance = percent(attack["robust"]), ""
        if name == "rays":
            values = rays_values(RESULTS / ROBUST / name)
            robust, distance = f"{values['rays/1/robust']:.2f}", f"{values['rays/1/distance']:.4f}"
        queries, seconds = attack["forwards"], attack["seconds"]
        linked = f"[{attack['label']}]({ROBUST}/{name}/)"
        rows.append([linked, robust, distance, f"{queries:,}", f"{seconds:.1f}", f"{queries / seconds:,.0f}"])
        facts.add(provenance(run, evaluation["clean"]["count"]))
    head = ["attack", "robust at 8/255, %", "mean distance", "queries", "seconds", "queries a second"]
    return table(head, rows) + "\n(" + "; ".join(sorted(facts)) + ")\n"


def differences() -> str:
    """How much of SPSA's small differences each number format keeps, and what SPSA finds with them."""
    record = read("benchmarks/differences-h200.json")
    rows = [
        [row["format"], f"{100 * row['relative_error']:.2f}", f"{row['correlation']:.5f}"]
        for row in record["rows"]
    ]
    found = {row["precision"]: row for row in record["spsa"]}
    runs = " and ".join(
        f"{row['seconds']:.1f} s and leaves {row['robust']['correct']} with `--precision {name}`"
        for name, row in found.items()
    )
    same = set(found["auto"]["broken"]) == set(found["float32"]["broken"])
    alike = "the same ones" if same else "not the same ones"
    facts = f"{record['hardware']['name']}, commit {record['commit']}; `benchmarks/differences.py`"
    return (
        table(["difference quotients in", "error, %", "correlation with float64"], rows)
        + f"\n({record['directions']:,} directions over {record['difference']:g}; {facts})\n\n"
        + f"SPSA on {record['images']} of the images takes {runs}, {alike}.\n"
    )


def growth() -> str:
    """How the cost grows, in words beside the picture."""
    record = read("benchmarks/growth-h200.json")
    facts = f"batch {record['batch']}, {record['hardware']['name']}, commit {record['commit']}"
    rows = [
        [f"{row['images']:,}", f"{row['seconds']:.1f}", f"{row['passes']:,}", percent(row["robust"])]
        for row in record["images"]
    ]
    head = ["images, suite `fast`", "seconds", "passes", "robust, %"]
    return (
        "![How the cost of an evaluation grows](benchmarks/growth-h200.png)\n\n"
        + table(head, rows)
        + f"\n({facts}; `benchmarks/growth.py`)\n"
    )


def both(name: str) -> tuple[Any, Any]:
    return read(f"{ROBUST}/{name}/evaluation.json"), read(f"{ROBUST}/{name}/run.json")
