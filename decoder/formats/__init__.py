"""Weight formats: one class each.  FORMATS are those of GGUF files; a new format is one class and one row."""

from __future__ import annotations

from pagemill.decoder.formats.base import BlockCodes, Format, QuantFormat
from pagemill.decoder.formats.blocks import IQ4_NL, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_256
from pagemill.decoder.formats.floats import BF16, F16, F32
from pagemill.decoder.formats.kquants import Q4_K, Q5_K, Q6_K

__all__ = ["FORMATS", "PACKED", "BlockCodes", "Format", "QuantFormat"]

FORMATS: dict[str, Format] = {
    each.name: each for each in (F32(), F16(), BF16(), Q8_0(), Q4_0(), Q4_1(), Q5_0(), Q5_1(), Q4_K(), Q5_K(), Q6_K(), IQ4_NL())
}

# What products take: the files' formats, and one that weights are rounded to at load.
PACKED: dict[str, Format] = {**FORMATS, Q8_256.name: Q8_256()}
