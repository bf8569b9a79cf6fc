"""Which tiles an attention needs: a choice by CPU variant, codec, precision and head shape; and their addresses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from pagemill.decoder.kernels.compile import compile_kernel
from pagemill.decoder.kernels.drivers.fields import AttendTiles
from pagemill.decoder.kernels.drivers.segments import BLOCK_ROWS, STATS
from pagemill.decoder.kernels.isa import Isa
from pagemill.decoder.kernels.memory import Array, aligned
from pagemill.decoder.kernels.tiles.attention import VALUE_BYTES, Stored, Tile, emit_scores, emit_values
from pagemill.decoder.kernels.tiles.bytes import KEY_SCALE_BYTES, emit_byte_pack, emit_byte_scores
from pagemill.decoder.kernels.tiles.coded import (
    FACTOR_BYTES,
    QUERY_BYTES,
    emit_coded_factors,
    emit_coded_pack,
    emit_coded_scores,
    emit_coded_values,
)
from pagemill.decoder.kernels.tiles.expand import emit_expand_keys, emit_expand_values
from pagemill.decoder.kernels.tiles.rope import emit_rotate
from pagemill.decoder.kernels.tiles.softmax import FlashPrecision, emit_clear, emit_finish, emit_pack, emit_softmax
from pagemill.decoder.network.kv_codec import BLOCK_POSITIONS, SCALE_VALUES, VALUES_BYTES, Codec

UNIT_BLOCKS = 4
# Blocks of 24 packed rows per unit: more where the unit's first act on a block of keys is to convert it.
UNIT_BLOCKS_EXPANDED = 8


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Which tiles an attention needs: a choice by CPU variant, codec, precision and head shape."""

    isa: Isa
    codec: Codec
    precision: FlashPrecision
    group: int
    head_dim: int
    scores: Tile
    values: Tile
    decode_scores: Tile
    decode_values: Tile

    @classmethod
    def of(cls, isa: Isa, codec: Codec, precision: FlashPrecision, group: int, head_dim: int) -> AttentionShape:
        """Accumulators fill the registers: 32 of 512 bits, or 16 of 256 (of which a vector of 16 lanes takes two)."""
        wide = isa.tile_counts[-1] >= 16
        cached: Stored = "f32" if codec.for_patches else codec.name  # type: ignore[assignment]
        stored: Stored = "bf16" if precision == "bf16" else "f32" if codec.scale_bytes else cached
        vectors, rows = (2, 12) if wide else (1, 4)
        sharing = max(n for n in range(1, 13 if wide else 7) if group % n == 0)
        chains = max(n for n in (1, 2, 4) if n * sharing <= (16 if wide else 6) or n == 1)
        dims, sums = head_dim // 16, (24 if wide else 6) // sharing
        most = 2 if codec.scale_bytes else max(n for n in range(1, dims + 1) if dims % n == 0 and (n <= sums or n == 1))
        return cls(
            isa, codec, precision, group, head_dim,
            Tile("int8" if codec.byte_keys else stored, vectors, rows),
            Tile(stored, vectors if dims % vectors == 0 else 1, rows),
            Tile(cached, 1, sharing, chains), Tile(cached, most, sharing),
        )  # fmt: skip

    @property
    def expanded_bytes(self) -> int:
        """Bytes of a block of keys, or of values, converted for the flash tiles; 0 where they read the cache."""
        return 0 if self.codec.byte_keys or self.codec.name == self.scores.stored else self.flash_block_bytes

    @property
    def flash_block_bytes(self) -> int:
        """Bytes of a block of keys as the flash tiles read it."""
        scale = KEY_SCALE_BYTES if self.codec.byte_keys else 0
        return BLOCK_POSITIONS * (self.head_dim * VALUE_BYTES[self.scores.stored] + scale)

    @property
    def flash_query_bytes(self) -> int:
        """Bytes of a packed query, per run of dimensions."""
        return 64 if self.codec.byte_keys else 64 // self.scores.pair

    @property
    def decode_strides(self) -> tuple[int, int]:
        """Bytes from one step of values to the next, and from 16 dimensions to the next, as decode rows read them."""
        if self.codec.scale_bytes:
            return SCALE_VALUES * 4, VALUES_BYTES // 2
        return self.head_dim // 16 * self.decode_values.step_bytes, self.decode_values.step_bytes

    @property
    def query_bytes(self) -> int:
        """Bytes of a packed query of a decode row, per run of dimensions."""
        return QUERY_BYTES if self.codec.scale_bytes else 64

    @property
    def unit_blocks(self) -> int:
        """Blocks of packed rows per unit."""
        return UNIT_BLOCKS_EXPANDED if self.expanded_bytes else UNIT_BLOCKS

    @property
    def rotations(self) -> int:
        """Hadamard blocks of a head's output."""
        size = self.codec.value_rotation(self.head_dim)
        return self.head_dim // size if size else 0

    @property
    def scratch_bytes(self) -> int:
        """Per worker: queries, outputs and softmax statistics of a unit, scores of a block, converted keys and values."""
        row_bytes = 2 * self.head_dim * 4 + STATS
        flash = BLOCK_ROWS * (self.unit_blocks * row_bytes + BLOCK_POSITIONS * 4) + 2 * self.expanded_bytes
        decode = self.group * (row_bytes + BLOCK_POSITIONS * 4) + 64
        factors = FACTOR_BYTES * self.decode_values.rows + BLOCK_POSITIONS * 4
        return max(flash, decode + factors)

    def table(self) -> Array:
        """Addresses of the compiled tiles, as ``drivers.fields.AttendTiles``."""
        isa, codec, rotation = self.isa, self.codec, self.codec.value_rotation(self.head_dim)
        expands, coded = bool(self.expanded_bytes), bool(codec.scale_bytes)
        tiles = AttendTiles(
            pack=_byte_pack_tile(isa) if codec.byte_keys else _pack_tile(self.precision, isa),
            scores=_scores_tile(self.scores, isa),
            softmax=_softmax_tile(self.precision, False, isa),
            masked_softmax=_softmax_tile(self.precision, True, isa),
            values=_values_tile(self.values, isa),
            finish=_finish_tile(isa),
            clear=_clear_tile(isa),
            rotate=rotate_tile(rotation, isa) if rotation else 0,
            decode_pack=_coded_pack_tile(isa) if coded else _pack_tile("f32", isa),
            decode_scores=_scores_tile(self.decode_scores, isa),
            decode_softmax=_softmax_tile("f32", False, isa),
            decode_masked=_softmax_tile("f32", True, isa),
            decode_values=_values_tile(self.decode_values, isa),
            decode_factors=_factors_tile(self.decode_values.rows, isa) if coded else 0,
            expand_keys=_expand_tile("keys", codec.name, self.precision, isa) if expands else 0,
            expand_values=_expand_tile("values", codec.name, self.precision, isa) if expands else 0,
        )
        table = aligned(len(tiles), np.int64)
        table[:] = tiles
        return table


