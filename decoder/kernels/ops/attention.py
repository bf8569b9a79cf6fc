"""ROPE_STORE and ATTEND as a program's recorder sees them: shapes checked, tiles compiled, the op added.

Twin in plain numpy: ``tests.decoder.reference_attention``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.kernels.compile import compile_kernel
from pagemill.decoder.kernels.drivers.codes import ATTEND, ROPE_STORE
from pagemill.decoder.kernels.drivers.fields import AttendOp, RopeStoreOp, SegmentFields
from pagemill.decoder.kernels.drivers.segments import BIDIRECTIONAL
from pagemill.decoder.kernels.isa import Isa
from pagemill.decoder.kernels.memory import Array, address, aligned
from pagemill.decoder.kernels.ops.attention_shape import AttentionShape, rotate_tile
from pagemill.decoder.kernels.program import Program
from pagemill.decoder.kernels.tiles import rope as tiles_rope
from pagemill.decoder.kernels.tiles.softmax import FlashPrecision
from pagemill.decoder.network.kv_codec import BLOCK_POSITIONS, Codec
from pagemill.decoder.spec import AttentionSpec

LOG2_E = math.log2(math.e)
SEGMENT_INTS = 8


@dataclass(frozen=True, slots=True, eq=False)
class HeadNorms:
    """Root-mean-square norms of each head's query and key before rope: (head_dim,) float32; None where there is none."""

    q: Array | None = None
    k: Array | None = None
    eps: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class StepTables:
    """The step's tables for attention, at fixed addresses.

    position, base: (rows,) int64, of each row, and the address of its sequence's cache slot.  segments: (n, 8) int64, see
    ``drivers.fields.SegmentFields``.  cos, sin: (rows, rope dims / 2) float32, or None.
    """

    position: NDArray[np.int64]
    base: NDArray[np.int64]
    segments: NDArray[np.int64]
    cos: Array | None
    sin: Array | None

    @classmethod
    def new(cls, rows: int, segments: int, rope_dims: int) -> StepTables:
        """Tables for up to that many rows and segments; no rope where rope_dims is 0."""
        cos, sin = (aligned((rows, rope_dims // 2), np.float32) if rope_dims else None for _ in range(2))
        table = np.zeros((segments, SEGMENT_INTS), np.int64)
        return cls(np.zeros(rows, np.int64), np.zeros(rows, np.int64), table, cos, sin)

    def set_segment(self, number: int, rows: range, start: int, base: int, kind: int) -> None:
        """Rows of the step are one sequence's, from position ``start`` on.  kind: see ``drivers.segments``."""
        end = start + len(rows)
        self.position[rows.start : rows.stop] = np.arange(start, end)
        self.base[rows.start : rows.stop] = base
        fields = SegmentFields(rows.start, len(rows), start, base, kind, end)
        self.segments[number, : len(fields)] = fields

    def set_page(self, rows: int, base: int) -> None:
        """All rows of the step are one page's patches, which see each other."""
        self.set_segment(0, range(rows), 0, base, BIDIRECTIONAL)

    def set_angles(self, cos: Array, sin: Array) -> None:
        """The cosines and sines of the step's rows: (rows, rope dims / 2) float32 each."""
        assert self.cos is not None, "these tables have no angles"
        assert self.sin is not None, "these tables have no angles"
        self.cos[: len(cos)], self.sin[: len(sin)] = cos, sin


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """One layer of a KV cache.  offset: bytes from a sequence's base.  capacity: positions of a sequence, whole blocks."""

    codec: Codec
    offset: int
    capacity: int


@dataclass(frozen=True, slots=True, eq=False)
class Heads:
    """Rows of queries, keys and values, and what attention does with them.

    rows: (rows, columns) float32.  columns: where q, k and v start.  layer: of the cache.
    """

    rows: Array
    columns: tuple[int, ...]
    facts: AttentionSpec
    layer: CacheLayer

    @property
    def region_bytes(self) -> int:
        """Bytes of the keys, or the values, of one head in the cache."""
        return self.layer.codec.head_bytes(self.facts.head_dim, self.layer.capacity) // 2


def rope_store(program: Program, heads: Heads, norms: HeadNorms, tables: StepTables) -> None:
    """Record: norm, rope and rotate q and k of each row in place, then store k and v in the row's slot at its position."""
    facts, codec, rows = heads.facts, heads.layer.codec, heads.rows
    rope = facts.rope if tables.cos is not None else None
    pairs, lanes = (rope.dims // 2, math.gcd(rope.dims // 2, 16)) if rope else (0, 1)
    counts = (facts.heads, facts.kv_heads, facts.kv_heads)
    _check_heads(rows, heads, dict(zip(heads.columns, counts, strict=True)))
    _check_rope(2 * pairs, facts.head_dim, tables, len(rows))
    q_at, k_at, v_at = (4 * column for column in heads.columns)
    key_rotate_tile, key_rotations = _rotation(codec.key_rotation(facts.head_dim), facts.head_dim, program.isa)
    value_rotate_tile, value_rotations = _rotation(codec.value_rotation(facts.head_dim), facts.head_dim, program.isa)
    op = RopeStoreOp(
        qkv=address(rows),
        row_bytes=rows.strides[0],
        heads=facts.heads,
        stored_heads=facts.kv_heads,
        head_bytes=4 * facts.head_dim,
        q_at=q_at,
        k_at=k_at,
        v_at=v_at,
        rope_runs=pairs // lanes,
        half_bytes=4 * pairs,
        cos=_address(tables.cos),
        sin=_address(tables.sin),
        table_bytes=tables.cos.strides[0] if tables.cos is not None else 0,
        q_norm=_address(norms.q),
        k_norm=_address(norms.k),
        positions=address(tables.position),
        position_bytes=tables.position.itemsize,
        bases=address(tables.base),
        layer=heads.layer.offset,
        region_bytes=heads.region_bytes,
        block_bytes=codec.block_bytes(facts.head_dim),
        norm_tile=_norm_tile(program.isa),
        rope_tile=_rope_tile(rope.pairing, lanes, program.isa) if rope else 0,
        keys_tile=_store_tile("keys", codec.name, program.isa),
        values_tile=_store_tile("values", codec.name, program.isa),
        key_rotate_tile=key_rotate_tile,
        key_rotations=key_rotations,
        value_rotate_tile=value_rotate_tile,
        value_rotations=value_rotations,
    )
    keep = [rows, tables.position, tables.base, tables.cos, tables.sin, norms.q, norms.k]
    program.add(ROPE_STORE, op, (norms.eps,), [array for array in keep if array is not None])


def attend(program: Program, heads: Heads, out: Array, segments: Array, precision: FlashPrecision = "f32") -> None:
    """Record: out[row, head * head_dim + d] = attention of the row's queries over the cached keys of its segment.

    segments: (n, 8) int64, see ``drivers.fields.SegmentFields``.  precision: of the products of prompts and patches; decode
    rows are always float32.  A row's result depends on nothing but its query and its keys.
    """
    facts, codec, rows = heads.facts, heads.layer.codec, heads.rows
    _check_attend(program, heads, precision)
    _check_heads(rows, heads, {heads.columns[0]: facts.heads})
    _check_heads(out, heads, {0: facts.heads})
    assert segments.dtype == np.int64, "segments are int64"
    assert segments.shape[1:] == (SEGMENT_INTS,), f"a segment is {SEGMENT_INTS} integers, found shape {segments.shape}"
    assert segments.flags.c_contiguous, "segments are contiguous"
    shape = AttentionShape.of(program.isa, codec, precision, facts.heads // facts.kv_heads, facts.head_dim)
    tiles, chunks = shape.table(), facts.head_dim // 16
    decode_step_bytes, decode_vector_bytes = shape.decode_strides
    op = AttendOp(
        qkv=address(rows),
        row_bytes=rows.strides[0],
        out=address(out),
        out_bytes=out.strides[0],
        kv_heads=facts.kv_heads,
        group=shape.group,
        chunks=chunks,
        q_at=4 * heads.columns[0],
        window=facts.window,
        segments=address(segments),
        layer=heads.layer.offset,
        region_bytes=heads.region_bytes,
        block_bytes=codec.block_bytes(facts.head_dim),
        unit_blocks=shape.unit_blocks,
        tiles=address(tiles),
        expanded_bytes=shape.expanded_bytes,
        flash_block_bytes=shape.flash_block_bytes,
        flash_step_bytes=chunks * shape.values.step_bytes,
        flash_pair=shape.values.pair,
        flash_rows=shape.scores.rows,
        flash_keys=16 * shape.scores.vectors,
        flash_dims=shape.values.vectors,
        decode_heads=shape.decode_scores.rows,
        decode_dims=shape.decode_values.vectors,
        decode_step_bytes=decode_step_bytes,
        decode_vector_bytes=decode_vector_bytes,
        decode_query_bytes=shape.query_bytes,
        rotations=shape.rotations,
        flash_query_bytes=shape.flash_query_bytes,
    )
    program.add(ATTEND, op, (facts.scale * LOG2_E,), (rows, out, segments, tiles), shape.scratch_bytes)


def _check_attend(program: Program, heads: Heads, precision: FlashPrecision) -> None:
    facts, codec = heads.facts, heads.layer.codec
    if facts.soft_cap:
        found = f"found soft_cap {facts.soft_cap}"
        raise ValueError(f"attention scores with a soft cap are not supported, {found}: use a model without one")
    if precision == "bf16" and not program.isa.bf16:
        raise ValueError(f"CPU variant {program.isa.name} has no bf16 dot product: use precision f32")
    if codec.for_patches and precision != "bf16":
        raise ValueError(f"a {codec.name} cache needs precision bf16: use an f32 cache for precision f32")
    assert facts.heads % facts.kv_heads == 0, f"{facts.heads} heads do not share {facts.kv_heads} kv heads evenly"


def _check_heads(rows: Array, heads: Heads, columns: dict[int, int]) -> None:
    """ValueError for heads that the codec cannot store; the rest are our own invariants.  columns: start -> heads."""
    head_dim, capacity = heads.facts.head_dim, heads.layer.capacity
    reason = heads.layer.codec.refusal(head_dim)
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


def _check_rope(dims: int, head_dim: int, tables: StepTables, rows: int) -> None:
    cos, sin = tables.cos, tables.sin
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
