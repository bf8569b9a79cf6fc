"""ROPE_STORE and ATTEND as a program's recorder sees them: shapes checked, tiles compiled, the op added.

Twins in plain numpy: ``reference_attention``.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

import numpy as np

from pagemill.decoder.kernels.compile import compile_kernel
from pagemill.decoder.kernels.drivers.codes import ATTEND, ROPE_STORE
from pagemill.decoder.kernels.isa import Isa
from pagemill.decoder.kernels.memory import Array, address
from pagemill.decoder.kernels.ops.attention_shape import AttentionShape, rotate_tile
from pagemill.decoder.kernels.program import Program
from pagemill.decoder.kernels.tiles import rope as tiles_rope
from pagemill.decoder.kernels.tiles.softmax import Precision
from pagemill.decoder.network.kv_codec import BLOCK_POSITIONS, Codec

LOG2_E = math.log2(math.e)
SEGMENT_INTS = 8


def rope_store(
    program: Program, qkv: Array, *, heads: int, kv_heads: int, head_dim: int, q_column: int, k_column: int, v_column: int,
    rope_dims: int, pairing: Literal["adjacent", "halves"], cos: Array | None, sin: Array | None, q_norm: Array | None,
    k_norm: Array | None, eps: float, row_position: Array, row_base: Array, layer_offset: int, codec: Codec, capacity: int,
) -> None:  # fmt: skip
    """Record: norm, rope and rotate q and k of each row in place in qkv, then store k and v in the row's slot at its position.

    qkv: (rows, columns) float32.  cos, sin: (rows, rope_dims / 2) float32, None for no rope.  q_norm, k_norm: (head_dim,)
    weights of a root-mean-square norm per head, or None.  row_position: (rows,) int32 or int64.  row_base: (rows,) int64, the
    address of the row's slot.  layer_offset: bytes from there to the layer.  capacity: positions of a slot.
    """
    _check_heads(qkv, head_dim, {q_column: heads, k_column: kv_heads, v_column: kv_heads}, codec, capacity)
    _check_rope(rope_dims if cos is not None else 0, head_dim, cos, sin, len(qkv))
    assert {row_base.dtype, row_position.dtype} <= {np.dtype(np.int64), np.dtype(np.int32)}, "tables of rows are integers"
    isa, pairs = program.isa, rope_dims // 2 if cos is not None else 0
    lanes = math.gcd(pairs, 16)
    key_rotation, value_rotation = codec.key_rotation(head_dim), codec.value_rotation(head_dim)
    tables = [array for array in (cos, sin, q_norm, k_norm) if array is not None]
    ints = [
        address(qkv), qkv.strides[0], heads, kv_heads, head_dim * 4, q_column * 4, k_column * 4, v_column * 4,
        pairs // lanes if pairs else 0, pairs * 4, _address(cos), _address(sin), cos.strides[0] if cos is not None else 0,
        _address(q_norm), _address(k_norm), address(row_position), row_position.itemsize, address(row_base), layer_offset,
        codec.head_bytes(head_dim, capacity) // 2, codec.block_bytes(head_dim),
        _norm_tile(isa), _rope_tile(pairing, lanes, isa) if pairs else 0, _store_tile("keys", codec.name, isa),
        _store_tile("values", codec.name, isa),
        *_rotation(key_rotation, head_dim, isa), *_rotation(value_rotation, head_dim, isa),
    ]  # fmt: skip
    program.add(ROPE_STORE, ints, (eps,), (qkv, row_position, row_base, *tables))


def attend(
    program: Program, qkv: Array, out: Array, *, heads: int, kv_heads: int, head_dim: int, q_column: int, scale: float,
    window: int = 0, soft_cap: float = 0.0, segments: Array, layer_offset: int, codec: Codec, capacity: int,
    precision: Precision = "f32",
) -> None:  # fmt: skip
    """Record: out[row, head * head_dim + d] = attention of the row's queries over the cached keys of its segment.

    segments: (n, 8) int64: first row, rows, first position, base address, kind (``drivers.segments``), keys in all (read where
    bidirectional), 0, 0.  window: keys a causal row sees, itself included; 0 is all.  precision: of the products of prompts and
    patches; decode rows are always float32.  A row's result depends on nothing but its query and its keys.
    """
    if soft_cap:
        raise ValueError(
            f"attention scores with a soft cap are not supported, found soft_cap {soft_cap}: use a model without one"
        )
    if precision == "bf16" and not program.isa.bf16:
        raise ValueError(f"CPU variant {program.isa.name} has no bf16 dot product: use precision f32")
    if codec.for_patches and precision != "bf16":
        raise ValueError(f"a {codec.name} cache needs precision bf16: use an f32 cache for precision f32")
    _check_heads(qkv, head_dim, {q_column: heads}, codec, capacity)
    _check_heads(out, head_dim, {0: heads}, codec, capacity)
    assert heads % kv_heads == 0, f"{heads} heads do not share {kv_heads} kv heads evenly"
    assert segments.dtype == np.int64, "segments are int64"
    assert segments.shape[1:] == (SEGMENT_INTS,), f"a segment is {SEGMENT_INTS} integers, found shape {segments.shape}"
    assert segments.flags.c_contiguous, "segments are contiguous"
    shape = AttentionShape.of(program.isa, codec, precision, heads // kv_heads, head_dim)
    tiles = shape.table()
    chunks = head_dim // 16
    ints = [
        address(qkv), qkv.strides[0], address(out), out.strides[0], kv_heads, shape.group, chunks, q_column * 4,
        window, address(segments), layer_offset, codec.head_bytes(head_dim, capacity) // 2, codec.block_bytes(head_dim),
        shape.unit_blocks, address(tiles), shape.expanded_bytes,
        shape.flash_block_bytes, chunks * shape.values.step_bytes, shape.values.pair,
        shape.scores.rows, 16 * shape.scores.vectors, shape.values.vectors,
        shape.decode_scores.rows, shape.decode_values.vectors, *shape.decode_strides,
        shape.query_bytes, shape.rotations, shape.flash_query_bytes,
    ]  # fmt: skip
    program.add(ATTEND, ints, (scale * LOG2_E,), (qkv, out, segments, tiles), shape.scratch_bytes)


def _check_heads(rows: Array, head_dim: int, columns: dict[int, int], codec: Codec, capacity: int) -> None:
    """ValueError for heads that the codec cannot store; the rest are our own invariants."""
    reason = codec.refusal(head_dim)
    if reason is not None:
        raise ValueError(reason)
    assert capacity % BLOCK_POSITIONS == 0, (
        f"a slot's capacity is whole blocks of {BLOCK_POSITIONS} positions, found {capacity}"
    )
    assert rows.dtype == np.float32, f"rows are float32, found {rows.dtype}"
    assert rows.strides[1] == 4, "rows are in C order"
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
            assert table.dtype == np.float32, "rope tables are float32"
            assert table.shape[0] >= rows, f"rope tables have a row per row, found {table.shape[0]} for {rows}"
            assert table.shape[1] >= dims // 2, f"rope tables have {dims // 2} columns, found {table.shape[1]}"
            assert cos is not None, "cos and sin come together"
            assert table.strides == cos.strides, "cos and sin have one layout"


def _address(array: Array | None) -> int:
    return 0 if array is None else address(array)


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


def _rotation(size: int, head_dim: int, isa: Isa) -> tuple[int, int]:
    """The tile and how many blocks of a head it rotates; zeros where there is nothing to rotate."""
    return (rotate_tile(size, isa), head_dim // size) if size else (0, 0)
