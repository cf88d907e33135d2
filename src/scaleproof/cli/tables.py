"""Results as tables on a terminal, from the JSON of a run folder: fresh and finished runs look the same."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from scaleproof.report.words import plural, to_publish, topic

Document = dict[str, Any]


def percent(share: Document) -> str:
    return f"{100 * share['accuracy']:.2f}"


def interval(share: Document) -> str:
    low, high = share["interval"]
    return f"{100 * low:.1f} to {100 * high:.1f}"


def radius(threat: Document) -> str:
    """The threat in words; eps as a fraction of 255 where it is one."""
    levels = threat["eps"] * 255
    whole = abs(levels - round(levels)) < 1e-6 and threat["norm"] == "linf"
    return f"{threat['norm']} {f'{round(levels)}/255' if whole else format(threat['eps'], 'g')}"


def accuracies(document: Document) -> str:
    """An evaluation in a sentence."""
    found = [("clean", document["clean"])]
    found += [(attack["label"], attack["robust"]) for attack in document["attacks"]]
    found += [(worst_case(document), document["worst_case"])]
    return f"{caption(document)}: {', '.join(f'{name} {percent(share)}' for name, share in found)}."


def caption(document: Document) -> str:
    facts = f"n = {document['clean']['count']}, {radius(document['threat'])}, {document['mode']}"
    return f"Accuracy in %, {facts}"


def worst_case(document: Document) -> str:
    return "worst case" if trusted(document) else "worst case (unreliable)"


def evaluation_table(document: Document) -> Table:
    """One row an attack; robust accuracy is an upper bound."""
    table = Table(title=caption(document), title_justify="left")
    several = any(has_restarts(attack) for attack in document["attacks"])
    first = ["1 restart"] if several else []
    result = "all restarts" if several else "robust"
    result = "left after" if document["mode"] == "cascade" else result
    for name in ("attack", *first, result, "95% interval", "seconds"):
        table.add_column(name, justify="left" if name == "attack" else "right", no_wrap=True)
    blank = [""] * len(first)
    table.add_row("clean", *blank, percent(document["clean"]), interval(document["clean"]), "")
    for attack in document["attacks"]:
        one = [percent(attack["robust_one_restart"]) if has_restarts(attack) else ""] if several else []
        worst, seconds = attack["robust"], f"{attack['seconds']:.1f}"
        table.add_row(attack["label"], *one, percent(worst), interval(worst), seconds)
    table.add_section()
    worst, label, found = document["worst_case"], worst_case(document), document.get("expected")
    table.add_row(
        label if found is None else f"{label}, mean answer", *blank, percent(worst), interval(worst), ""
    )
    if found is not None:  # the number of a randomised model
        value = f"{100 * found['worst_case']:.2f}"
        table.add_row(f"expected worst case, {found['draws']} draws", *blank, value, "", "", style="bold")
    return table


def has_restarts(attack: Document) -> bool:
    """Whether an attack ran several times; one run for each target is one time."""
    return bool(attack["restarts"] > 1 and not attack["settings"].get("targets"))


def trusted(document: Document) -> bool:
    """Whether nothing on record makes the number unreliable."""
    failed = any(check["passed"] is False for check in document.get("checks") or ())
    return document.get("reliable") is not False and not failed


def check_remarks(document: Document) -> list[str]:
    """What the checks found, and what to do about it."""
    checks = document.get("checks")
    if trusted(document):
        if checks is None:
            return ["Not examined: is the number real?"]
        passed = sum(check["passed"] is True for check in checks)
        skipped = [check for check in checks if check["passed"] is None]
        return [f"Examined: {plural(passed, 'check')} passed, none failed.", *map(skipped_remark, skipped)]
    failed = [check for check in checks or () if check["passed"] is False]
    said = [
        f"check failed, {check['label']}{figures(check)}: {check['meaning']} {check['advice']}".strip()
        for check in failed
    ]
    return ["UNRELIABLE: do not quote the worst case.", *said]


def skipped_remark(check: Document) -> str:
    """What a check that was not run is about, and why it was not."""
    about, why = topic(check["label"]), check["meaning"].rstrip(".")
    return f"Skipped: {about[:1].lower()}{about[1:]} ({why[:1].lower()}{why[1:]})."


def figures(check: Document) -> str:
    known = check["value"] is not None and check["limit"] is not None
    return f" ({check['value']:.3g}, limit {check['limit']:.3g})" if known else ""


def evaluation_remarks(document: Document) -> list[str]:
    """What a reader must know beside the numbers, one sentence each."""
    said: list[str] = check_remarks(document)
    for attack in document["attacks"]:
        if attack["cosine_mismatch"] is not None:
            share = f"{100 * attack['cosine_mismatch']:.1f}%"
            said.append(
                f"{attack['label']}: the cosine's argmax is not the decision on {share} of the clean images."
            )
        said += [f"{attack['label']}: {note}." for note in attack["notes"]]
    if "expected" in document:
        found = document["expected"]
        said.append(
            f"The number of a randomised model is its expected accuracy, here over {found['draws']} draws: clean "
            f"{100 * found['clean']:.2f}%, worst case {100 * found['worst_case']:.2f}%; all else in the table goes by "
            "the mean probabilities of the draws."
        )
    said += [f"{finding['severity']}: {finding['meaning']}." for finding in document["findings"]]
    return [*said, f"Robust accuracy is an upper bound. {publish_remark(document)}".strip()]


def publish_remark(document: Document) -> str:
    """What gives the number to publish, where nothing else is said against this one."""
    randomised = "expected" in document or any(f["name"] == "randomised" for f in document["findings"])
    said = to_publish({attack["name"]: attack["settings"] for attack in document["attacks"]})
    return said if trusted(document) and not randomised else ""


def sweep_table(document: Document) -> Table:
    """One row a scale, one column an attack."""
    title = f"Robust accuracy in % when logits are multiplied by alpha, n = {document['clean']['count']}"
    table = Table(title=f"{title}, {radius(document['threat'])}", title_justify="left")
    columns = by_attack(document)
    table.add_column("alpha", justify="right")
    for rows in columns.values():
        table.add_column(rows[0]["label"], justify="right")
    for number, alpha in enumerate(document["alphas"]):
        table.add_row(f"{alpha:g}", *[percent(rows[number]["robust"]) for rows in columns.values()])
    table.add_section()
    table.add_row("swing", *[f"{swing(rows):.2f}" for rows in columns.values()])
    table.add_row("same bits", *["yes" if document["identical"][name] else "no" for name in columns])
    return table


def by_attack(document: Document) -> dict[str, list[Document]]:
    """The rows of each attack, in the order of the scales."""
    found: dict[str, list[Document]] = {}
    for row in document["rows"]:
        found.setdefault(row["attack"], []).append(row)
    return found


def swing(rows: list[Document]) -> float:
    """Largest minus smallest robust accuracy, in points."""
    values: list[float] = [100 * row["robust"]["accuracy"] for row in rows]
    return max(values) - min(values)


def sweep_remarks(document: Document) -> list[str]:
    """What the table says, in sentences made from it."""
    worst = max(by_attack(document).values(), key=swing)
    moved = f"moved by {swing(worst):.1f} points" if swing(worst) else "did not move"
    said = [f"No decision changed; the verdict of {worst[0]['label']} {moved}."]
    flat = [rows[0]["label"] for rows in by_attack(document).values() if rows[0]["scale_invariant"]]
    if flat:
        said.append(f"Scale-invariant by construction: {', '.join(flat)}.")
    if document["cosine_mismatch"] is not None:
        share = f"{100 * document['cosine_mismatch']:.1f}%"
        said.append(f"The cosine's argmax is not the decision on {share} of the clean images.")
    return [*said, "Robust accuracy is an upper bound: take the lowest."]


CHECKPOINTS = {
    "selected": "selected on held-out images",
    "last": "last",
    "leaking": "best on test images (leaks)",
}


def training_label(attack: Document) -> str:
    """An attack's label; plain PGD says its steps, for the probe of every epoch is PGD with others."""
    steps = attack["settings"].get("steps")
    return f"PGD-{steps}" if attack["label"] == "PGD" and steps else str(attack["label"])


