"""Turn the JSON objects of a run folder into records."""

from functools import partial

from scaleproof.report.fields import Fields
from scaleproof.report.records import (
    Attack,
    Check,
    Data,
    Evaluation,
    Expected,
    Finding,
    Model,
    Provenance,
    Speed,
    Sweep,
    SweepRow,
    Threat,
)


def parse_provenance(fields: Fields) -> Provenance:
    """Read run.json."""
    hardware, versions = fields.child("hardware"), fields.child("versions")
    return Provenance(
        kind=fields.choice("kind", ("evaluation", "scale-sweep", "training", "analysis")),
        name=fields.text("name"),
        created=fields.text("created"),
        command=fields.text("command"),
        seed=fields.whole("seed"),
        commit=fields.optional("commit", fields.text),
        versions={name: versions.text(name) for name in versions.values},
        device=hardware.text("device"),
        device_name=hardware.text("name"),
        threads=hardware.whole("threads"),
        settings=fields.mapping("settings"),
        settings_sha256=fields.text("settings_sha256"),
        seconds=fields.number("seconds"),
    )


def parse_model(fields: Fields) -> Model:
    """Read the description of a classifier."""
    return Model(
        spec=fields.text("spec"),
        architecture=fields.text("architecture"),
        parameters=fields.whole("parameters"),
        weights_sha256=fields.text("weights_sha256"),
        head=fields.optional("head", fields.text),
    )


def parse_data(fields: Fields) -> Data:
    """Read the description of a data set."""
    return Data(
        name=fields.text("name"),
        split=fields.text("split"),
        count=fields.whole("count"),
        classes=fields.texts("classes"),
        sha256=fields.text("sha256"),
        source=fields.text("source"),
    )


def parse_threat(fields: Fields) -> Threat:
    """Read the threat model."""
    return Threat(norm=fields.choice("norm", ("linf", "l2")), eps=fields.number("eps"))


def parse_attack(fields: Fields) -> Attack:
    """Read one attack of an evaluation."""
    return Attack(
        name=fields.text("name"),
        label=fields.text("label"),
        settings=fields.mapping("settings"),
        restarts=fields.whole("restarts"),
        attacked=fields.whole("attacked"),
        robust_one_restart=fields.share("robust_one_restart"),
        robust=fields.share("robust"),
        forwards=fields.whole("forwards"),
        backwards=fields.whole("backwards"),
        seconds=fields.number("seconds"),
        image_steps_per_second=fields.number("image_steps_per_second", finite=False),
        scale_invariant=fields.flag("scale_invariant"),
        cosine_mismatch=fields.optional("cosine_mismatch", fields.fraction),
        notes=fields.texts("notes"),
    )


def parse_finding(fields: Fields) -> Finding:
    """Read one finding."""
    return Finding(
        name=fields.text("name"),
        severity=fields.choice("severity", ("note", "warning")),
        meaning=fields.text("meaning"),
    )


def parse_check(fields: Fields) -> Check:
    """Read one check."""
    number = partial(fields.number, finite=False)
    return Check(
        name=fields.text("name"),
        label=fields.text("label"),
        passed=fields.optional("passed", fields.flag),
        value=fields.optional("value", number),
        limit=fields.optional("limit", number),
        meaning=fields.text("meaning"),
        advice=fields.text("advice"),
    )


def parse_checks(fields: Fields) -> tuple[Check, ...] | None:
    """Read the checks of an evaluation, or None where nobody examined it."""
    checks = fields.optional("checks", fields.children)
    return None if checks is None else tuple(map(parse_check, checks))


def parse_speed(fields: Fields) -> Speed:
    """Read how the attacks were executed."""
    return Speed(
        precision=fields.text("precision"),
        folded=fields.flag("folded"),
        graph=fields.flag("graph"),
        compiled=fields.flag("compiled"),
        notes=fields.texts("notes"),
    )


def parse_evaluation(fields: Fields) -> Evaluation:
    """Read evaluation.json."""
    model, data = parse_model(fields.child("model")), parse_data(fields.child("data"))
    return parse_verdict(fields, model, data, parse_threat(fields.child("threat")))


