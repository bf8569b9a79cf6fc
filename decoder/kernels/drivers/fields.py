"""The integers of each op, defined once and by name: a recorder fills a record, a driver reads the tape at its places.

Addresses unless said otherwise; ``*_bytes`` are sizes or strides.  An op's code stands before its fields on the tape.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

T = TypeVar("T", bound=tuple[int, ...])


class PrepareOp(NamedTuple):
    """Rows through a source kernel (norm, activation), then packed for a product or kept as float32."""

    step_rows: int  # place in the step header of the row count
    src: int
    src_bytes: int
    row_index: int  # int64 table of source rows, or 0
    source_kernel: int
    a: int  # of the source kernel: a weight, or bytes from gate to up
    b: int
    vectors: int  # of 16 values a row
    packing_kernel: int  # 0: float32 rows
    codes: int
    scales: int
    sums16: int
    sums32: int
    blocks: int
    row_bytes: int  # of a row in a block of codes; float32 rows: of a row
    sums16_per_block: int
    sums32_per_block: int
    padded_bytes: int  # of a row in scratch


class MatmulOp(NamedTuple):
    """Packed rows times panels.  The tile variants follow the fields: (activations, kernel) of each, largest first."""

    step_rows: int  # place in the step header of the row count
    panels: int
    group_bytes: int
    groups: int  # of weight rows
    group_rows: int
    blocks: int  # of k
    codes: int
    scales: int
    sums16: int
    sums32: int
    code_bytes: int  # of a row in a block of codes
    sums16_bytes: int
    sums32_bytes: int
    out: int  # at its column
    out_bytes: int
    written: int  # floats of a row
    bias: int  # or 0
    finish_kernel: int
    block_rows: int  # whose activations stay in the cache
    variants: int


class RopeStoreOp(NamedTuple):
    """Norm, rope and rotate q and k in place; store k and v in the cache."""

    qkv: int
    row_bytes: int
    heads: int
    stored_heads: int
    head_bytes: int
    q_at: int  # bytes from a row's start
    k_at: int
    v_at: int
    rope_runs: int  # of lanes that one tile turns; 0: no rope
    half_bytes: int  # of the cosines of a row
    cos: int
    sin: int
    table_bytes: int
    q_norm: int
    k_norm: int
    positions: int
    position_bytes: int  # of one position: 4 or 8
    bases: int
    layer: int  # bytes from a sequence's base to the layer
    region_bytes: int  # of the keys, or the values, of one head
    block_bytes: int
    norm_tile: int
    rope_tile: int
    keys_tile: int
    values_tile: int
    key_rotate_tile: int
    key_rotations: int  # blocks of a head that are rotated; 0: none
    value_rotate_tile: int
    value_rotations: int


class AttendOp(NamedTuple):
    """Attention of a step's rows over the cached keys of their segments."""

    qkv: int
    row_bytes: int
    out: int
    out_bytes: int
    kv_heads: int
    group: int  # query heads that share a key head
    chunks: int  # of 16 dimensions a head
    q_at: int
    window: int  # keys a causal row sees; 0: all
    segments: int
    layer: int
    region_bytes: int
    block_bytes: int
    unit_blocks: int  # blocks of packed rows a unit
    tiles: int  # table of tile addresses, see AttendTiles
    expanded_bytes: int  # of a converted block of keys; 0 where the tiles read the cache
    flash_block_bytes: int
    flash_step_bytes: int
    flash_pair: int
    flash_rows: int
    flash_keys: int
    flash_dims: int
    decode_heads: int
    decode_dims: int
    decode_step_bytes: int  # from a step's keys to the next's
    decode_vector_bytes: int  # from 16 dimensions of values to the next
    decode_query_bytes: int
    rotations: int  # blocks of a head's output that are rotated
    flash_query_bytes: int


class AttendTiles(NamedTuple):
    """The tiles of an ATTEND op, an address each; 0 where its cache needs none."""

    pack: int = 0
    scores: int = 0
    softmax: int = 0
    masked_softmax: int = 0
    values: int = 0
    finish: int = 0
    clear: int = 0
    rotate: int = 0
    decode_pack: int = 0
    decode_scores: int = 0
    decode_softmax: int = 0
    decode_masked: int = 0
    decode_values: int = 0
    decode_factors: int = 0
    expand_keys: int = 0
    expand_values: int = 0


class SegmentFields(NamedTuple):
    """A run of rows of one sequence in a step.  kind: PROMPT_CHUNK, DECODE_ROWS or BIDIRECTIONAL."""

    first_row: int
    rows: int
    position: int  # of the first row
    base: int  # of the sequence's memory in the cache
    kind: int
    keys: int  # in all, where bidirectional


def places(op: type[T], start: int = 1, step: int = 1) -> T:
    """A record whose fields hold where each stands: on the tape (behind the op's code), or in bytes of a table."""
    count = len(op._fields)  # type: ignore[attr-defined]
    return op(*range(start, start + count * step, step))


PREPARE_AT, MATMUL_AT = places(PrepareOp), places(MatmulOp)
ROPE_STORE_AT, ATTEND_AT = places(RopeStoreOp), places(AttendOp)
TILE_AT, SEGMENT_AT = places(AttendTiles, 0, 8), places(SegmentFields, 0, 8)
