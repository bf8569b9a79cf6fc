"""The records of a parsed GGUF header, with typed access to its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Never

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.errors import NotGguf


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor is in the file and how it is stored.

    shape: in file order, shape[0] is the length of a contiguous row.  type_name: "Q4_K", or "type 99" when unknown.
    offset: of its first byte in the file.  size_bytes: 0 when the type is unknown or the rows are no whole blocks.
    """

    name: str
    shape: tuple[int, ...]
    type_name: str
    type_id: int
    offset: int
    size_bytes: int

    @property
    def rows(self) -> int:
        """How many rows of shape[0] elements."""
        rows = 1
        for length in self.shape[1:]:
            rows *= length
        return rows


class _Missing(Enum):
    """The default of a getter that has none."""

    NO_DEFAULT = 0


_NO_DEFAULT: Final = _Missing.NO_DEFAULT


@dataclass(frozen=True, slots=True)
class Header:
    """A file's metadata and tensors.

    metadata values: int, float, bool, str; an array of numbers is a numpy array, one of strings or arrays a tuple.
    data_offset: where tensor data begins.  file_bytes: size of the whole file.
    The getters return a value of one type, or the default when the key is missing; they raise NotGguf naming the key when it
    is missing and has no default, or has another type.
    """

    version: int
    alignment: int
    metadata: Mapping[str, object]
    tensors: Mapping[str, TensorInfo]
    data_offset: int
    file_bytes: int

    def text(self, key: str, default: str | _Missing = _NO_DEFAULT) -> str:
        """A string."""
        value = self._get(key, "a string", default)
        return value if isinstance(value, str) else _wrong(key, "a string", value)

    def integer(self, key: str, default: int | _Missing = _NO_DEFAULT) -> int:
        """An integer; a bool is none."""
        value = self._get(key, "an integer", default)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        return _wrong(key, "an integer", value)

    def number(self, key: str, default: float | _Missing = _NO_DEFAULT) -> float:
        """An integer or a float, as a float."""
        value = self._get(key, "a number", default)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        return _wrong(key, "a number", value)

    def flag(self, key: str, default: bool | _Missing = _NO_DEFAULT) -> bool:
        """True or false."""
        value = self._get(key, "true or false", default)
        return value if isinstance(value, bool) else _wrong(key, "true or false", value)

    def texts(self, key: str, default: Sequence[str] | _Missing = _NO_DEFAULT) -> tuple[str, ...]:
        """An array of strings; an empty array of any type is one."""
        if key not in self.metadata and not isinstance(default, _Missing):
            return tuple(default)
        value = self._get(key, "an array of strings")
        if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
            return value
        if isinstance(value, np.ndarray) and len(value) == 0:
            return ()
        return _wrong(key, "an array of strings", value)

    def integers(self, key: str, default: Sequence[int] | _Missing = _NO_DEFAULT) -> NDArray[np.int64]:
        """An array of integers."""
        if key not in self.metadata and not isinstance(default, _Missing):
            return np.array(default, np.int64)
        value = self._get(key, "an array of integers")
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and int(value.max(initial=0)) < 1 << 63:
            return value.astype(np.int64)
        return _wrong(key, "an array of integers", value)

    def numbers(self, key: str, default: Sequence[float] | _Missing = _NO_DEFAULT) -> NDArray[np.float64]:
        """An array of integers or floats, as float64."""
        if key not in self.metadata and not isinstance(default, _Missing):
            return np.array(default, np.float64)
        value = self._get(key, "an array of numbers")
        if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
            return value.astype(np.float64)
        return _wrong(key, "an array of numbers", value)

    def _get(self, key: str, expected: str, default: object = _NO_DEFAULT) -> object:
        value = self.metadata.get(key, default)
        if value is _NO_DEFAULT:
            raise NotGguf(f"metadata key {key!r} is missing: expected {expected}; convert the model again")
        return value


def _wrong(key: str, expected: str, value: object) -> Never:
    raise NotGguf(f"metadata key {key!r}: expected {expected}, found {_described(value)}; convert the model again")


def _described(value: object) -> str:
    """A value in few words: an array by its length and type, a scalar by its type and value."""
    if isinstance(value, np.ndarray):
        return f"an array of {len(value)} {value.dtype.name}"
    if isinstance(value, tuple):
        return f"an array of {len(value)} {'strings' if value and isinstance(value[0], str) else 'arrays'}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
