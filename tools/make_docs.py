"""Write the generated parts of the documents from the run folders under docs/results.

    python tools/make_docs.py            write them
    python tools/make_docs.py --check    fail where one is out of date

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from docs_attacks import autoattack_line, differences, growth, near_misses, parity, suites, without_gradients
from docs_budget import budget, nearest, rankings
from docs_museum import annex, annex_first, check_cost, limits, museum
from docs_objectives import objectives
from docs_parts import RESULTS, ROOT, percent, provenance, read, table
from docs_recipes import own_recipes
from docs_training import (
    cpu_training,
    first_step,
    precisions,
    recipes,
    training_speed,
    training_speed_line,
    trainings,
)

if TYPE_CHECKING:
    from scaleproof.paper.reproduction import Reproduction

DOCUMENTS = ("README.md", "docs/results/README.md")
DOCUMENTS += tuple(
    f"docs/{name}.md" for name in ("budget", "lab-log", "museum", "objectives", "readings", "train", "trust")
)
BLOCK = re.compile(r"(<!-- generated: ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def demo_attacks() -> str:
    evaluation, run = read("demo-cifar10/evaluation.json"), read("demo-cifar10/run.json")
    restarts = evaluation["attacks"][0]["restarts"]
    rows = [["clean", percent(evaluation["clean"]), "", ""]]
    for attack in evaluation["attacks"]:
        low, high = attack["robust"]["interval"]
        rows.append(
            [
                attack["label"],
                percent(attack["robust_one_restart"]),
                percent(attack["robust"]),
                f"{100 * low:.1f} to {100 * high:.1f}",
            ]
        )
    low, high = evaluation["worst_case"]["interval"]
    rows.append(
        [
            "**worst case**",
            "",
            f"**{percent(evaluation['worst_case'])}**",
            f"{100 * low:.1f} to {100 * high:.1f}",
        ]
    )
    mismatch = next(a["cosine_mismatch"] for a in evaluation["attacks"] if a["cosine_mismatch"] is not None)
    head = ["accuracy in %", "1 restart", f"{restarts} restarts", "95% interval"]
    facts = provenance(run, evaluation["clean"]["count"])
    note = (
        f"\nThe cosine's argmax is not the decision on {100 * mismatch:.1f}% of the clean images ({facts}).\n"
    )
    return table(head, rows) + note


def demo_sweep() -> str:
    sweep, run = read("demo-scale-sweep/sweep.json"), read("demo-scale-sweep/run.json")
    names = list(dict.fromkeys(row["label"] for row in sweep["rows"]))
    cell = {(row["alpha"], row["label"]): percent(row["robust"]) for row in sweep["rows"]}
    rows = [[f"{alpha:g}", *[cell[alpha, name] for name in names]] for alpha in sweep["alphas"]]
    return table(["logits times", *names], rows) + f"\n({provenance(run, sweep['clean']['count'])})\n"


def speed(machines: Sequence[str] = ("cpu", "cpu-theirs", "h200")) -> str:
    titles = {"cpu": "demo network", "cpu-theirs": "the same, in code that is not ours", "h200": "ResNet-18"}
    parts = []
    for name in machines:
        title = titles[name]
        record = read(f"benchmarks/{name}.json")
        base = record["results"]["torchattacks"]
        rows = [
            [
                who,
                f"{run['image_steps_per_second']:,.0f}",
                f"{run['image_steps_per_second'] / base['image_steps_per_second']:.2f}",
                f"{run['verdict_seconds']:.2f}",
                f"{run['robust']:.2f}",
            ]
            for who, run in record["results"].items()
        ]
        facts = f"{record['images']:,} images, torch {record['versions']['torch']}, commit {record['commit']}"
        where = f"{record['hardware']['name']}, {facts}"
        head = [f"{title}, PGD-20", "image-steps/s", "ratio", "seconds to verdict", "robust %"]
        parts.append(table(head, rows) + f"\n({where})\n")
    return "\n".join(parts)


def memory() -> str:
    record = read("benchmarks/memory-h200.json")
    rows = [
        [f"{row['images']:,}", f"{row['process_mb']:,.0f}", f"{row['device_mb']:,.0f}"]
        for row in record["rows"]
    ]
    facts = f"batch size {record['batch_size']}, {record['hardware']['name']}, commit {record['commit']}"
    return table(["images", "process, MB", "device, MB"], rows) + f"\n(cascade, {facts})\n"


def paper() -> str:
    """The paper's numbers and sentences beside the run folders under docs/results/paper."""
    from scaleproof.paper.page import page

    return page(reproduced())


def paper_main() -> str:
    """The paper's main table on CIFAR-10 with a ResNet-18, and how many of all claims got which verdict."""
    from scaleproof.paper.page import excerpt, totals

    found = reproduced()
    (table,) = (table for table in found.tables if table.id == "multi-step")
    return excerpt(table, found.of(table), "cifar10", "resnet18") + "\n\n" + totals(found)


def demo_sweep_facts() -> str:
    sweep, run = read("demo-scale-sweep/sweep.json"), read("demo-scale-sweep/run.json")
    numbers = "[the numbers](docs/results/README.md#the-scale-of-the-logits)"
    return f"({provenance(run, sweep['clean']['count'])}; {numbers})\n"


def paper_figures() -> str:
    """The paper's figures that `tools/keep_results.py` drew from the folders under docs/results/paper."""
    from scaleproof.paper.figures import figures

    drawn = [one for one in figures() if (RESULTS / "paper" / f"{one.id}.png").exists()]
    left = ", ".join(f"`{one.id}`" for one in figures() if one not in drawn)
    shown = [f"![{one.title}](paper/{one.id}.png)\n" for one in drawn]
    return "\n".join([*shown, *([f"Not drawn yet: {left}.\n"] if left else [])])


@cache
def reproduced() -> Reproduction:
    from scaleproof.cli.reproduced import read_results
    from scaleproof.paper.scales import FULL
    from scaleproof.paper.steps import Place
    from scaleproof.paper.targets import ALL, wanted

    return read_results(wanted([ALL]), FULL, Place(root=RESULTS / "paper"))


GENERATORS: dict[str, Callable[[], str]] = {
    "demo-attacks": demo_attacks,
    "demo-sweep": demo_sweep,
    "demo-sweep-facts": demo_sweep_facts,
    "speed": speed,
    "speed-h200": lambda: speed(["h200"]),
    "memory": memory,
    "trainings": trainings,
    "parity": parity,
    "suites": suites,
    "near-misses": near_misses,
    "without-gradients": without_gradients,
    "differences": differences,
    "growth": growth,
    "objectives": objectives,
    "budget": lambda: budget("h200"),
    "budget-small": lambda: budget("cpu"),
    "nearest": nearest,
    "rankings": rankings,
    "training-speed": training_speed,
    "precisions": precisions,
    "recipes": recipes,
    "cpu-training": cpu_training,
    "own-recipes": own_recipes,
    "first-step": first_step,
    "speed-lines": lambda: autoattack_line() + training_speed_line(),
    "museum": museum,
    "limits": limits,
    "check-cost": check_cost,
    "paper": paper,
    "paper-figures": paper_figures,
    "paper-main": paper_main,
    "annex": annex,
    "annex-first": annex_first,
}


def fresh(text: str) -> str:
    return BLOCK.sub(lambda match: match[1] + GENERATORS[match[2]]() + match[3], text)


def main() -> int:
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text()
        if fresh(text) != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(fresh(text))
    if stale:
        print("out of date:" if "--check" in sys.argv else "written:", ", ".join(stale))
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
