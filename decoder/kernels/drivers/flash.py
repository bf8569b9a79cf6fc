"""Attention of many rows of one sequence: blocks of packed query rows against blocks of keys, scores never leaving the cache.

A packed row is (position, head of the group): row r of a segment is position r // group.  A unit is a few blocks of rows of one
kv head; each block of keys is read (and converted, where the cache's type is not the tiles') once per unit.
"""

from __future__ import annotations

from typing import Any

from pagemill.decoder.kernels.calls import call2, call4, call7, call8, driver, load_i64
from pagemill.decoder.kernels.drivers.segments import (
    BIDIRECTIONAL,
    BLOCK_BYTES,
    BLOCK_ROWS,
    CHUNKS,
    CLEAR,
    EXPAND_KEYS,
    EXPAND_VALUES,
    EXPANDED_BYTES,
    FINISH,
    FLASH_BLOCK_BYTES,
    FLASH_DIMS,
    FLASH_KEYS,
    FLASH_PAIR,
    FLASH_QUERY_BYTES,
    FLASH_ROWS,
    FLASH_STEP_BYTES,
    GROUP,
    KEYS,
    LAYER,
    MASKED_SOFTMAX,
    OUT,
    OUT_BYTES,
    PACK,
    Q_AT,
    QKV,
    REGION_BYTES,
    ROTATE,
    ROTATIONS,
    ROW_BYTES,
    SCORES,
    SEGMENT_BASE,
    SEGMENT_FIRST_ROW,
    SEGMENT_KEYS,
    SEGMENT_KIND,
    SEGMENT_POSITION,
    SEGMENT_ROWS,
    SOFTMAX,
    STATS,
    TILES,
    UNIT_BLOCKS,
    VALUES,
    WINDOW,
)

SCORE_STRIDE = BLOCK_ROWS * 64
SCORE_BYTES = 16 * SCORE_STRIDE


