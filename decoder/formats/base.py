"""What every weight format can do, and the integer view that all quantized formats share.

``panels`` packs from the integer view, ``dequantize`` is computed from it, so a format is defined once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class BlockCodes:
    """Rows of weights as unsigned integer codes and their scales.

    With ``b`` an element's block (``block`` elements share one d) and ``s`` its sub-block (``sub_block`` elements share
    one sub-scale), its weight is::

        w = d[b] * sub_scales[b, s] * (code - offset)  + m[b]  - dmin[b] * sub_mins[b, s]

    where a missing (None) sub_scales counts as 1 and a missing m, or dmin and sub_mins, as 0; with a codebook, codebook[code]
    stands for (code - offset).  Three shapes occur:

    legacy (Q4_0 .. Q8_0, IQ4_NL): block = sub_block = 32, sub_scales None; m only in Q4_1 and Q5_1 (their offset is 0).
    Q8_256: block = sub_block = 256, otherwise like Q8_0.
    K-quants: block = 256; sub_block 32 (Q4_K, Q5_K: sub_scales and sub_mins of 6 bits) or 16 (Q6_K: signed, no mins).

    codes: (rows, n) uint8, below 2 ** code_bits.  d, m, dmin: (rows, n / block) float32, widened exactly from float16.
    sub_scales: (rows, n / block, block / sub_block) uint8, int8 in Q6_K.  sub_mins: the same shape, uint8.
    """

    codes: Bytes
    code_bits: int
    offset: int
    block: int
    sub_block: int
    d: Floats
    m: Floats | None = None
    sub_scales: NDArray[np.uint8] | NDArray[np.int8] | None = None
    dmin: Floats | None = None
    sub_mins: Bytes | None = None
    codebook: tuple[int, ...] = ()

    def values(self) -> Floats:
        """Returns the weights: (rows, n) float32.

        Equal to the bit to the reference dequantizers in any order of the products: d has 11 significant bits, sub-scale and
        code at most 7 and 6, so every product is exact in float32 and only the last addition rounds.
        """
        rows, width = self.codes.shape
        signed = np.array(self.codebook, np.float32)[self.codes] if self.codebook else self.codes.astype(np.float32)
        signed = signed.reshape(rows, width // self.block, self.block // self.sub_block, self.sub_block)
        if not self.codebook:
            signed -= np.float32(self.offset)
        with np.errstate(invalid="ignore"):  # an infinite d, as in the reference: 0 * inf is NaN, not an error
            scale = self.d[:, :, None]
            if self.sub_scales is not None:
                scale = scale * self.sub_scales.astype(np.float32)
            signed *= scale[..., None]
            if self.m is not None:
                signed += self.m[:, :, None, None]
            if self.dmin is not None and self.sub_mins is not None:
                signed -= (self.dmin[:, :, None] * self.sub_mins.astype(np.float32))[..., None]
        return signed.reshape(rows, width)


class Format(ABC):
    """One weight format: ``block`` elements of a row are stored in ``block_bytes`` bytes."""

    name: ClassVar[str]
    type_id: ClassVar[int]  # the number in a GGUF file
    block: ClassVar[int]
    block_bytes: ClassVar[int]

    @abstractmethod
    def dequantize(self, raw: Bytes) -> Floats:
        """Returns (rows, n) float32 from raw: (rows, row_bytes(n)) uint8; equal to ggml's to_float to the bit."""

    @abstractmethod
    def is_finite(self, raw: Bytes) -> bool:
        """Whether every weight of raw: (rows, row_bytes(n)) uint8 is a number: neither NaN nor infinite."""

    def row_bytes(self, width: int) -> int:
        """Bytes of one row of ``width`` elements; width is a multiple of ``block``."""
        return width // self.block * self.block_bytes


class QuantFormat(Format):
    """A format of integer codes with block scales.

    codebook: the signed bytes that its codes stand for, where they are not evenly spaced; products then take these bytes, so
    offset is that of 8-bit codes, 128.
    """

    code_bits: ClassVar[int]
    offset: ClassVar[int]
    sub_block: ClassVar[int]
    codebook: ClassVar[tuple[int, ...]] = ()
    halves: ClassVar[tuple[int, ...]] = (0,)  # bytes of a block at which its float16 scales and minima stand

    def is_finite(self, raw: Bytes) -> bool:
        """Whether all scales and minima are: codes always are."""
        blocks = raw.reshape(-1, self.block_bytes)
        return all(halves_are_finite(blocks[:, at : at + 2]) for at in self.halves)

    @abstractmethod
    def codes(self, raw: Bytes) -> BlockCodes:
        """Returns the integer view of raw: (rows, row_bytes(n)) uint8.  The result owns its arrays."""

    def dequantize(self, raw: Bytes) -> Floats:
        """Returns (rows, n) float32 from raw: (rows, row_bytes(n)) uint8; equal to ggml's to_float to the bit."""
        return self.codes(raw).values()

    def blocks(self, raw: Bytes) -> Bytes:
        """raw, one block a line: (rows, blocks, block_bytes) uint8."""
        return np.ascontiguousarray(raw).reshape(raw.shape[0], raw.shape[1] // self.block_bytes, self.block_bytes)


def halves_are_finite(pairs: Bytes) -> bool:
    """pairs: little-endian float16, two bytes along the last dimension."""
    exponents = np.ascontiguousarray(pairs).view("<u2") & np.uint16(0x7C00)
    return not bool((exponents == 0x7C00).any())  # all ones: infinity or NaN


def half(blocks: Bytes, at: int) -> Floats:
    """The little-endian float16 at byte ``at`` of each block: (rows, blocks) float32."""
    pair = np.ascontiguousarray(blocks[:, :, at : at + 2])
    return pair.view("<f2").astype(np.float32)[:, :, 0]