@cache
def _scores_tile(tile: Tile, isa: Isa) -> int:
    emit = {"q8_0": emit_coded_scores, "int8": emit_byte_scores}.get(tile.stored, emit_scores)
    return compile_kernel(f"attention_scores_{tile.name}", 7, lambda e, *args: emit(tile, e, *args), isa)


@cache
def _values_tile(tile: Tile, isa: Isa) -> int:
    emit = emit_coded_values if tile.stored == "q8_0" else emit_values
    return compile_kernel(f"attention_values_{tile.name}", 8, lambda e, *args: emit(tile, e, *args), isa)


@cache
def _softmax_tile(precision: FlashPrecision, masked: bool, isa: Isa) -> int:
    name = f"softmax_{precision}_{'masked' if masked else 'full'}"
    return compile_kernel(name, 8, lambda e, *args: emit_softmax(precision, masked, e, *args), isa)


@cache
def _pack_tile(precision: FlashPrecision, isa: Isa) -> int:
    return compile_kernel(f"pack_queries_{precision}", 4, lambda e, *args: emit_pack(precision, e, *args), isa)


@cache
def _expand_tile(what: Literal["keys", "values"], codec: str, precision: FlashPrecision, isa: Isa) -> int:
    emit = emit_expand_keys if what == "keys" else emit_expand_values
    return compile_kernel(f"expand_{what}_{codec}_{precision}", 4, lambda e, *args: emit(codec, precision, e, *args), isa)


@cache
def _factors_tile(rows: int, isa: Isa) -> int:
    return compile_kernel(f"coded_factors_{rows}", 4, lambda e, *args: emit_coded_factors(rows, e, *args), isa)


@cache
def _coded_pack_tile(isa: Isa) -> int:
    return compile_kernel("coded_pack", 4, emit_coded_pack, isa)


@cache
def _byte_pack_tile(isa: Isa) -> int:
    return compile_kernel("byte_pack", 4, emit_byte_pack, isa)


@cache
def _finish_tile(isa: Isa) -> int:
    return compile_kernel("finish_rows", 4, emit_finish, isa)


@cache
def _clear_tile(isa: Isa) -> int:
    return compile_kernel("clear_rows", 4, emit_clear, isa)


@cache
def rotate_tile(size: int, isa: Isa) -> int:
    """Address of the rotation by a Hadamard matrix of ``size``."""
    return compile_kernel(f"rotate_{size}", 2, lambda e, *args: emit_rotate(size, e, *args), isa)
