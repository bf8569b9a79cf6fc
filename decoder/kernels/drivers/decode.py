"""Attention of one row of one sequence: all heads that share a kv head read each key and value once, in the order of memory."""

from __future__ import annotations

from typing import Any

from pagemill.decoder.kernels.calls import call2, call4, call7, call8, driver, load_i64
from pagemill.decoder.kernels.drivers.segments import (
    BLOCK_BYTES,
    CHUNKS,
    CLEAR,
    DECODE_DIMS,
    DECODE_FACTORS,
    DECODE_HEADS,
    DECODE_MASKED,
    DECODE_PACK,
    DECODE_QUERY_BYTES,
    DECODE_SCORES,
    DECODE_SOFTMAX,
    DECODE_STEP_BYTES,
    DECODE_VALUES,
    DECODE_VECTOR_BYTES,
    FINISH,
    GROUP,
    KEYS,
    LAYER,
    OUT,
    OUT_BYTES,
    Q_AT,
    QKV,
    REGION_BYTES,
    ROTATE,
    ROTATIONS,
    ROW_BYTES,
    SEGMENT_BASE,
    SEGMENT_FIRST_ROW,
    SEGMENT_POSITION,
    STATS,
    TILES,
    WINDOW,
)


@driver
def decode_unit(op: Any, reals: int, segment: int, index: int, head: int, scratch: int) -> None:
    """The index-th row of a segment, one kv head; a row sees the keys up to its own position."""
    group, chunks, slice_heads, tiles = op[GROUP], op[CHUNKS], op[DECODE_HEADS], op[TILES]
    row = load_i64(segment + SEGMENT_FIRST_ROW) + index
    last = load_i64(segment + SEGMENT_POSITION) + index + 1
    first = max(0, last - op[WINDOW]) if op[WINDOW] > 0 else 0
    out, stats = scratch + group * chunks * 64, scratch + group * chunks * 128
    scores = stats + group * STATS + (-group * STATS) % 64
    queries = op[QKV] + row * op[ROW_BYTES] + op[Q_AT] + head * group * chunks * 64
    for i in range(group):
        packed = scratch + i // slice_heads * slice_heads * chunks * 64 + i % slice_heads * op[DECODE_QUERY_BYTES]
        call4(load_i64(tiles + DECODE_PACK), queries + i * chunks * 64, packed, chunks, slice_heads * op[DECODE_QUERY_BYTES])
    call4(load_i64(tiles + CLEAR), out, group * chunks, stats, group)
    block = load_i64(segment + SEGMENT_BASE) + op[LAYER] + 2 * head * op[REGION_BYTES]
    for key in range(first // KEYS * KEYS, last, KEYS):
        keys = block + key // KEYS * op[BLOCK_BYTES]
        for i in range(0, group, slice_heads):
            at = i * chunks * 64
            _block(op, reals, keys, scratch + at, out + at, stats + i * STATS, scores, first - key, last - key)
    target = op[OUT] + row * op[OUT_BYTES] + head * group * chunks * 64
    for i in range(group):
        at = i * chunks * 64
        call4(load_i64(tiles + FINISH), out + at, target + at, chunks, stats + i * STATS)
        if op[ROTATIONS] != 0:
            call2(load_i64(tiles + ROTATE), target + at, op[ROTATIONS])


@driver
def _block(op: Any, reals: int, keys: int, queries: int, out: int, stats: int, scores: int, first: int, last: int) -> None:
    """A slice of heads against one block of keys, of which first..last-1 are seen."""
    heads, chunks, tiles = op[DECODE_HEADS], op[CHUNKS], op[TILES]
    count, stride = min(KEYS, last), heads * 64
    call7(
        load_i64(tiles + DECODE_SCORES),
        keys,
        queries,
        scores,
        (count + 15) // 16,
        chunks,
        heads * op[DECODE_QUERY_BYTES],
        stride,
    )
    whole = first <= 0 and last >= KEYS
    softmax = load_i64(tiles + (DECODE_SOFTMAX if whole else DECODE_MASKED))
    call8(softmax, scores, stride, (count + 31) // 32 * 2, first, last, stats, reals, heads)
    values, factors, coded = keys + op[REGION_BYTES], scores, load_i64(tiles + DECODE_FACTORS)
    for dims in range(0, chunks, op[DECODE_DIMS]):
        at = values + dims * op[DECODE_VECTOR_BYTES]
        if coded != 0:
            factors = scores + stride * 16
            call4(coded, scores, at, factors, count)
            at += 2 * KEYS
        call8(
            load_i64(tiles + DECODE_VALUES), at, factors, out + dims * 64, stats,
            count, op[DECODE_STEP_BYTES], stride, chunks * 64,
        )  # fmt: skip
