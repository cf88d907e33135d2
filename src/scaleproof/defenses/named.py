"""Defenses of one's own: found by module:NAME, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Collection

from scaleproof.callables import is_foreign, name_of, sources
from scaleproof.defenses.base import Defense
from scaleproof.models.specs import called, factory_in, imported, importing_from_here

RULE = (
    "a method of your own must be module:NAME, where NAME is a Defense, a Defense class that needs no arguments or a "
    "function without arguments that returns one"
)


def named_defense(spec: str, taken: Collection[str] = ()) -> Defense:
    """The defense that module:NAME gives, looked for in the current folder as well; `taken` are names of others."""
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise ValueError(f"{RULE}, got {spec!r}")
    with importing_from_here():
        module = imported(spec, module_name, RULE)
        found = vars(module).get(name)
        made = found if isinstance(found, Defense) else called(spec, factory_in(spec, module, name))
    if not isinstance(made, Defense):
        raise ValueError(f"{RULE}, got {type(made).__name__} from {spec!r}")
    check_names(spec, made, taken)
    return made


def check_names(spec: str, defense: Defense, taken: Collection[str]) -> None:
    """A name for records and a label for tables, which are nobody else's."""
    kind = type(defense).__name__
    for part in ("name", "label"):
        if not isinstance(getattr(defense, part, None), str) or not getattr(defense, part):
            raise ValueError(
                f"a defense must have a name for records and a label for tables, {kind} of {spec!r} has no {part}: "
                f'write {part} = "..." into the class'
            )
    if is_foreign(defense) and defense.name in taken:
        raise ValueError(
            f"a defense of your own must not be called as one of ours, {kind} of {spec!r} has the name "
            f"{defense.name!r}: write a name and a label of its own into the class"
        )


def defense_settings(defense: Defense) -> dict[str, object]:
    """What a defense says of itself, and the sources of what is not of this package: its words may outlast a change."""
    kind = {"class": name_of(defense)} if is_foreign(defense) else {}
    return {**defense.describe(), **kind, **sources(defense)}