def training_table(document: Document, seed: str = "") -> Table:
    """One row a set of weights, one column an attack; of several trainings each says its seed."""
    results = document["results"]
    first = results["selected"]["evaluation"]
    facts = f"n = {first['clean']['count']}, {radius(document['threat'])}"
    called = ", ".join(filter(None, (document["label"], seed)))
    table = Table(title=f"{called}: accuracy in %, {facts}", title_justify="left")
    for name in (
        "weights",
        "epoch",
        "clean",
        *map(training_label, first["attacks"]),
        "worst case",
    ):
        words = name == "weights"  # the only column that a narrow terminal may break
        table.add_column(name, justify="left" if words else "right", no_wrap=not words)
    for kind, result in results.items():
        found = result["evaluation"]
        robust = [percent(attack["robust"]) for attack in found["attacks"]]
        held_out = kind != "selected" or document["held_out"]
        chosen = CHECKPOINTS[kind] if held_out else "last (nothing was held out)"
        alike = "one-answer" in finding_names(found)
        table.add_row(
            f"{chosen}: one answer" if alike else chosen,
            str(result["epoch"]),
            percent(found["clean"]),
            *robust,
            percent(found["worst_case"]),
        )
    return table


def training_remarks(document: Document) -> list[str]:
    """What a reader must know beside the numbers."""
    speed = document["speed"]
    seconds = sum(record["seconds"] for record in document["history"])
    graph = "in a captured graph" if speed["graph"] else "step by step"
    epochs = plural(len(document["history"]), "epoch")
    attack = speed.get("attack_precision", speed["precision"])
    apart = "" if attack.startswith(speed["precision"]) else f" (its attack in {attack})"
    said = [f"Trained {epochs} in {seconds:.0f} s, {speed['precision']}{apart}, {graph}."]
    said += [f"note: {note}" for note in speed["notes"]]
    if document["stopped"] is not None:
        said.append(f"The guard {document['stopped']}.")
    said += weights_remarks(document["results"])
    said.append("Not examined: is the number real? `scaleproof evaluate` on this folder tells.")
    return [*said, "Robust accuracy is an upper bound."]


def finding_names(evaluation: Document) -> set[str]:
    return {finding["name"] for finding in evaluation.get("findings", [])}


def weights_remarks(results: Document) -> list[str]:
    """The findings about each set of weights, once where several have the same."""
    found: dict[tuple[str, str], list[str]] = {}
    for kind, result in results.items():
        for finding in result["evaluation"].get("findings", []):
            found.setdefault((finding["severity"], finding["meaning"]), []).append(kind)
    said = [
        f"{severity}, {' and '.join(filter(None, (', '.join(kinds[:-1]), kinds[-1])))} weights: {meaning}."
        for (severity, meaning), kinds in found.items()
    ]
    names = set().union(*(finding_names(result["evaluation"]) for result in results.values()))
    advice = "Such weights have learned next to nothing: train longer, on more images or at another --rate."
    return [*said, advice] if "one-answer" in names else said