@driver
def flash_unit(op: Any, reals: int, segment: int, unit: int, head: int, scratch: int) -> None:
    """The unit-th run of blocks of a segment's packed rows, one kv head."""
    begin = unit * op[UNIT_BLOCKS] * BLOCK_ROWS
    end = min(begin + op[UNIT_BLOCKS] * BLOCK_ROWS, load_i64(segment + SEGMENT_ROWS) * op[GROUP])
    block_bytes = BLOCK_ROWS * (op[CHUNKS] * 128 + STATS)  # queries, output, records
    scores = scratch + op[UNIT_BLOCKS] * block_bytes
    for row in range(begin, end, BLOCK_ROWS):
        _begin(op, segment, row, min(row + BLOCK_ROWS, end), head, scratch + (row - begin) // BLOCK_ROWS * block_bytes)
    keys = load_i64(segment + SEGMENT_BASE) + op[LAYER] + 2 * head * op[REGION_BYTES]
    first, last = _seen(op, segment, begin)[0], _seen(op, segment, end - 1)[1]
    for key in range(first // KEYS * KEYS, last, KEYS):
        block = keys + key // KEYS * op[BLOCK_BYTES]
        key_block, value_block = block, block + op[REGION_BYTES]
        if op[EXPANDED_BYTES] != 0:
            key_block = scores + SCORE_BYTES
            value_block = key_block + op[EXPANDED_BYTES]
            count = min(KEYS, last - key)
            call4(load_i64(op[TILES] + EXPAND_KEYS), block, key_block, (count + 15) // 16, op[CHUNKS])
            call4(load_i64(op[TILES] + EXPAND_VALUES), block + op[REGION_BYTES], value_block, (count + 1) // 2, op[CHUNKS])
        for row in range(begin, end, BLOCK_ROWS):
            stop = min(row + BLOCK_ROWS, end)
            if _seen(op, segment, stop - 1)[1] > key:
                state = scratch + (row - begin) // BLOCK_ROWS * block_bytes
                _block(op, reals, segment, row, stop, key, key_block, value_block, state, scores)
    for row in range(begin, end, BLOCK_ROWS):
        _finish(op, segment, row, min(row + BLOCK_ROWS, end), head, scratch + (row - begin) // BLOCK_ROWS * block_bytes)


@driver
def _seen(op: Any, segment: int, row: int) -> tuple[int, int]:
    """First key that a packed row sees, and the first after it that it does not."""
    if load_i64(segment + SEGMENT_KIND) == BIDIRECTIONAL:
        return 0, load_i64(segment + SEGMENT_KEYS)
    end = load_i64(segment + SEGMENT_POSITION) + row // op[GROUP] + 1
    return (max(0, end - op[WINDOW]) if op[WINDOW] > 0 else 0), end


@driver
def _begin(op: Any, segment: int, begin: int, end: int, head: int, state: int) -> None:
    """Pack the queries of a block's rows, and clear its output and records."""
    pack, group = load_i64(op[TILES] + PACK), op[GROUP]
    stride = BLOCK_ROWS * op[FLASH_QUERY_BYTES]
    source = op[QKV] + load_i64(segment + SEGMENT_FIRST_ROW) * op[ROW_BYTES] + op[Q_AT] + head * group * op[CHUNKS] * 64
    for row in range(begin, end):
        query = source + row // group * op[ROW_BYTES] + row % group * op[CHUNKS] * 64
        call4(pack, query, state + (row - begin) * op[FLASH_QUERY_BYTES], op[CHUNKS], stride)
    out = state + BLOCK_ROWS * op[CHUNKS] * 64
    call4(load_i64(op[TILES] + CLEAR), out, BLOCK_ROWS * op[CHUNKS], out + BLOCK_ROWS * op[CHUNKS] * 64, BLOCK_ROWS)


@driver
def _block(
    op: Any, reals: int, segment: int, begin: int, end: int, key: int, keys: int, values: int, state: int, scores: int
) -> None:
    """One block of rows against one block of keys: scores, probabilities, output."""
    tiles, chunks, tile_rows, group_keys = op[TILES], op[CHUNKS], op[FLASH_ROWS], op[FLASH_KEYS]
    rows, pair, query_bytes = end - begin, op[FLASH_PAIR], op[FLASH_QUERY_BYTES]
    count = min(KEYS, _seen(op, segment, end - 1)[1] - key)
    groups = (count + group_keys - 1) // group_keys
    tile_bytes, vector_bytes = op[FLASH_BLOCK_BYTES] // KEYS * group_keys, op[FLASH_STEP_BYTES] // chunks
    for group in range(groups):
        for row in range(0, rows, tile_rows):
            call7(
                load_i64(tiles + SCORES), keys + group * tile_bytes, state + row * query_bytes,
                scores + group * (group_keys // 16) * SCORE_STRIDE + row * 64, 1, chunks, BLOCK_ROWS * query_bytes,
                SCORE_STRIDE,
            )  # fmt: skip
    out = state + BLOCK_ROWS * chunks * 64
    stats = out + BLOCK_ROWS * chunks * 64
    _softmax_rows(op, reals, segment, begin, end, key, (count + 31) // 32 * 2, scores, stats)
    for dims in range(0, chunks, op[FLASH_DIMS]):
        for row in range(0, rows, tile_rows):
            call8(
                load_i64(tiles + VALUES), values + dims * vector_bytes, scores + row * 64, out + row * chunks * 64 + dims * 64,
                stats + row * STATS, count, op[FLASH_STEP_BYTES], SCORE_STRIDE * pair, chunks * 64,
            )  # fmt: skip


@driver
def _softmax_rows(
    op: Any, reals: int, segment: int, begin: int, end: int, key: int, chunks: int, scores: int, stats: int
) -> None:
    full, masked = load_i64(op[TILES] + SOFTMAX), load_i64(op[TILES] + MASKED_SOFTMAX)
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
    chunks, group = op[CHUNKS], op[GROUP]
    rows = state + BLOCK_ROWS * chunks * 64
    stats = rows + BLOCK_ROWS * chunks * 64
    for row in range(begin, end):
        index = load_i64(segment + SEGMENT_FIRST_ROW) + row // group
        out = op[OUT] + index * op[OUT_BYTES] + (head * group + row % group) * chunks * 64
        call4(load_i64(op[TILES] + FINISH), rows + (row - begin) * chunks * 64, out, chunks, stats + (row - begin) * STATS)
        if op[ROTATIONS] != 0:
            call2(load_i64(op[TILES] + ROTATE), out, op[ROTATIONS])
