"""Reads a model's facts from metadata and collects what is wrong with them, instead of stopping at the first."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pagemill.decoder.errors import NotGguf
from pagemill.decoder.gguf.header import Header

_MOST = 1 << 31  # above any real count; keeps products of facts small
_CHANNEL = 1e6  # far beyond any mean or deviation of pixels


class Facts:
    """The metadata under one prefix ("<architecture>.").

    A getter whose key is missing or senseless notes the reason, and the key in ``bad``, and returns a harmless placeholder,
    so that the reading goes on; nothing that was read may be used for more than finding further reasons once there is one.
    ``refuse_unread`` notes the keys that nobody asked for: an ignored fact would give wrong results without a word.
    """

    def __init__(self, header: Header, prefix: str) -> None:
        self.header = header
        self.prefix = prefix
        self.reasons: list[str] = []
        self.bad: set[str] = set()
        self._read: set[str] = set()

    def count(self, key: str, default: int | None = None, *, least: int = 1, most: int = _MOST) -> int:
        """An integer from least to most."""
        name = self._name(key)
        try:
            value = self.header.integer(name) if default is None else self.header.integer(name, default)
        except NotGguf as error:
            return self._bad(key, str(error))
        if least <= value <= most:
            return value
        return self._bad(key, f"metadata key {name!r}: expected {least} to {most}, found {value}")

    def number(self, key: str, default: float | None = None, *, above: float = 0.0, below: float = math.inf) -> float:
        """A finite number between two bounds, neither included."""
        name = self._name(key)
        try:
            value = self.header.number(name) if default is None else self.header.number(name, default)
        except NotGguf as error:
            return self._bad(key, str(error))
        if above < value < below:
            return value
        bounds = f"above {above:g}" + ("" if math.isinf(below) else f" and below {below:g}")
        return self._bad(key, f"metadata key {name!r}: expected a number {bounds}, found {value}")

    def channels(self, key: str, *, positive: bool = False) -> tuple[float, float, float]:
        """Three finite numbers, one a colour channel."""
        name = self._name(key)
        try:
            values = [float(value) for value in self.header.numbers(name)]
        except NotGguf as error:
            self._bad(key, str(error))
            return (1.0, 1.0, 1.0)
        if len(values) == 3 and all(abs(value) < _CHANNEL and (value > 0 or not positive) for value in values):
            return (values[0], values[1], values[2])
        kind = "positive " if positive else ""
        self._bad(key, f"metadata key {name!r}: expected three {kind}numbers, found {len(values)}: {values[:3]}")
        return (1.0, 1.0, 1.0)

    def text(self, key: str, default: str) -> str:
        """A string."""
        try:
            return self.header.text(self._name(key), default)
        except NotGguf as error:
            self._bad(key, str(error))
            return default

    def flag(self, key: str, default: bool) -> bool:
        """A truth value."""
        try:
            return self.header.flag(self._name(key), default)
        except NotGguf as error:
            self._bad(key, str(error))
            return default

    def expect(self, key: str, *neutral: object) -> None:
        """Refuses a value that is none of these; a missing key is fine, and so is an array of them."""
        name = self._name(key)
        if name not in self.header.metadata:
            return
        value = self.header.metadata[name]
        values = value.tolist() if isinstance(value, np.ndarray) else [value]
        if not all(one in neutral for one in values):
            shown = values if isinstance(value, np.ndarray) else value
            expected = neutral[0] if neutral else "none"
            self._bad(key, f"metadata key {name!r}: {shown} is not supported, expected {expected}")

    def refuse_unread(self, neutral: Mapping[str, tuple[object, ...]], harmless: frozenset[str]) -> None:
        """Refuses keys under the prefix that nothing has read.

        neutral: keys that only matter with other values than these.  harmless: keys that never change a result.
        """
        for key, values in neutral.items():
            if key not in self._read:
                self.expect(key, *values)
        start = len(self.prefix) + 1
        under = [name[start:] for name in self.header.metadata if name.startswith(f"{self.prefix}.")]
        for key in under:
            if key not in self._read and key not in harmless:
                value = str(self.header.metadata[f"{self.prefix}.{key}"])
                self.refuse(f"metadata key '{self.prefix}.{key}' = {value[:40]} is not known: it might change the results")

    def refuse(self, reason: str) -> None:
        """Notes a reason."""
        self.reasons.append(reason)

    def require(self, holds: bool, reason: str) -> None:
        """Notes a reason unless it holds; not after another: what follows from a bad fact says nothing."""
        if not holds and not self.reasons:
            self.refuse(reason)

    def _name(self, key: str) -> str:
        self._read.add(key)
        return f"{self.prefix}.{key}"

    def _bad(self, key: str, reason: str) -> int:
        self.bad.add(key)
        self.reasons.append(reason)
        return 1
