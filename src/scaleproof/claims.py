"""Claims: what a stored evaluation says of itself, and whether its files agree with one another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scaleproof.evaluation import VERDICTS, AttackResult, Evaluation, Share
from scaleproof.examples import FILE, Examples
from scaleproof.store import read_arrays, settings_digest
from scaleproof.threat import Threat

Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at, whether it is as claimed, and what was seen."""

    name: str
    passed: bool
    seen: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Claims:
    """A run folder as it stands: its documents, the verdict on every image, and the examples it kept."""

    document: Document
    run: Document
    evaluation: Evaluation
    examples: Examples | None
    examples_sha256: str | None

    @property
    def threat(self) -> Threat:
        return Threat(**self.document["threat"])

    @property
    def first_broken(self) -> dict[int, tuple[str, int]]:
        """For each broken image the first attack, in their order, and its first restart that broke it."""
        found: dict[int, tuple[str, int]] = {}
        for result in self.evaluation.attacks:
            for restart, broken in enumerate(result.verdicts["broken"]):
                for row in np.flatnonzero(broken):
                    found.setdefault(int(row), (result.name, restart))
        return found


def read_claims(folder: Path) -> Claims:
    """A finished evaluation; what cannot be read at all is the caller's mistake."""
    document, run = read_document(folder / "evaluation.json"), read_document(folder / "run.json")
    if "examples" not in document and not run.get("settings", {}).get("keep_examples"):
        raise ValueError(f"{folder} keeps no examples to re-check: evaluate again with --keep-examples")
    path = folder / FILE
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    try:
        evaluation = evaluation_of(document, read_arrays(folder / "verdicts.npz"))
        return Claims(
            document=document,
            run=run,
            evaluation=evaluation,
            examples=Examples.read(path),
            examples_sha256=digest,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{folder} is damaged, it lacks {error}: take the files as they were written"
        ) from error


def read_document(path: Path) -> Document:
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        remedy = ""
        if (path.parent / "training.json").is_file():
            remedy = f": it is a training, give a run of scaleproof evaluate {path.parent} --keep-examples"
        raise ValueError(
            f"a finished evaluation must have {path.name}, {path.parent} has none{remedy}"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} must be JSON, it is damaged: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must be a JSON object, it is a {type(values).__name__}")
    return values


def evaluation_of(document: Document, arrays: dict[str, NDArray[Any]] | None) -> Evaluation:
    """The evaluation whose verdicts these are."""
    if arrays is None:
        raise ValueError("verdicts.npz is absent or damaged: take the files as they were written")
    results = tuple(result_of(attack, arrays) for attack in document["attacks"])
    shapes = {values.shape[1:] for result in results for values in result.verdicts.values()}
    if shapes != {arrays["labels"].shape} or arrays["clean_prediction"].shape != arrays["labels"].shape:
        raise ValueError(
            "verdicts.npz must have one column an image in every array: take it as it was written"
        )
    return Evaluation(
        mode=document["mode"],
        labels=arrays["labels"],
        clean_prediction=arrays["clean_prediction"],
        cosine_disagrees=None,
        attacks=results,
        seconds=0.0,
        speed={},
    )


def result_of(attack: Document, arrays: dict[str, NDArray[Any]]) -> AttackResult:
    name = attack["name"]
    return AttackResult(
        name=name,
        label=attack["label"],
        settings=attack["settings"],
        scale_invariant=attack["scale_invariant"],
        needs_features=False,
        verdicts={field: arrays[f"{field}__{name}"] for field in VERDICTS},
        forwards=0,
        backwards=0,
        seconds=0.0,
    )


def consistency(claims: Claims) -> list[Check]:
    """Whether the files of a run folder tell one story: no model and no images are needed for it."""
    return [
        check("settings", "run.json is about this model and these images", settings_problems(claims)),
        check("threat", "all attacks had the claimed budget", threat_problems(claims)),
        check("shares", "every share follows from the verdicts", share_problems(claims)),
        check("examples", "one for each broken image, as it was judged", example_problems(claims)),
    ]


def check(name: str, meaning: str, problems: Iterator[str]) -> Check:
    found = list(problems)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Check(name=name, passed=not found, seen=found[0] + more if found else meaning)


def settings_problems(claims: Claims) -> Iterator[str]:
    settings = claims.run.get("settings", {})
    if settings_digest(settings) != claims.run.get("settings_sha256"):
        yield "the settings in run.json are not those of its own digest"
    pairs = (
        ("weights", "model", "weights_sha256"),
        ("pixels", "data", "sha256"),
        ("images", "data", "count"),
    )
    for name, part, field in pairs:
        if settings.get(name) != claims.document[part][field]:
            yield f"run.json has other {name} than evaluation.json"


def threat_problems(claims: Claims) -> Iterator[str]:
    claimed = claims.threat
    for result in claims.evaluation.attacks:
        had = (result.settings.get("norm"), result.settings.get("eps"))
        if had != (claimed.norm, claimed.eps):
            yield f"{result.name} had {had[0]} {had[1]}, the claim is {claimed.norm} {claimed.eps}"


def share_problems(claims: Claims) -> Iterator[str]:
    """Shares of evaluation.json that are not those of the verdicts, down to the last digit of their intervals."""
    evaluation, document = claims.evaluation, claims.document
    stated: list[tuple[str, object, Share]] = [
        ("clean", document["clean"], evaluation.clean),
        ("worst_case", document["worst_case"], evaluation.robust()),
    ]
    for attack in document["attacks"]:
        name = attack["name"]
        stated.append((name, attack["robust"], evaluation.robust(name)))
        stated.append((f"{name}, one restart", attack["robust_one_restart"], evaluation.robust(name, 1)))
    for name, share, counted in stated:
        if share != counted.as_json():
            yield f"{name} is stated as {share}, the verdicts give {counted.correct} of {counted.count}"
    if document["data"]["count"] != evaluation.count:
        yield f"the data are stated as {document['data']['count']} images, there are {evaluation.count} verdicts"


def example_problems(claims: Claims) -> Iterator[str]:
    """Examples that are not those of the verdicts: missing, too many, by another attack, or another file."""
    wanted, stated, examples = claims.first_broken, claims.document.get("examples"), claims.examples
    if examples is None:
        if wanted or stated is not None:
            yield f"{FILE} is absent or damaged, {len(wanted)} images are claimed broken"
        return
    if stated is None or claims.examples_sha256 != stated.get("sha256"):
        yield f"{FILE} is not the file that evaluation.json names"
    rows = [int(row) for row in examples.row]
    if len(set(rows)) != len(rows):
        yield f"{FILE} has two examples of one image"
    missing, extra = sorted({*wanted} - {*rows}), sorted({*rows} - {*wanted})
    if missing:
        yield f"image {missing[0]} is claimed broken and has no example"
    if extra:
        yield f"image {extra[0]} has an example and is not claimed broken"
    for row, name, restart in zip(rows, examples.attack, examples.restart, strict=True):
        if row in wanted and wanted[row] != (str(name), int(restart)):
            yield f"image {row} was broken first by {wanted[row]}, its example is by {(str(name), int(restart))}"
