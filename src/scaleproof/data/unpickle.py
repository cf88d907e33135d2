"""Read python batches of numbers without ever letting a pickle run code or touch numpy's internals."""

import io
import pickle
from typing import Any

import numpy as np

_INTEGERS = frozenset(sign + size for sign in "iu" for size in "1248")
_BROKEN = (
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ArithmeticError,
    MemoryError,
    UnicodeError,
    NotImplementedError,
)


def read_numbers(data: bytes, label: str) -> dict[str, Any]:
    """Unpickle a dictionary of plain values and integer arrays; its keys become text."""
    try:
        content = NumbersUnpickler(io.BytesIO(data), encoding="bytes").load()
        if not isinstance(content, dict):
            raise ValueError(f"a batch must be a dictionary; this is a {type(content).__name__}.")
        return {_text(key): _finished(value) for key, value in content.items()}
    except _BROKEN as error:
        raise ValueError(f"{label} is not a readable python batch ({error}). Get the file again.") from error
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from error


class NumbersUnpickler(pickle.Unpickler):
    """An unpickler that knows integer numpy arrays and refuses every other global."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Answer the few admitted names with stand-ins that check what they are given."""
        admitted = _ADMITTED.get((module_name, global_name))
        if admitted is None:
            raise ValueError(
                f"the pickle asks for the forbidden global {module_name}.{global_name}; only integer numpy "
                "arrays are read. Do not trust this file: get it again from its home page."
            )
        return admitted


class _Integers:
    """Stand in for an integer numpy.dtype: its code, and the byte order its state names."""

    def __init__(self, code: object, *_flags: object) -> None:
        self.code = _text(code)
        self.order = "|"
        if self.code not in _INTEGERS:
            raise ValueError(f"the pickle holds an array of kind {self.code}; only integers are read.")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = _text(state[1])
        if self.order not in ("|", "<", ">"):
            raise ValueError(f"the byte order of an array must be one of | < >; this is {self.order}.")


class _Array:
    """Stand in for a numpy array: it keeps the pickled state and builds the array at the end."""

    def __init__(self) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def finished(self) -> np.ndarray[Any, Any]:
        """Build the array from its shape, kind, order of axes and bytes."""
        if len(self.state) != 5 or not isinstance(self.state[2], _Integers):
            raise ValueError("the pickle holds an array whose state is not the one that numpy writes.")
        _version, shape, kind, fortran, raw = self.state
        flat = np.frombuffer(raw, np.dtype(kind.order + kind.code))
        return flat.reshape(shape, order="F" if fortran else "C")


def _finished(value: Any) -> Any:
    """Turn a stand-in for an array into the array, and leave any other value."""
    return value.finished() if isinstance(value, _Array) else value


def _text(value: object) -> str:
    """Turn a name that python 2 or 3 wrote into text."""
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _new_array(*_arguments: object) -> _Array:
    """Stand in for numpy's _reconstruct, whose arguments are the same for every array."""
    return _Array()


def _latin1(text: object, encoding: object) -> bytes:
    """Stand in for _codecs.encode, with which python 3 writes bytes into old protocols."""
    if not isinstance(text, str) or _text(encoding) != "latin1":
        raise ValueError(f"the pickle encodes text as {encoding!r}; only latin1 is read.")
    return text.encode("latin1")


_ADMITTED: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _new_array,
    ("numpy._core.multiarray", "_reconstruct"): _new_array,
    ("numpy", "ndarray"): "numpy.ndarray",
    ("numpy", "dtype"): _Integers,
    ("_codecs", "encode"): _latin1,
}
