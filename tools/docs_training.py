"""Generated parts on trainings: what was run, how fast, in which numbers."""

from __future__ import annotations

import json
from statistics import fmean, stdev
from typing import Any

from docs_parts import RESULTS, percent, provenance, read, table


def trainings() -> str:
    """Every training under docs/results, one row a set of weights."""
    head = ["training", "weights", "epoch", "clean", "PGD-20", "CW-20", "worst", "minutes"]
    rows, facts = [], set()
    for path in sorted(RESULTS.rglob("training.json")):
        folder = path.parent.relative_to(RESULTS).as_posix()
        found = read(f"{folder}/training.json")
        if "results" not in found:
            continue
        run = read(f"{folder}/run.json")
        model, epochs = found["model"]["architecture"], len(found["history"])
        recipe, seed, eps = found["recipe"]["name"], run["seed"], found["threat"]["eps"]
        what = f"{model}, `{recipe}`{unlike(found)}, {epochs} epochs, eps {255 * eps:.3g}/255, seed {seed}"
        what += "" if found["test"]["count"] == 10_000 else f", n = {found['test']['count']:,}"
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


def unlike(training: dict[str, Any]) -> str:
    """In what a training's schedule is not what its recipe says today, at its length."""
    from scaleproof.training import recipe

    name, method = training["recipe"]["name"], training["defense"]["defense"]
    stated = recipe(method, name=name, architecture=training["model"]["architecture"].removesuffix("+he"))
    config = stated.config.lasting(training["config"]["epochs"]).describe()
    stated, own = json.loads(json.dumps(config))["schedule"], training["config"]["schedule"]
    if stated == own:
        return ""
    return " as it was then" if stated["kind"] == own["kind"] else " with settings of its own"


def cpu_training() -> str:
    """What a CPU trains while one waits."""
    found, run = read("cpu/at-small/training.json"), read("cpu/at-small/run.json")
    chosen, hardware = found["results"]["selected"]["evaluation"], run["hardware"]
    command = run["command"].partition(" --out")[0]
    pgd = next(percent(attack["robust"]) for attack in chosen["attacks"] if attack["name"] == "pgd")
    took = f"{run['seconds'] / 60:.0f} minutes on {hardware['threads']} cores (beside other work)"
    return (
        f"    {command}\n\ntook {took} and left {percent(chosen['clean'])}% clean and {pgd}% under PGD-20\n"
        f"({provenance(run, found['test']['count'])}).\n"
    )


def recipes() -> str:
    """The same defense by the default recipe and by the paper's text."""
    folders = ("paper/cifar10-resnet18-at/pang-120/seed-0/train", "recipes/at-paper-literal")
    rows, facts = [], set()
    for folder in folders:
        found, run = read(f"{folder}/training.json"), read(f"{folder}/run.json")
        for kind in ("selected", "last"):
            evaluation = found["results"][kind]["evaluation"]
            scores = {attack["name"]: percent(attack["robust"]) for attack in evaluation["attacks"]}
            numbers = [percent(evaluation["clean"]), scores["pgd"], scores["pgd-cw"]]
            rows.append(
                [f"`{found['recipe']['name']}`, {kind}", str(found["results"][kind]["epoch"]), *numbers]
            )
        what = f"{found['label']}, {found['model']['architecture']}, {len(found['history'])} epochs"
        facts.add(f"{what}, {provenance(run, found['test']['count'])}")
    head = ["recipe, weights", "epoch", "clean", "PGD-20", "CW-20"]
    return table(head, rows) + "\n(" + "; ".join(sorted(facts)) + ")\n"


def training_speed() -> str:
    """A table for each run of the benchmark."""
    paths = sorted((RESULTS / "benchmarks").glob("training-*.json"))
    return "\n".join(speed_table(read(f"benchmarks/{path.name}")) for path in paths)


