"""The memory layout of each weight format for the tiles: sizes and offsets in a row group.  ``weights.panels`` draws it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pagemill.decoder.formats import PACKED, Format, QuantFormat
from pagemill.decoder.kernels.isa import LANES

CODES_PER_VECTOR = 4 * LANES  # 16 rows x 4 k: what one dot product instruction reads


@dataclass(frozen=True, slots=True)
class CodeLayout:
    """Tiles of 16 rows of a quantized format.

    bits, offset, sub_block: of the format's codes.  block: k per activation scale.  subs: runs of 32 k in one tile.
    has_minima: weights have an additive minimum (exactly the formats whose codes have no offset).
    codebook: the signed bytes that codes stand for, empty where they stand for themselves.
    """

    name: str
    bits: int
    offset: int
    sub_block: int
    block: int
    subs: int
    has_minima: bool
    codebook: tuple[int, ...] = ()
    group_rows: int = LANES

    @property
    def dot_bits(self) -> int:
        """Bits of what enters the dot products: those of codes, or of the codebook's bytes."""
        return 8 if self.codebook else self.bits

    @property
    def is_super(self) -> bool:
        """Whether blocks of 256 carry integer sub-scales (the K-quants)."""
        return self.sub_block < self.block

    @property
    def tile_width(self) -> int:
        """k of one tile."""
        return 32 * self.subs

    @property
    def sub_bytes(self) -> int:
        """Codes of 16 rows x 32 k."""
        return CODES_PER_VECTOR * self.bits

    @property
    def scales_at(self) -> int:
        """Offset of the integer sub-scales (K-quants)."""
        return self.subs * self.sub_bytes

    @property
    def minima_at(self) -> int:
        """Offset of the integer sub-minima (K-quants)."""
        return self.scales_at + (LANES * self.tile_width // self.sub_block if self.is_super else 0)

    @property
    def d_at(self) -> int:
        """Offset of d: float16 of 16 rows, one a block."""
        return self.minima_at + (LANES * self.subs if self.is_super and self.has_minima else 0)

    @property
    def m_at(self) -> int:
        """Offset of dmin (K-quants) or m: like d."""
        return self.d_at + 2 * LANES * self.tile_width // self.block

    @property
    def tile_bytes(self) -> int:
        """Bytes of one tile, whole cache lines."""
        end = self.m_at + (self.m_at - self.d_at if self.has_minima else 0)
        return -(-end // 64) * 64

    def group_bytes(self, width: int) -> int:
        """Bytes of one row group."""
        return -(-width // self.tile_width) * self.tile_bytes


@dataclass(frozen=True, slots=True)
class FloatLayout:
    """Groups of 32 rows of an unquantized format; ``pairs``: two k of a row lie together (bf16)."""

    name: str
    item_bytes: int
    pairs: bool
    block: int = 32
    group_rows: int = 2 * LANES

    def group_bytes(self, width: int) -> int:
        """Bytes of one row group."""
        return -(-width // self.block) * self.block * self.group_rows * self.item_bytes


Layout = CodeLayout | FloatLayout


def _layout(weights: Format) -> Layout:
    if isinstance(weights, QuantFormat):
        subs = 8 if weights.block == 256 else 2
        return CodeLayout(
            weights.name,
            weights.code_bits,
            weights.offset,
            weights.sub_block,
            weights.block,
            subs,
            has_minima=weights.offset == 0,
            codebook=weights.codebook,
        )
    return FloatLayout(weights.name, weights.block_bytes, weights.name == "BF16")


LAYOUTS: Mapping[str, Layout] = {name: _layout(weights) for name, weights in PACKED.items()}
