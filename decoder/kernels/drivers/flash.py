"""Attention of many rows of one sequence: blocks of packed query rows against blocks of keys, scores never leaving the cache.

A packed row is (position, head of the group): row r of a segment is position r // group.  A unit is a few blocks of rows of one
kv head; each block of keys is read (and converted, where the cache's type is not the tiles') once per unit.
"""

from __future__ import annotations

from typing import Any

from pagemill.decoder.kernels.calls import call2, call4, call7, call8, driver, load_i64
from pagemill.decoder.kernels.drivers.fields import ATTEND_AT as AT
from pagemill.decoder.kernels.drivers.fields import SEGMENT_AT, TILE_AT
from pagemill.decoder.kernels.drivers.segments import BIDIRECTIONAL, BLOCK_ROWS, KEYS, STATS

SCORE_STRIDE = BLOCK_ROWS * 64
SCORE_BYTES = 16 * SCORE_STRIDE


@driver
def flash_unit(op: Any, reals: int, segment: int, unit: int, head: int, scratch: int) -> None:
    """The unit-th run of blocks of a segment's packed rows, one kv head."""
    begin = unit * op[AT.unit_blocks] * BLOCK_ROWS
    end = min(begin + op[AT.unit_blocks] * BLOCK_ROWS, load_i64(segment + SEGMENT_AT.rows) * op[AT.group])
    block_bytes = BLOCK_ROWS * (op[AT.chunks] * 128 + STATS)  # queries, output, softmax statistics
    scores = scratch + op[AT.unit_blocks] * block_bytes
    for row in range(begin, end, BLOCK_ROWS):
        _begin(op, segment, row, min(row + BLOCK_ROWS, end), head, scratch + (row - begin) // BLOCK_ROWS * block_bytes)
    keys = load_i64(segment + SEGMENT_AT.base) + op[AT.layer] + 2 * head * op[AT.region_bytes]
    first, last = _seen(op, segment, begin)[0], _seen(op, segment, end - 1)[1]
    for key in range(first // KEYS * KEYS, last, KEYS):  # absolute multiples: see KEYS
        block = keys + key // KEYS * op[AT.block_bytes]
        key_block, value_block = block, block + op[AT.region_bytes]
        if op[AT.expanded_bytes] != 0:  # converted once here, read by every block of rows below
            key_block = scores + SCORE_BYTES
            value_block = key_block + op[AT.expanded_bytes]
            count = min(KEYS, last - key)
            call4(load_i64(op[AT.tiles] + TILE_AT.expand_keys), block, key_block, (count + 15) // 16, op[AT.chunks])
            call4(
                load_i64(op[AT.tiles] + TILE_AT.expand_values),
                block + op[AT.region_bytes],
                value_block,
                (count + 1) // 2,
                op[AT.chunks],
            )
        for row in range(begin, end, BLOCK_ROWS):
            stop = min(row + BLOCK_ROWS, end)
            if _seen(op, segment, stop - 1)[1] > key:  # causal: blocks above the diagonal are never touched
                state = scratch + (row - begin) // BLOCK_ROWS * block_bytes
                _block(op, reals, segment, row, stop, key, key_block, value_block, state, scores)
    for row in range(begin, end, BLOCK_ROWS):
        _finish(op, segment, row, min(row + BLOCK_ROWS, end), head, scratch + (row - begin) // BLOCK_ROWS * block_bytes)


@driver
def _seen(op: Any, segment: int, row: int) -> tuple[int, int]:
    """First key that a packed row sees, and the first after it that it does not."""
    if load_i64(segment + SEGMENT_AT.kind) == BIDIRECTIONAL:
        return 0, load_i64(segment + SEGMENT_AT.keys)
    end = load_i64(segment + SEGMENT_AT.position) + row // op[AT.group] + 1
    return (max(0, end - op[AT.window]) if op[AT.window] > 0 else 0), end


@driver
def _begin(op: Any, segment: int, begin: int, end: int, head: int, state: int) -> None:
    """Pack the queries of a block's rows, and clear its output and softmax statistics (max, sum)."""
    pack, group = load_i64(op[AT.tiles] + TILE_AT.pack), op[AT.group]
    stride = BLOCK_ROWS * op[AT.flash_query_bytes]
    source = (
        op[AT.qkv]
        + load_i64(segment + SEGMENT_AT.first_row) * op[AT.row_bytes]
        + op[AT.q_at]
        + head * group * op[AT.chunks] * 64
    )
    for row in range(begin, end):
        query = source + row // group * op[AT.row_bytes] + row % group * op[AT.chunks] * 64
        call4(pack, query, state + (row - begin) * op[AT.flash_query_bytes], op[AT.chunks], stride)
    out = state + BLOCK_ROWS * op[AT.chunks] * 64
    call4(
        load_i64(op[AT.tiles] + TILE_AT.clear),
        out,
        BLOCK_ROWS * op[AT.chunks],
        out + BLOCK_ROWS * op[AT.chunks] * 64,
        BLOCK_ROWS,
    )


@driver
def _block(
    op: Any, reals: int, segment: int, begin: int, end: int, key: int, keys: int, values: int, state: int, scores: int
) -> None:
    """One block of rows against one block of keys: scores, probabilities, output."""
    tiles, chunks, tile_rows, group_keys = (op[AT.tiles], op[AT.chunks], op[AT.flash_rows], op[AT.flash_keys])
    rows, pair, query_bytes = end - begin, op[AT.flash_pair], op[AT.flash_query_bytes]
    count = min(KEYS, _seen(op, segment, end - 1)[1] - key)
    groups = (count + group_keys - 1) // group_keys
    tile_bytes, vector_bytes = op[AT.flash_block_bytes] // KEYS * group_keys, op[AT.flash_step_bytes] // chunks
    for group in range(groups):
        for row in range(0, rows, tile_rows):
            call7(
                load_i64(tiles + TILE_AT.scores), keys + group * tile_bytes, state + row * query_bytes,
                scores + group * (group_keys // 16) * SCORE_STRIDE + row * 64, 1, chunks, BLOCK_ROWS * query_bytes,
                SCORE_STRIDE,
            )  # fmt: skip
    out = state + BLOCK_ROWS * chunks * 64
    stats = out + BLOCK_ROWS * chunks * 64
    _softmax_rows(op, reals, segment, begin, end, key, (count + 31) // 32 * 2, scores, stats)
    for dims in range(0, chunks, op[AT.flash_dims]):
        for row in range(0, rows, tile_rows):
            call8(
                load_i64(tiles + TILE_AT.values), values + dims * vector_bytes, scores + row * 64,
                out + row * chunks * 64 + dims * 64, stats + row * STATS, count,
                op[AT.flash_step_bytes], SCORE_STRIDE * pair, chunks * 64,
            )  # fmt: skip


@driver
def _softmax_rows(
    op: Any, reals: int, segment: int, begin: int, end: int, key: int, chunks: int, scores: int, stats: int
) -> None:
    full, masked = load_i64(op[AT.tiles] + TILE_AT.softmax), load_i64(op[AT.tiles] + TILE_AT.masked_softmax)
    if _seen(op, segment, end - 1)[0] <= key and _seen(op, segment, begin)[1] >= key + KEYS:  # windows only move on
        call8(full, scores, SCORE_STRIDE, 16, 0, KEYS, stats, reals, end - begin)
        return
    for row in range(begin, end):
        first, last = _seen(op, segment, row)
        at, record = scores + (row - begin) * 64, stats + (row - begin) * STATS
        if first <= key and last >= key + KEYS:
            call8(full, at, SCORE_STRIDE, 16, 0, KEYS, record, reals, 1)
        else:
            call8(masked, at, SCORE_STRIDE, chunks, first - key, last - key, record, reals, 1)


@driver
def _finish(op: Any, segment: int, begin: int, end: int, head: int, state: int) -> None:
    """Normalise a block's output into the rows of out."""
    chunks, group = op[AT.chunks], op[AT.group]
    rows = state + BLOCK_ROWS * chunks * 64
    stats = rows + BLOCK_ROWS * chunks * 64
    for row in range(begin, end):
        index = load_i64(segment + SEGMENT_AT.first_row) + row // group
        out = op[AT.out] + index * op[AT.out_bytes] + (head * group + row % group) * chunks * 64
        call4(
            load_i64(op[AT.tiles] + TILE_AT.finish),
            rows + (row - begin) * chunks * 64,
            out,
            chunks,
            stats + (row - begin) * STATS,
        )
        if op[AT.rotations] != 0:
            call2(load_i64(op[AT.tiles] + TILE_AT.rotate), out, op[AT.rotations])
