"""Read fields of a JSON object, or say which field of which file breaks which rule."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from scaleproof.report.records import Share

TOLERANCE = 1e-6
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of one JSON object, with the file and the place it was found at."""

    file: str
    place: str
    values: Mapping[str, object]

    def refuse(self, key: str, rule: str, seen: object) -> NoReturn:
        """Raise the error that names the file, the field, the rule and the value seen."""
        raise ValueError(
            f"{self.file}: field {self.place}{key} must be {rule}, but is {seen!r}; "
            "write the run again with the version of scaleproof that reads it, or restore the file"
        )

    def get(self, key: str) -> object:
        """Return the field as it is, or refuse when it is absent."""
        if key not in self.values:
            raise ValueError(
                f"{self.file}: field {self.place}{key} is required, but the file has only "
                f"{sorted(self.values)}; write the run again with the version of scaleproof that reads it"
            )
        return self.values[key]

    def optional(self, key: str, read: Callable[[str], Value]) -> Value | None:
        """Return a field as `read` does, or None where it is null or absent."""
        return None if self.values.get(key) is None else read(key)

    def text(self, key: str) -> str:
        """Return a field that must be a string."""
        value = self.get(key)
        return value if isinstance(value, str) else self.refuse(key, "a string", value)

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        """Return a string field that must be one of those allowed."""
        value = self.text(key)
        return value if value in allowed else self.refuse(key, f"one of {list(allowed)}", value)

    def whole(self, key: str) -> int:
        """Return a field that must be a whole number, zero or more."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.refuse(key, "a whole number, zero or more", value)
        return value

    def number(self, key: str, *, finite: bool = True) -> float:
        """Return a field that must be a number, finite unless told otherwise."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(key, "a number", value)
        if finite and not math.isfinite(value):
            self.refuse(key, "a finite number", value)
        return float(value)

    def fraction(self, key: str) -> float:
        """Return a field that must be a number from 0 to 1."""
        value = self.number(key)
        return value if 0.0 <= value <= 1.0 else self.refuse(key, "a fraction from 0 to 1", value)

    def flag(self, key: str) -> bool:
        """Return a field that must be true or false."""
        value = self.get(key)
        return value if isinstance(value, bool) else self.refuse(key, "true or false", value)

    def items(self, key: str) -> list[object]:
        """Return a field that must be a list."""
        value = self.get(key)
        return value if isinstance(value, list) else self.refuse(key, "a list", value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a field that must be a list of strings."""
        values = self.items(key)
        texts = tuple(value for value in values if isinstance(value, str))
        return texts if len(texts) == len(values) else self.refuse(key, "a list of strings", values)

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a field that must be a list of finite numbers."""
        inner = Fields(
            file=self.file,
            place=f"{self.place}{key}.",
            values={str(i): value for i, value in enumerate(self.items(key))},
        )
        return tuple(inner.number(position) for position in inner.values)

    def mapping(self, key: str) -> dict[str, object]:
        """Return a field that must be an object."""
        value = self.get(key)
        return value if isinstance(value, dict) else self.refuse(key, "an object", value)

    def child(self, key: str) -> "Fields":
        """Return the fields of an object inside this one."""
        return Fields(file=self.file, place=f"{self.place}{key}.", values=self.mapping(key))

    def children(self, key: str) -> tuple["Fields", ...]:
        """Return the fields of every object in a list inside this one."""
        found = []
        for position, value in enumerate(self.items(key)):
            if not isinstance(value, dict):
                self.refuse(f"{key}[{position}]", "an object", value)
            found.append(Fields(file=self.file, place=f"{self.place}{key}[{position}].", values=value))
        return tuple(found)

    def share(self, key: str) -> Share:
        """Return a share whose numbers agree with one another."""
        fields = self.child(key)
        correct, count = fields.whole("correct"), fields.whole("count")
        if not 0 <= correct <= count or count == 0:
            fields.refuse("correct", f"at most count = {count}, and count at least 1", correct)
        accuracy = fields.fraction("accuracy")
        if abs(accuracy - correct / count) > TOLERANCE:
            fields.refuse("accuracy", f"correct / count = {correct / count:.6f}", accuracy)
        ends = fields.numbers("interval")
        if len(ends) != 2 or not -TOLERANCE <= ends[0] <= ends[1] <= 1 + TOLERANCE:
            fields.refuse("interval", "two rising fractions from 0 to 1", list(ends))
        return Share(correct=correct, count=count, accuracy=accuracy, interval=(ends[0], ends[1]))
