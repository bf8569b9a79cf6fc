"""Attention of one row of one sequence: all heads that share a kv head read each key and value once, in the order of memory."""

from __future__ import annotations

from typing import Any

from pagemill.decoder.kernels.calls import call2, call4, call7, call8, driver, load_i64
from pagemill.decoder.kernels.drivers.fields import ATTEND_AT as AT
from pagemill.decoder.kernels.drivers.fields import SEGMENT_AT, TILE_AT
from pagemill.decoder.kernels.drivers.segments import KEYS, STATS


@driver
def decode_unit(op: Any, reals: int, segment: int, index: int, head: int, scratch: int) -> None:
    """The index-th row of a segment, one kv head; a row sees the keys up to its own position."""
    group, chunks, slice_heads, tiles = (op[AT.group], op[AT.chunks], op[AT.decode_heads], op[AT.tiles])
    row = load_i64(segment + SEGMENT_AT.first_row) + index
    last = load_i64(segment + SEGMENT_AT.position) + index + 1
    first = max(0, last - op[AT.window]) if op[AT.window] > 0 else 0
    out, stats = scratch + group * chunks * 64, scratch + group * chunks * 128
    scores = stats + group * STATS + (-group * STATS) % 64  # on a cache line: tiles load whole vectors
    queries = op[AT.qkv] + row * op[AT.row_bytes] + op[AT.q_at] + head * group * chunks * 64
    for i in range(group):
        packed = scratch + i // slice_heads * slice_heads * chunks * 64 + i % slice_heads * op[AT.decode_query_bytes]
        call4(
            load_i64(tiles + TILE_AT.decode_pack),
            queries + i * chunks * 64,
            packed,
            chunks,
            slice_heads * op[AT.decode_query_bytes],
        )
    call4(load_i64(tiles + TILE_AT.clear), out, group * chunks, stats, group)
    block = load_i64(segment + SEGMENT_AT.base) + op[AT.layer] + 2 * head * op[AT.region_bytes]
    for key in range(first // KEYS * KEYS, last, KEYS):
        keys = block + key // KEYS * op[AT.block_bytes]
        for i in range(0, group, slice_heads):
            at = i * chunks * 64
            _block(op, reals, keys, scratch + at, out + at, stats + i * STATS, scores, first - key, last - key)
    target = op[AT.out] + row * op[AT.out_bytes] + head * group * chunks * 64
    for i in range(group):
        at = i * chunks * 64
        call4(load_i64(tiles + TILE_AT.finish), out + at, target + at, chunks, stats + i * STATS)
        if op[AT.rotations] != 0:
            call2(load_i64(tiles + TILE_AT.rotate), target + at, op[AT.rotations])


@driver
def _block(op: Any, reals: int, keys: int, queries: int, out: int, stats: int, scores: int, first: int, last: int) -> None:
    """A slice of heads against one block of keys, of which first..last-1 are seen."""
    heads, chunks, tiles = op[AT.decode_heads], op[AT.chunks], op[AT.tiles]
    count, stride = min(KEYS, last), heads * 64
    call7(
        load_i64(tiles + TILE_AT.decode_scores),
        keys,
        queries,
        scores,
        (count + 15) // 16,
        chunks,
        heads * op[AT.decode_query_bytes],
        stride,
    )
    whole = first <= 0 and last >= KEYS
    softmax = load_i64(tiles + (TILE_AT.decode_softmax if whole else TILE_AT.decode_masked))
    call8(softmax, scores, stride, (count + 31) // 32 * 2, first, last, stats, reals, heads)
    values, factors, coded = keys + op[AT.region_bytes], scores, load_i64(tiles + TILE_AT.decode_factors)
    for dims in range(0, chunks, op[AT.decode_dims]):
        at = values + dims * op[AT.decode_vector_bytes]
        if coded != 0:
            factors = scores + stride * 16
            call4(coded, scores, at, factors, count)
            at += 2 * KEYS
        call8(
            load_i64(tiles + TILE_AT.decode_values), at, factors, out + dims * 64, stats,
            count, op[AT.decode_step_bytes], stride, chunks * 64,
        )  # fmt: skip
