"""ROPE_STORE and ATTEND as a program's recorder sees them: shapes checked, tiles compiled, the op added.

Twins in plain numpy: ``reference_attention``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd, log2
from typing import Literal

import numpy as np

from decoder.kernels import tiles_rope
from decoder.kernels.compile import compile_kernel
from decoder.kernels.drivers import segments as slots
from decoder.kernels.drivers.codes import ATTEND, ROPE_STORE
from decoder.kernels.isa import Isa
from decoder.kernels.memory import Array, address, aligned
from decoder.kernels.program import Program
from decoder.kernels.tiles_attention import SCALED_COPY_BYTES, VALUE_BYTES, Stored, Tile, emit_scores, emit_values
from decoder.kernels.tiles_coded import emit_coded_scores, emit_scale
from decoder.kernels.tiles_expand import emit_expand_keys, emit_expand_values
from decoder.kernels.tiles_softmax import Precision, emit_clear, emit_finish, emit_pack, emit_softmax
from decoder.kv_codec import BLOCK_POSITIONS, SCALE_VALUES, Codec

LOG2_E = log2(np.e)
SEGMENT_INTS = 8
UNIT_BLOCKS = 4
UNIT_BLOCKS_EXPANDED = 8
"""Blocks of 24 packed rows per unit: more where the unit's first act on a block of keys is to convert it."""


def rope_store(
    program: Program, qkv: Array, *, heads: int, kv_heads: int, head_dim: int, q_column: int, k_column: int, v_column: int,
    rope_dims: int, pairing: Literal["adjacent", "halves"], cos: Array | None, sin: Array | None, q_norm: Array | None,
    k_norm: Array | None, eps: float, row_position: Array, row_base: Array, layer_offset: int, codec: Codec, capacity: int,
) -> None:  # fmt: skip
    """Record: norm, rope and rotate q and k of each row in place in qkv, then store k and v in the row's slot at its position.

    qkv: (rows, columns) float32.  cos, sin: (rows, rope_dims / 2) float32, None for no rope.  q_norm, k_norm: (head_dim,) weights of a
    root-mean-square norm per head, or None.  row_position: (rows,) int32 or int64.  row_base: (rows,) int64, address of the row's slot.
    layer_offset: bytes from there to the layer.  capacity: positions of a slot.
    """
    _check_heads(qkv, head_dim, {q_column: heads, k_column: kv_heads, v_column: kv_heads}, codec, capacity)
    _check_rope(rope_dims if cos is not None else 0, head_dim, cos, sin, len(qkv))
    assert row_base.dtype == np.int64 and row_position.dtype in (np.int32, np.int64), "tables of rows are integers"
    isa, pairs = program.isa, rope_dims // 2 if cos is not None else 0
    lanes = gcd(pairs, 16)
    key_rotation, value_rotation = codec.key_rotation(head_dim), codec.value_rotation(head_dim)
    tables = [array for array in (cos, sin, q_norm, k_norm) if array is not None]
    ints = [
        address(qkv), qkv.strides[0], heads, kv_heads, head_dim * 4, q_column * 4, k_column * 4, v_column * 4,
        pairs // lanes if pairs else 0, pairs * 4, _address(cos), _address(sin), cos.strides[0] if cos is not None else 0,
        _address(q_norm), _address(k_norm), address(row_position), row_position.itemsize, address(row_base), layer_offset,
        codec.head_bytes(head_dim, capacity) // 2, codec.block_bytes(head_dim),
        _norm_tile(isa), _rope_tile(pairing, lanes, isa) if pairs else 0, _store_tile("keys", codec.name, isa),
        _store_tile("values", codec.name, isa), *_rotation(key_rotation, head_dim, isa), *_rotation(value_rotation, head_dim, isa),
    ]  # fmt: skip
    program.add(ROPE_STORE, ints, (eps,), (qkv, row_position, row_base, *tables))