def parse_expected(fields: Fields) -> Expected:
    """Read what is to be expected of a randomised model."""
    clean, worst = fields.fraction("clean"), fields.fraction("worst_case")
    return Expected(draws=fields.whole("draws"), clean=clean, worst_case=worst)


def parse_verdict(fields: Fields, model: Model, data: Data, threat: Threat) -> Evaluation:
    """Read what follows from the attacks on a known classifier."""
    evaluation = Evaluation(
        model=model,
        data=data,
        threat=threat,
        mode=fields.choice("mode", ("independent", "cascade")),
        clean=fields.share("clean"),
        attacks=tuple(parse_attack(attack) for attack in fields.children("attacks")),
        worst_case=fields.share("worst_case"),
        findings=tuple(parse_finding(finding) for finding in fields.children("findings")),
        speed=parse_speed(fields.child("speed")),
        reliable=fields.optional("reliable", fields.flag),
        checks=parse_checks(fields),
        expected=parse_expected(fields.child("expected")) if "expected" in fields.values else None,
    )
    check_evaluation(fields, evaluation)
    return evaluation


def check_evaluation(fields: Fields, evaluation: Evaluation) -> None:
    """Refuse an evaluation without attacks, or one that claims more than its weakest part shows."""
    if not evaluation.attacks:
        fields.refuse("attacks", "a list of at least one attack", [])
    names = [attack.name for attack in evaluation.attacks]
    if len(set(names)) != len(names):
        fields.refuse("attacks", "a list of attacks with different names", names)
    least = min(attack.robust.correct for attack in evaluation.attacks)
    if evaluation.worst_case.correct > least:
        fields.refuse("worst_case.correct", f"at most {least}, the strongest attack's", evaluation.worst_case)
    failed = [check.name for check in evaluation.checks or () if check.passed is False]
    if failed and evaluation.reliable:
        fields.refuse("reliable", f"false, as these checks failed: {', '.join(failed)}", True)


def parse_row(fields: Fields) -> SweepRow:
    """Read one attack at one scale."""
    return SweepRow(
        alpha=fields.number("alpha"),
        attack=fields.text("attack"),
        label=fields.text("label"),
        scale_invariant=fields.flag("scale_invariant"),
        robust=fields.share("robust"),
        gradient_size=fields.number("gradient_size", finite=False),
        zero_gradients=fields.fraction("zero_gradients"),
        digest=fields.text("digest"),
    )


def parse_sweep(fields: Fields) -> Sweep:
    """Read sweep.json."""
    identical = fields.child("identical")
    sweep = Sweep(
        model=parse_model(fields.child("model")),
        data=parse_data(fields.child("data")),
        threat=parse_threat(fields.child("threat")),
        alphas=fields.numbers("alphas"),
        clean=fields.share("clean"),
        rows=tuple(parse_row(row) for row in fields.children("rows")),
        identical={name: identical.flag(name) for name in identical.values},
        cosine_mismatch=fields.optional("cosine_mismatch", fields.fraction),
    )
    check_sweep(fields, sweep)
    return sweep


def check_sweep(fields: Fields, sweep: Sweep) -> None:
    """Refuse a sweep with gaps, or whose digests contradict its claim of identical examples."""
    if not sweep.alphas or min(sweep.alphas) <= 0:
        fields.refuse("alphas", "a list of at least one scale, all above 0", list(sweep.alphas))
    seen: dict[str, dict[float, str]] = {}
    for row in sweep.rows:
        seen.setdefault(row.attack, {})[row.alpha] = row.digest
    if not seen:
        fields.refuse("rows", "a list of at least one row", [])
    for attack, digests in seen.items():
        if set(digests) != set(sweep.alphas):
            fields.refuse("rows", f"one row of {attack} at every scale in alphas", sorted(digests))
        same = len(set(digests.values())) == 1
        if sweep.identical.get(attack, same) != same:
            fields.refuse(f"identical.{attack}", f"{same}, as the digests say", sweep.identical[attack])