def speed_table(record: Any) -> str:
    base = {row["model"]: row for row in record["rows"] if row["contender"] == "reference"}
    rows = []
    for row in record["rows"]:
        reference, share = base.get(row["model"]), row.get("share_of_peak")
        ratio = "" if reference is None else f"{reference['epoch_seconds'] / row['epoch_seconds']:.2f}"
        times = [f"{row['step_ms']:.2f}", f"{row['epoch_seconds']:.2f}"]
        rows.append(
            [f"{row['contender']}, {row['model']}", *times, ratio, f"{100 * share:.0f}" if share else ""]
        )
    facts = f"batch {record['batch']}, {record['hardware']['name']}, torch {record['versions']['torch']}"
    head = ["PGD-10 training, 50,000 images", "ms a step", "seconds an epoch", "ratio", "% of bf16 peak"]
    return table(head, rows) + f"\n({facts}, commit {record['commit']}, one run)\n"


def first_step() -> str:
    """How long a training takes to its first step."""
    path = RESULTS / "benchmarks" / "start-h200.json"
    if not path.exists():
        return "Not measured yet.\n"
    record = read("benchmarks/start-h200.json")
    parts = list(record["rows"][0]["seconds"])
    rows = [[row["caches"], *(f"{row['seconds'][part]:.1f}" for part in parts)] for row in record["rows"]]
    facts = f"{record['model']}, {record['data']}, {record['hardware']['name']}, commit {record['commit']}"
    return table(["compile caches", *(f"{part}, s" for part in parts)], rows) + f"\n({facts})\n"


def training_speed_line() -> str:
    """The same in a sentence."""
    record = read("benchmarks/training-h200.json")
    rows = {row["contender"]: row for row in record["rows"] if row["model"] == "resnet18"}
    base, ours = rows["reference"]["epoch_seconds"], rows["at"]["epoch_seconds"]
    return (
        f"PGD-10 training of a ResNet-18 takes {ours:.1f} s for an epoch of 50,000 images, {base / ours:.1f} times as "
        "fast as a loop in the style of\npublished code in the same run "
        f"({record['hardware']['name']}, commit {record['commit']}; [more](docs/results/README.md#trainings)).\n"
    )


def precisions() -> str:
    """The same trainings in bf16 by the captured step and in float32 by the plain loop, seed by seed."""
    found: dict[tuple[str, str], dict[int, tuple[Any, Any]]] = {}
    for path in sorted((RESULTS / "precision").glob("*/training.json")):
        folder = path.parent.relative_to(RESULTS).as_posix()
        training, run = read(f"{folder}/training.json"), read(f"{folder}/run.json")
        name = f"{training['label']}, {training['model']['architecture']}, {len(training['history'])} epochs"
        found.setdefault((name, training["speed"]["precision"]), {})[run["seed"]] = (training, run)
    if not found:
        return "Not measured yet.\n"
    rows = [
        [name, precision, f"{len(runs)}: {', '.join(map(str, sorted(runs)))}", *means(runs)]
        for (name, precision), runs in found.items()
    ]
    head = ["training", "precision", "seeds", "clean", "PGD-20", "CW-20", "SI-PGD-20", "worst"]
    facts = {
        f"n = {training['test']['count']:,}, {run['hardware']['name']}, commit {run['commit']}"
        for runs in found.values()
        for training, run in runs.values()
    }
    return (
        table(head, rows)
        + "\n(means over seeds ± their standard deviation; "
        + "; ".join(sorted(facts))
        + ")\n"
    )


def means(runs: dict[int, tuple[Any, Any]]) -> list[str]:
    """Clean, three attacks and the worst case of the last weights, over seeds."""
    columns: list[list[float]] = [[] for _ in range(5)]
    for training, _ in runs.values():
        evaluation = training["results"]["last"]["evaluation"]
        attacks = {attack["name"]: attack["robust"] for attack in evaluation["attacks"]}
        shares = [evaluation["clean"], *(attacks[name] for name in ("pgd", "pgd-cw", "si-pgd"))]
        shares.append(evaluation["worst_case"])
        for column, share in zip(columns, shares, strict=True):
            column.append(100 * share["accuracy"])
    return [f"{fmean(column):.2f}" + spread(column) for column in columns]


def spread(values: list[float]) -> str:
    return f" ± {stdev(values):.2f}" if len(values) > 1 else ""