def attend(
    program: Program, qkv: Array, out: Array, *, heads: int, kv_heads: int, head_dim: int, q_column: int, scale: float, window: int = 0,
    soft_cap: float = 0.0, segments: Array, layer_offset: int, codec: Codec, capacity: int, precision: Precision = "f32",
) -> None:  # fmt: skip
    """Record: out[row, head * head_dim + d] = attention of the row's queries over the cached keys of its segment.

    segments: (n, 8) int64: first row, rows, first position, base address, kind (``drivers.segments``), keys in total (bidirectional), 0, 0.
    window: keys a causal row sees, itself included; 0 is all.  precision: of the products of prompts and patches; decode rows are
    always float32.  A row's result depends on nothing but its query and its keys.
    """
    if soft_cap:
        raise ValueError(
            f"attention scores with a soft cap are not supported, found soft_cap {soft_cap}: use a model without one"
        )
    if precision == "bf16" and not program.isa.bf16:
        raise ValueError(f"CPU variant {program.isa.name} has no bf16 dot product: use precision f32")
    if codec.name == "bf16" and precision != "bf16":
        raise ValueError("a bf16 cache needs precision bf16: use an f32 cache for precision f32")
    _check_heads(qkv, head_dim, {q_column: heads}, codec, capacity)
    _check_heads(out, head_dim, {0: heads}, codec, capacity)
    assert heads % kv_heads == 0, f"{heads} heads do not share {kv_heads} kv heads evenly"
    assert segments.dtype == np.int64 and segments.shape[1:] == (SEGMENT_INTS,) and segments.flags.c_contiguous, (
        "segments are (n, 8) int64"
    )
    shape = _Shape.of(program.isa, codec, precision, heads // kv_heads, head_dim)
    tiles = shape.tiles()
    chunks = head_dim // 16
    ints = [
        address(qkv), qkv.strides[0], address(out), out.strides[0], kv_heads, shape.group, chunks, q_column * 4,
        window, address(segments), layer_offset, codec.head_bytes(head_dim, capacity) // 2, codec.block_bytes(head_dim),
        shape.unit_blocks, address(tiles), shape.expanded_bytes,
        BLOCK_POSITIONS * head_dim * VALUE_BYTES[shape.scores.stored], chunks * shape.scores.step_bytes, shape.scores.pair,
        shape.scores.rows, 16 * shape.scores.vectors, shape.values.vectors,
        shape.decode_scores.rows, shape.decode_values.vectors, chunks * shape.decode_values.step_bytes, shape.copy_bytes,
        shape.rotations,
    ]  # fmt: skip
    program.add(ATTEND, ints, (scale * LOG2_E,), (qkv, out, segments, tiles), shape.scratch_bytes)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Which tiles an attention needs: a choice by CPU variant, codec, precision and head shape."""

    isa: Isa
    codec: Codec
    precision: Precision
    group: int
    head_dim: int
    scores: Tile
    values: Tile
    decode_scores: Tile
    decode_values: Tile

    @classmethod
    def of(cls, isa: Isa, codec: Codec, precision: Precision, group: int, head_dim: int) -> _Shape:
        """Accumulators fill the registers: 32 of 512 bits, or 16 of 256 (of which a vector of 16 lanes takes two)."""
        wide = isa.tile_counts[-1] >= 16
        cached: Stored = "f32" if codec.name == "bf16" else codec.name  # rows of a bf16 cache are never decoded
        stored: Stored = "bf16" if precision == "bf16" else "f32" if codec.name == "q8_0" else cached
        vectors, rows = (2, 12) if wide else (1, 4)
        dims = head_dim // 16
        sharing = max(n for n in range(1, 13 if wide else 7) if group % n == 0)
        chains = max(n for n in (1, 2, 4) if n * sharing <= (16 if wide else 6) or n == 1)
        least = 2 if codec.name == "q8_0" else 1  # a scale's dimensions stay together
        most = max(
            n for n in range(least, dims + 1, least) if dims % n == 0 and (n * sharing <= (24 if wide else 6) or n == least)
        )
        return cls(
            isa, codec, precision, group, head_dim,
            Tile(stored, vectors, rows), Tile(stored, vectors if dims % vectors == 0 else 1, rows),
            Tile(cached, 1, sharing, chains), Tile(cached, most, sharing),
        )  # fmt: skip

    @property
    def expanded_bytes(self) -> int:
        """Bytes of a block of keys, or of values, converted for the flash tiles; 0 where they read the cache."""
        return 0 if self.codec.name == self.scores.stored else BLOCK_POSITIONS * self.head_dim * VALUE_BYTES[self.scores.stored]

    @property
    def copy_bytes(self) -> int:
        """Bytes of a copy of a block's probabilities, where each scale of the values has one."""
        return SCALED_COPY_BYTES * self.decode_values.rows if self.codec.scale_bytes else 0

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
        """Per worker: queries, outputs and records of a unit, scores of a block, converted keys and values."""
        row_bytes = 2 * self.head_dim * 4 + slots.STATS
        flash = slots.BLOCK_ROWS * (self.unit_blocks * row_bytes + BLOCK_POSITIONS * 4) + 2 * self.expanded_bytes
        copies = self.copy_bytes * (self.head_dim // SCALE_VALUES)
        return max(flash, self.group * (row_bytes + BLOCK_POSITIONS * 4) + 64 + copies)

    def tiles(self) -> Array:
        """Addresses of the compiled tiles, by slot."""
        isa, table = self.isa, aligned(slots.TILE_SLOTS, np.int64)
        table.fill(0)
        found = {
            slots.PACK: _pack_tile(self.precision, isa),
            slots.SCORES: _scores_tile(self.scores, isa),
            slots.SOFTMAX: _softmax_tile(self.precision, False, isa),
            slots.MASKED_SOFTMAX: _softmax_tile(self.precision, True, isa),
            slots.VALUES: _values_tile(self.values, isa),
            slots.FINISH: _finish_tile(isa),
            slots.CLEAR: _clear_tile(isa),
            slots.DECODE_PACK: _pack_tile("f32", isa),
            slots.DECODE_SCORES: _scores_tile(self.decode_scores, isa),
            slots.DECODE_SOFTMAX: _softmax_tile("f32", False, isa),
            slots.DECODE_MASKED: _softmax_tile("f32", True, isa),
            slots.DECODE_VALUES: _values_tile(self.decode_values, isa),
        }
        if self.expanded_bytes:
            found[slots.EXPAND_KEYS] = _expand_tile("keys", self.codec.name, self.precision, isa)
            found[slots.EXPAND_VALUES] = _expand_tile("values", self.codec.name, self.precision, isa)
        if self.codec.scale_bytes:
            found[slots.DECODE_SCALE] = _scale_tile(self.decode_values.rows, isa)
        if self.rotations:
            found[slots.ROTATE] = _rotate_tile(self.codec.value_rotation(self.head_dim), isa)
        for slot, tile in found.items():
            table[slot // 8] = tile
        return table


def _check_heads(rows: Array, head_dim: int, columns: dict[int, int], codec: Codec, capacity: int) -> None:
    """ValueError for heads that the codec cannot store; the rest are our own invariants."""
    reason = codec.refusal(head_dim)
    if reason is not None:
        raise ValueError(reason)
    assert capacity % BLOCK_POSITIONS == 0, (
        f"a slot's capacity is whole blocks of {BLOCK_POSITIONS} positions, found {capacity}"
    )
    assert rows.dtype == np.float32 and rows.ndim == 2 and rows.strides[1] == 4, "rows are C-ordered float32"
    for column, count in columns.items():
        assert column + count * head_dim <= rows.shape[1], (
            f"{count} heads of {head_dim} at column {column} leave the row of {rows.shape[1]}"
        )


def _check_rope(dims: int, head_dim: int, cos: Array | None, sin: Array | None, rows: int) -> None:
    if dims % 2 or dims > head_dim:
        raise ValueError(f"rope needs an even number of dimensions up to head_dim {head_dim}, found {dims}")
    for table in (cos, sin):
        assert (table is None) == (cos is None), "cos and sin come together"
        if table is not None:
            assert table.dtype == np.float32 and table.shape[0] >= rows and table.shape[1] >= dims // 2, (
                "rope tables are (rows, dims / 2)"
            )
            assert cos is not None and table.strides == cos.strides, "cos and sin have one layout"


def _address(array: Array | None) -> int:
    return 0 if array is None else address(array)


@cache
def _scores_tile(tile: Tile, isa: Isa) -> int:
    emit = emit_coded_scores if tile.stored == "q8_0" else emit_scores
    return compile_kernel(f"attention_scores_{tile.name}", 7, lambda e, *args: emit(tile, e, *args), isa)


@cache
def _values_tile(tile: Tile, isa: Isa) -> int:
    return compile_kernel(f"attention_values_{tile.name}", 8, lambda e, *args: emit_values(tile, e, *args), isa)


@cache
def _softmax_tile(precision: Precision, masked: bool, isa: Isa) -> int:
    name = f"softmax_{precision}_{'masked' if masked else 'full'}"
    return compile_kernel(name, 7, lambda e, *args: emit_softmax(precision, masked, e, *args), isa)


@cache
def _pack_tile(precision: Precision, isa: Isa) -> int:
    return compile_kernel(f"pack_queries_{precision}", 4, lambda e, *args: emit_pack(precision, e, *args), isa)


@cache
def _expand_tile(what: Literal["keys", "values"], codec: str, precision: Precision, isa: Isa) -> int:
    emit = emit_expand_keys if what == "keys" else emit_expand_values
    return compile_kernel(f"expand_{what}_{codec}_{precision}", 4, lambda e, *args: emit(codec, precision, e, *args), isa)


@cache
def _scale_tile(rows: int, isa: Isa) -> int:
    return compile_kernel(f"scale_{rows}", 5, lambda e, *args: emit_scale(rows, e, *args), isa)


@cache
def _finish_tile(isa: Isa) -> int:
    return compile_kernel("finish_rows", 4, emit_finish, isa)


@cache
def _clear_tile(isa: Isa) -> int:
    return compile_kernel("clear_rows", 4, emit_clear, isa)


@cache
def _norm_tile(isa: Isa) -> int:
    return compile_kernel("head_norm", 4, tiles_rope.emit_head_norm, isa)


@cache
def _rope_tile(pairing: Literal["adjacent", "halves"], lanes: int, isa: Isa) -> int:
    return compile_kernel(f"rope_{pairing}_{lanes}", 5, lambda e, *args: tiles_rope.emit_rope(pairing, lanes, e, *args), isa)


@cache
def _store_tile(what: Literal["keys", "values"], codec: str, isa: Isa) -> int:
    stores = tiles_rope.STORE_KEYS if what == "keys" else tiles_rope.STORE_VALUES
    return compile_kernel(f"store_{what}_{codec}", 4, stores[codec], isa)


@cache
def _rotate_tile(size: int, isa: Isa) -> int:
    return compile_kernel(f"rotate_{size}", 2, lambda e, *args: tiles_rope.emit_rotate(size, e, *args), isa)


def _rotation(size: int, head_dim: int, isa: Isa) -> tuple[int, int]:
    """The tile and how many blocks of a head it rotates; zeros where there is nothing to rotate."""
    return (_rotate_tile(size, isa), head_dim // size) if size else (0, 0)
