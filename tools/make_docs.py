"""Write the generated parts of the documents from the run folders under docs/results.

    python tools/make_docs.py            write them
    python tools/make_docs.py --check    fail where one is out of date

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
DOCUMENTS = ("README.md", "docs/results/README.md", "docs/lab-log.md", "docs/trust.md")
BLOCK = re.compile(r"(<!-- generated: ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def read(path: str) -> Any:
    return json.loads((RESULTS / path).read_text())


def percent(share: dict[str, Any]) -> str:
    return f"{100 * share['accuracy']:.2f}"


def provenance(run: dict[str, Any], count: int) -> str:
    hardware, versions = run["hardware"]["name"], run["versions"]["torch"]
    return f"n = {count:,}, seed {run['seed']}, commit {run['commit']}, {hardware}, torch {versions}"


def table(head: list[str], rows: list[list[str]]) -> str:
    align = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, align, *rows]) + "\n"


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


def speed() -> str:
    parts = []
    for name, title in (("cpu", "demo network"), ("h200", "ResNet-18")):
        if not (RESULTS / "benchmarks" / f"{name}.json").exists():
            continue
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


def trainings() -> str:
    """Every training under docs/results, one row a set of weights."""
    head = ["training", "weights", "epoch", "clean", "PGD-20", "CW-20", "worst", "minutes"]
    rows, facts = [], set()
    for path in sorted(RESULTS.glob("*/training.json")):
        found, folder = read(f"{path.parent.name}/training.json"), path.parent.name
        if "results" not in found:
            continue
        run = read(f"{folder}/run.json")
        model, epochs = found["model"]["architecture"], len(found["history"])
        recipe, seed, eps = found["recipe"]["name"], run["seed"], found["threat"]["eps"]
        what = f"{model}, `{recipe}`, {epochs} epochs, eps {255 * eps:.3g}/255, seed {seed}"
        name = f"[{found['label']}]({folder}/), {what}"
        for kind, result in found["results"].items():
            scores = {a["name"]: percent(a["robust"]) for a in result["evaluation"]["attacks"]}
            worst = f"{percent(result['evaluation']['worst_case'])} of {len(scores)}"
            clean, minutes = percent(result["evaluation"]["clean"]), f"{run['seconds'] / 60:.1f}"
            numbers = [clean, scores.get("pgd", ""), scores.get("pgd-cw", ""), worst]
            first = kind == "selected"
            rows.append(
                [name if first else "", kind, str(result["epoch"]), *numbers, minutes if first else ""]
            )
        count, hardware = found["test"]["count"], run["hardware"]["name"]
        facts.add(
            f"{found['data']['name']}, n = {count:,}, {hardware}, torch {run['versions']['torch']}, {run['commit']}"
        )
    return table(head, rows) + "\n(" + "; ".join(sorted(facts)) + ")\n"


def training_speed() -> str:
    record = read("benchmarks/training-h200.json")
    base = {row["model"]: row for row in record["rows"] if row["contender"] == "reference"}
    rows = [
        [
            f"{row['contender']}, {row['model']}",
            f"{row['step_ms']:.2f}",
            f"{row['epoch_seconds']:.2f}",
            f"{base[row['model']]['epoch_seconds'] / row['epoch_seconds']:.2f}"
            if row["model"] in base
            else "",
        ]
        for row in record["rows"]
    ]
    facts = f"batch {record['batch']}, {record['hardware']['name']}, torch {record['versions']['torch']}"
    head = ["PGD-10 training, 50,000 images", "ms a step", "seconds an epoch", "ratio"]
    return table(head, rows) + f"\n({facts}, commit {record['commit']}, one run)\n"


def parity() -> str:
    """AutoAttack standard beside the published implementation, stage by stage."""
    record = read("benchmarks/parity-cpu.json")
    rows = [
        [
            row["stage"],
            f"{row['ours']['robust']:.2f}",
            f"{row['theirs']['robust']:.2f}",
            f"{row['agreement']:.2f}",
            f"{row['ours']['seconds']:.1f} / {row['theirs']['seconds']:.1f}",
            f"{row['ours']['forwards']:,} / {row['theirs']['forwards']:,}",
            f"{row['ours']['backwards']:,} / {row['theirs']['backwards']:,}",
        ]
        for row in record["rows"]["float32"]
    ]
    head = ["after", "ours, %", "pyautoattack, %", "same images, %", "seconds", "forwards", "backwards"]
    facts = f"demo network, n = {record['images']}, {record['hardware']['name']}, commit {record['commit']}"
    return table(head, rows) + f"\n(ours / theirs; {facts})\n"


def museum() -> str:
    """Broken defenses: what PGD says, what catches them, what their key leaves."""
    record = read("museum.json")
    held_back = {room["name"] for room in record["rooms"] if room["held_back"]}

    def cell(share: float | None) -> str:
        return "refused" if share is None else f"{100 * share:.1f}"

    rows = [
        [
            visit["words"],
            f"{visit['strength']:g}",
            "held back" if visit["room"] in held_back else "setting",
            cell(visit["clean"]),
            cell(visit["before"]),
            visit["caught_by"] if visit["caught"] else "missed",
            "" if visit["key"] is None else cell(visit["after"]),
            visit["key"] or "nothing is hidden",
        ]
        for visit in record["visits"]
    ]
    head = ["defense", "strength", "half", "clean", "PGD says", "caught by", "with the key", "key"]
    place = f"{record['hardware']['name']}, commit {record['commit']}"
    return table(head, rows) + f"\n(accuracy in %, n = {record['count']}, seed {record['seed']}, {place})\n"


ANNEX = {  # what each record of a tour of the annex is
    "annex.json": ("first look", "the museum's network"),
    "annex-svhn.json": ("first look", "another network, on SVHN"),
    "annex-again.json": ("after the changes", "the museum's network"),
    "annex-svhn-again.json": ("after the changes", "another network, on SVHN"),
}


def looks() -> dict[tuple[str, str], dict[str, Any]]:
    return {what: read(name) for name, what in ANNEX.items() if (RESULTS / name).exists()}


def annex() -> str:
    """How many exhibits of the annex were caught, look by look."""
    rows, facts = [], []
    for (look, network), record in looks().items():
        visits = record["visits"]
        named = sum(visit["caught"] for visit in visits)
        missed = sum(not visit["failed"] for visit in visits)
        locked = [visit["after"] for visit in visits if visit["key"] is not None]
        opened = f"{sum(after < 0.1 for after in locked)} of {len(locked)}"
        fooled = [visit for visit in visits if (visit["before"] or 0) >= 0.1]
        found = f"{sum(bool(visit['failed']) for visit in fooled)} of {len(fooled)}"
        counts = [len(visits), named, len(visits) - named - missed, missed, found]
        rows.append([f"{look}, {network}", *map(str, counts), opened])
        facts.append(f"{record['hardware']['name']}, commit {record['commit']}")
    head = [*("look", "exhibits", "by the named check", "by another", "missed")]
    head += ["caught where PGD leaves 10% or more", "below 10% with the key"]
    count, seed = record["count"], record["seed"]
    return table(head, rows) + f"\n(n = {count}, seed {seed}, {'; '.join(dict.fromkeys(facts))})\n"


def annex_first() -> str:
    """Every exhibit of the annex at the first look: what PGD says, what caught it, what the key leaves."""
    found = {network: record for (look, network), record in looks().items() if look == "first look"}

    def cell(share: float | None) -> str:
        return "" if share is None else f"{100 * share:.0f}"

    def caught(visit: dict[str, Any]) -> str:
        if visit["caught"]:
            return "yes"
        return f"no, but {', '.join(visit['failed'])}" if visit["failed"] else "**missed**"

    rows = []
    for pair in zip(*(record["visits"] for record in found.values()), strict=True):
        what = [pair[0]["words"], f"{pair[0]['strength']:.3g}", pair[0]["caught_by"]]
        for visit in pair:
            numbers = [visit["clean"], visit["before"], visit["after"]]
            what += [" / ".join(filter(None, map(cell, numbers))), caught(visit)]
        rows.append(what)
    head = ["defense", "strength", "its check"]
    for network in found:
        head += [f"{network}: clean / PGD / key", "caught"]
    return table(head, rows) + "\n(accuracy in %)\n"


GENERATORS: dict[str, Callable[[], str]] = {
    "demo-attacks": demo_attacks,
    "demo-sweep": demo_sweep,
    "speed": speed,
    "memory": memory,
    "trainings": trainings,
    "parity": parity,
    "training-speed": training_speed,
    "museum": museum,
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
