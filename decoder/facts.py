"""Reads an architecture's numbers from a header and collects what is wrong with them, instead of stopping at the first."""

from __future__ import annotations

import math

from pagemill.decoder.errors import NotGguf
from pagemill.decoder.gguf.parse import Header

_MOST = 1 << 31  # above any real count; keeps products of facts small


class Facts:
    """The metadata under one prefix ("<architecture>.").

    A getter whose key is missing or senseless notes the reason, and the key in ``bad``, and returns a harmless placeholder,
    so that the reading goes on; nothing that was read may be used for more than finding further reasons once there is one.
    """

    def __init__(self, header: Header, prefix: str) -> None:
        self.header = header
        self.prefix = prefix
        self.reasons: list[str] = []
        self.bad: set[str] = set()

    def count(self, key: str, default: int | None = None, *, least: int = 1, most: int = _MOST) -> int:
        """An integer from least to most."""
        name = f"{self.prefix}.{key}"
        try:
            value = self.header.integer(name) if default is None else self.header.integer(name, default)
        except NotGguf as error:
            return self._bad(key, str(error))
        if least <= value <= most:
            return value
        return self._bad(key, f"metadata key {name!r}: expected {least} to {most}, found {value}")

    def number(self, key: str, default: float | None = None, *, least: float = 0.0) -> float:
        """A finite number above ``least``."""
        name = f"{self.prefix}.{key}"
        try:
            value = self.header.number(name) if default is None else self.header.number(name, default)
        except NotGguf as error:
            return self._bad(key, str(error))
        if math.isfinite(value) and value > least:
            return value
        return self._bad(key, f"metadata key {name!r}: expected a number above {least:g}, found {value}")

    def text(self, key: str, default: str) -> str:
        """A string."""
        try:
            return self.header.text(f"{self.prefix}.{key}", default)
        except NotGguf as error:
            self._bad(key, str(error))
            return default

    def expect(self, key: str, default: float | bool) -> None:
        """Refuses any other value than the default, which is what a missing key means."""
        value = self.header.metadata.get(f"{self.prefix}.{key}", default)
        if not isinstance(value, int | float) or value != default:
            self._bad(key, f"metadata key '{self.prefix}.{key}': {value} is not supported, expected {default}")

    def refuse(self, reason: str) -> None:
        """Notes a reason."""
        self.reasons.append(reason)

    def _bad(self, key: str, reason: str) -> int:
        self.bad.add(key)
        self.reasons.append(reason)
        return 1
