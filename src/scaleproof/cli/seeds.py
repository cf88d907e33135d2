"""Several seeds of one training: means and deviations over them, as a document, a table and files beside the runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from rich.table import Table

from scaleproof.cli.tables import Document, finding_names, radius, training_label
from scaleproof.files import read_json

WORDS = "mean and deviation in %"


def summary(folders: Sequence[Path], documents: Sequence[Document]) -> Document:
    """What finished trainings that differ in their seed give together, for each set of weights."""
    first = documents[0]
    evaluations = {
        kind: [document["results"][kind]["evaluation"] for document in documents] for kind in first["results"]
    }
    return {
        "schema": "scaleproof.seeds/1",
        "label": first["label"],
        "threat": first["threat"],
        "count": evaluations["selected"][0]["clean"]["count"],
        "runs": [{"folder": folder.name, "seed": seed_of(folder)} for folder in folders],
        "results": {kind: columns(found) for kind, found in evaluations.items()},
        "one_answer": {kind: alike(folders, found) for kind, found in evaluations.items()},
    }


def alike(folders: Sequence[Path], evaluations: Sequence[Document]) -> list[int]:
    """The seeds whose weights answer one class for all but a few images."""
    runs = zip(folders, evaluations, strict=True)
    return [seed_of(folder) for folder, found in runs if "one-answer" in finding_names(found)]


def seed_of(folder: Path) -> int:
    return int(read_json(folder / "run.json")["seed"])


def remarks(document: Document) -> list[str]:
    """A warning for each set of weights that answer one class, with their seeds."""
    return [
        f"warning, {kind} weights of seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}: one answer, "
        "whatever the images show. They have learned next to nothing, and are in the mean all the same."
        for kind, seeds in document["one_answer"].items()
        if seeds
    ]


def columns(evaluations: Sequence[Document]) -> list[Document]:
    """Clean, each attack and the worst case: the accuracy of each seed, their mean and deviation (n - 1)."""
    labels = ["clean", *map(training_label, evaluations[0]["attacks"]), "worst case"]
    found = zip(*map(accuracies, evaluations), strict=True)
    return [
        {"label": label, "accuracies": list(each), "mean": mean(each), "deviation": stdev(each)}
        for label, each in zip(labels, found, strict=True)
    ]


def accuracies(evaluation: Document) -> list[float]:
    shares = [
        evaluation["clean"],
        *(attack["robust"] for attack in evaluation["attacks"]),
        evaluation["worst_case"],
    ]
    return [share["accuracy"] for share in shares]


def cells(found: Sequence[Document]) -> list[str]:
    return [f"{100 * column['mean']:.2f} ± {100 * column['deviation']:.2f}" for column in found]


def labels_of(document: Document) -> list[str]:
    return ["weights", *(column["label"] for column in document["results"]["selected"])]


def seeds_table(document: Document) -> Table:
    """One column a set of weights, so that it fits a narrow terminal under any number of attacks."""
    table = Table(title=f"{len(document['runs'])} seeds: {WORDS}", title_justify="left")
    for name in ("weights", *document["results"]):
        table.add_column(name, justify="left" if name == "weights" else "right", no_wrap=True)
    every = (cells(found) for found in document["results"].values())
    for label, *row in zip(labels_of(document)[1:], *every, strict=True):
        table.add_row(label, *row)
    return table


def markdown(document: Document) -> str:
    """The same table with what a reader of the file must know."""
    names = labels_of(document)
    rows = [names, ["---", *["---:"] * (len(names) - 1)]]
    rows += [[kind, *cells(found)] for kind, found in document["results"].items()]
    seeds = ", ".join(str(run["seed"]) for run in document["runs"])
    folders = ", ".join(run["folder"] for run in document["runs"])
    facts = f"n = {document['count']} test images, {radius(document['threat'])}"
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    said = f"({WORDS}, n - 1, over the seeds {seeds}; {facts}; from {folders}. Robust accuracy is an upper bound.)"
    warnings = [line for remark in remarks(document) for line in (remark, "")]
    return "\n".join([f"# {document['label']}", "", *lines, "", *warnings, said, ""])


def write(folders: Sequence[Path], document: Document) -> tuple[Path, Path]:
    """seeds.json and seeds.md beside the runs; runs in a folder of many others lend them the name of the first.

    Those of seeds that are not among these stay: then the files say in their names which seeds are in them.
    """
    from scaleproof.files import write_atomically
    from scaleproof.store import write_json

    own = all(
        folder.name == f"seed-{run['seed']}" for folder, run in zip(folders, document["runs"], strict=True)
    )
    name, place = "seeds" if own else f"{folders[0].name}-seeds", folders[0].parent
    if not seeds_in(place / f"{name}.json") <= {run["seed"] for run in document["runs"]}:
        name += "".join(f"-{run['seed']}" for run in document["runs"])
    described, page = (place / f"{name}.{ending}" for ending in ("json", "md"))
    write_json(described, document)
    write_atomically(page, markdown(document).encode())
    return described, page


def seeds_in(path: Path) -> set[int]:
    return {run["seed"] for run in read_json(path)["runs"]} if path.is_file() else set()
