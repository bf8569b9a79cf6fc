"""The formats of one scale a block: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL of 32 (ggml-common.h, block_q*), and Q8_256."""

from __future__ import annotations

import numpy as np

from pagemill.decoder.formats.base import BlockCodes, Bytes, QuantFormat, half


class Q8_0(QuantFormat):  # noqa: N801 - the format's own name
    """d float16, 32 signed bytes; stored here with the sign bit flipped, so that codes are unsigned like all others."""

    name, type_id, block, block_bytes = "Q8_0", 8, 32, 34
    code_bits, offset, sub_block = 8, 128, 32

    def codes(self, raw: Bytes) -> BlockCodes:
        """Integer view: w = d * (code - 128)."""
        blocks = self.blocks(raw)
        codes = blocks[:, :, 2:] ^ np.uint8(0x80)
        return BlockCodes(codes.reshape(len(raw), blocks.shape[1] * 32), 8, 128, 32, 32, half(blocks, 0))


class Q8_256(QuantFormat):  # noqa: N801
    """d float16, 256 signed bytes: a format of no file, whose products are a fifth faster than Q8_0's."""

    name, type_id, block, block_bytes = "Q8_256", -1, 256, 258
    code_bits, offset, sub_block = 8, 128, 256

    def codes(self, raw: Bytes) -> BlockCodes:
        """Integer view: w = d * (code - 128)."""
        blocks = self.blocks(raw)
        codes = blocks[:, :, 2:] ^ np.uint8(0x80)
        return BlockCodes(codes.reshape(len(raw), blocks.shape[1] * 256), 8, 128, 256, 256, half(blocks, 0))


class _Low(QuantFormat):
    """Q4_*, Q5_* and IQ4_NL: d, perhaps m, perhaps 32 fifth bits, then 16 bytes: element j in low, j + 16 in high nibbles."""

    block, sub_block = 32, 32
    has_m: bool

    def __init_subclass__(cls) -> None:
        cls.halves = (0, 2) if cls.has_m else (0,)

    def codes(self, raw: Bytes) -> BlockCodes:
        """Integer view: w = d * (code - offset), plus m where the format has one."""
        blocks = self.blocks(raw)
        nibbles = blocks[:, :, -16:]
        codes = np.concatenate([nibbles & np.uint8(0x0F), nibbles >> np.uint8(4)], axis=2)
        if self.code_bits == 5:
            at = 4 if self.has_m else 2
            fifth = np.unpackbits(blocks[:, :, at : at + 4], axis=2, bitorder="little")  # bit j belongs to element j
            codes |= fifth << np.uint8(4)
        m = half(blocks, 2) if self.has_m else None
        codes = codes.reshape(len(raw), blocks.shape[1] * 32)
        return BlockCodes(codes, self.code_bits, self.offset, 32, 32, half(blocks, 0), m, codebook=self.codebook)


class Q4_0(_Low):  # noqa: N801
    """4-bit codes around 8."""

    name, type_id, block_bytes = "Q4_0", 2, 18
    code_bits, offset, has_m = 4, 8, False


class IQ4_NL(_Low):  # noqa: N801
    """4-bit codes of a codebook: denser around zero, as weights are (ggml-common.h, kvalues_iq4nl)."""

    name, type_id, block_bytes = "IQ4_NL", 20, 18
    code_bits, offset, has_m = 4, 128, False
    codebook = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


class Q4_1(_Low):  # noqa: N801
    """4-bit codes above a minimum."""

    name, type_id, block_bytes = "Q4_1", 3, 20
    code_bits, offset, has_m = 4, 0, True


class Q5_0(_Low):  # noqa: N801
    """5-bit codes around 16."""

    name, type_id, block_bytes = "Q5_0", 6, 22
    code_bits, offset, has_m = 5, 16, False


class Q5_1(_Low):  # noqa: N801
    """5-bit codes above a minimum."""

    name, type_id, block_bytes = "Q5_1", 7, 24
    code_bits, offset, has_m = 5, 0, True
