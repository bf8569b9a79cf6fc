"""Unquantized formats: F32, F16, BF16."""

from __future__ import annotations

import numpy as np

from pagemill.decoder.formats.base import Bytes, Floats, Format, halves_are_finite


class F32(Format):
    """IEEE float32."""

    name, type_id, block, block_bytes = "F32", 0, 1, 4

    def dequantize(self, raw: Bytes) -> Floats:
        """A copy of the rows: (rows, n) float32."""
        return np.ascontiguousarray(raw).view("<f4").astype(np.float32)

    def is_finite(self, raw: Bytes) -> bool:
        """Whether every weight is a number."""
        return bool(np.isfinite(np.ascontiguousarray(raw).view("<f4")).all())


class F16(Format):
    """IEEE float16; every value is a float32."""

    name, type_id, block, block_bytes = "F16", 1, 1, 2

    def dequantize(self, raw: Bytes) -> Floats:
        """Widened rows: (rows, n) float32."""
        return np.ascontiguousarray(raw).view("<f2").astype(np.float32)

    def is_finite(self, raw: Bytes) -> bool:
        """Whether every weight is a number."""
        return halves_are_finite(raw)


class BF16(Format):
    """The upper half of a float32."""

    name, type_id, block, block_bytes = "BF16", 30, 1, 2

    def dequantize(self, raw: Bytes) -> Floats:
        """Widened rows: (rows, n) float32."""
        high = np.ascontiguousarray(raw).view("<u2").astype(np.uint32)
        return (high << np.uint32(16)).view(np.float32)

    def is_finite(self, raw: Bytes) -> bool:
        """Whether every weight is a number."""
        exponents = np.ascontiguousarray(raw).view("<u2") & np.uint16(0x7F80)
        return not bool((exponents == 0x7F80).any())
