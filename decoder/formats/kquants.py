"""The formats of a super-block of 256 with integer sub-scales: Q4_K, Q5_K, Q6_K (ggml-common.h, block_q*_K)."""

from __future__ import annotations

import numpy as np

from pagemill.decoder.formats.base import BlockCodes, Bytes, QuantFormat, half

_LOW4 = np.uint8(0x0F)
_LOW6 = np.uint8(0x3F)
_4 = np.uint8(4)


class _ScaleMin(QuantFormat):
    """Q4_K and Q5_K: d, dmin, eight 6-bit scales and minima in 12 bytes, perhaps 32 bytes of fifth bits, 128 of nibbles."""

    block, sub_block, offset = 256, 32, 0
    halves = (0, 2)

    def codes(self, raw: Bytes) -> BlockCodes:
        """Integer view: w = d * sub_scale * code - dmin * sub_min."""
        blocks = self.blocks(raw)
        rows, count, _ = blocks.shape
        nibbles = blocks[:, :, -128:].reshape(rows, count, 4, 1, 32)
        # 32 bytes hold 64 elements: the first 32 in their low nibbles, the next 32 in their high ones.
        codes = np.concatenate([nibbles & _LOW4, nibbles >> _4], axis=3).reshape(rows, count, 8, 32)
        if self.code_bits == 5:
            # Bit s of byte j belongs to element j of sub-block s.
            bits = np.unpackbits(blocks[:, :, 16:48, None], axis=3, bitorder="little")  # (rows, blocks, 32, 8)
            codes |= bits.transpose(0, 1, 3, 2) << _4
        scales, mins = _scales_and_mins(blocks[:, :, 4:16])
        return BlockCodes(
            codes=codes.reshape(rows, count * 256),
            code_bits=self.code_bits,
            offset=0,
            block=256,
            sub_block=32,
            d=half(blocks, 0),
            sub_scales=scales,
            dmin=half(blocks, 2),
            sub_mins=mins,
        )


class Q4_K(_ScaleMin):  # noqa: N801
    """4-bit codes, eight sub-blocks of 32."""

    name, type_id, block_bytes, code_bits = "Q4_K", 12, 144, 4


class Q5_K(_ScaleMin):  # noqa: N801
    """5-bit codes, eight sub-blocks of 32."""

    name, type_id, block_bytes, code_bits = "Q5_K", 13, 176, 5


class Q6_K(QuantFormat):  # noqa: N801
    """6-bit codes around 32, sixteen sub-blocks of 16 with signed scales: ql[128], qh[64], scales[16], d."""

    name, type_id, block, block_bytes = "Q6_K", 14, 256, 210
    code_bits, offset, sub_block = 6, 32, 16
    halves = (208,)

    def codes(self, raw: Bytes) -> BlockCodes:
        """Integer view: w = d * sub_scale * (code - 32)."""
        blocks = self.blocks(raw)
        rows, count, _ = blocks.shape
        # Each half of 128: 64 bytes of nibbles (all low ones first, then all high ones) and 32 bytes of four bit pairs.
        low = blocks[:, :, :128].reshape(rows, count, 2, 1, 64)
        codes = np.concatenate([low & _LOW4, low >> _4], axis=3).reshape(rows, count, 2, 4, 32)
        pairs = blocks[:, :, 128:192].reshape(rows, count, 2, 1, 32)
        shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
        codes |= ((pairs >> shifts) & np.uint8(3)) << _4
        return BlockCodes(
            codes=codes.reshape(rows, count * 256),
            code_bits=6,
            offset=32,
            block=256,
            sub_block=16,
            d=half(blocks, 208),
            sub_scales=blocks[:, :, 192:208].copy().view(np.int8),
        )


def _scales_and_mins(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Unpacks packed: (rows, blocks, 12) into scales and minima, (rows, blocks, 8) each; ggml's get_scale_min_k4."""
    first, second, third = packed[:, :, 0:4], packed[:, :, 4:8], packed[:, :, 8:12]
    top = np.uint8(6)
    scales = np.concatenate([first & _LOW6, (third & _LOW4) | ((first >> top) << _4)], axis=2)
    mins = np.concatenate([second & _LOW6, (third >> _4) | ((second >> top) << _4)], axis=2)
    return scales, mins
