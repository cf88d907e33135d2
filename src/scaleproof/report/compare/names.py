"""The names of the runs of a comparison: those that set them apart, and those that tables have room for."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import takewhile
from pathlib import Path

LONGEST = 24  # letters of a name that stays as it is in tables
DIGEST = re.compile(r"-[0-9a-f]{8}$")
BETWEEN = re.compile(r"-(?!\d{1,3}(?:-|$))")  # words: a number belongs to the one before it, as in seed-0


def labels(paths: Sequence[Path], names: Sequence[str]) -> list[str]:
    """Name runs by their own names where these differ, else by what differs in their paths."""
    for found in (list(names), differing([path.resolve().parts for path in paths])):
        if apart(found):
            return found
    return [str(path) for path in paths]


def apart(names: Sequence[str]) -> bool:
    """Tell whether no name is empty and none is there twice."""
    return all(names) and max(Counter(names).values()) == 1


def differing(parts: Sequence[tuple[str, ...]]) -> list[str]:
    """Paths without the folders that they all begin with, and without those that they all end with."""
    begin, end = alike(parts), alike([one[::-1] for one in parts])
    return ["/".join(one[begin : len(one) - end] or one[-1:]) for one in parts]


def alike(parts: Sequence[tuple[str, ...]]) -> int:
    """How many first parts all have in common."""
    return sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False)))


def shortened(names: Sequence[str]) -> list[str]:
    """Drop from long names the words that they all have, and the digest where the rest tells them apart."""
    long = [name for name in names if len(name) > LONGEST]
    shared = set.intersection(*(set(BETWEEN.split(name)) for name in long)) if long else set()
    for common in (shared, set()):
        for digest in (False, True):
            found = [without(name, common, digest=digest) if name in long else name for name in names]
            if apart(found):
                return found
    return list(names)


def without(name: str, common: Collection[str], *, digest: bool) -> str:
    """Return a name without some of its words, with its digest or without."""
    kept = name if digest else DIGEST.sub("", name)
    return "-".join(word for word in BETWEEN.split(kept) if word not in common)
