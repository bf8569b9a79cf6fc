"""ROPE_STORE and ATTEND: who does what.  The units of ATTEND are in ``flash`` and ``decode``."""

from __future__ import annotations

from typing import Any

from pagemill.decoder.kernels.calls import atomic_add, call2, call4, call5, driver, load_i32, load_i64
from pagemill.decoder.kernels.drivers.decode import decode_unit
from pagemill.decoder.kernels.drivers.flash import flash_unit
from pagemill.decoder.kernels.drivers.segments import (
    BLOCK_ROWS,
    DECODE_ROWS,
    GROUP,
    KV_HEADS,
    SEGMENT_BYTES,
    SEGMENT_KIND,
    SEGMENT_ROWS,
    SEGMENTS_AT,
    UNIT_BLOCKS,
)
from pagemill.decoder.kernels.drivers.step import ROWS, SEGMENTS

# slots of a ROPE_STORE op
QKV, ROW_BYTES, HEADS, STORED_HEADS, HEAD_BYTES, Q_AT, K_AT, V_AT = 1, 2, 3, 4, 5, 6, 7, 8
ROPE_RUNS, HALF_BYTES, COS, SIN, TABLE_BYTES = 9, 10, 11, 12, 13
Q_NORM, K_NORM, POSITIONS, POSITION_BYTES, BASES, LAYER, REGION_BYTES, BLOCK_BYTES = 14, 15, 16, 17, 18, 19, 20, 21
NORM_TILE, ROPE_TILE, KEYS_TILE, VALUES_TILE = 22, 23, 24, 25
KEY_ROTATE_TILE, KEY_ROTATIONS, VALUE_ROTATE_TILE, VALUE_ROTATIONS = 26, 27, 28, 29

ROWS_PER_CHUNK = 4


@driver
def rope_store(op: Any, reals: int, step: Any, counter: int, scratch: int, worker: int, workers: int) -> None:
    """Norm, rope and rotate queries and keys in place; store keys and values in the row's slot at its position."""
    rows = step[ROWS]
    while True:
        begin = atomic_add(counter, 1) * ROWS_PER_CHUNK
        if begin >= rows:
            return
        for row in range(begin, min(begin + ROWS_PER_CHUNK, rows)):
            qkv = op[QKV] + row * op[ROW_BYTES]
            _turn(op, reals, row, qkv + op[Q_AT], op[HEADS], op[Q_NORM])
            _turn(op, reals, row, qkv + op[K_AT], op[STORED_HEADS], op[K_NORM])
            _store(op, row, qkv)


@driver
def _turn(op: Any, reals: int, row: int, first: int, heads: int, norm: int) -> None:
    """Norm, rope and rotate the heads of one row."""
    table = row * op[TABLE_BYTES]
    for head in range(heads):
        at = first + head * op[HEAD_BYTES]
        if norm != 0:
            call4(op[NORM_TILE], at, norm, op[HEAD_BYTES] >> 6, reals)
        if op[ROPE_RUNS] != 0:
            call5(op[ROPE_TILE], at, op[COS] + table, op[SIN] + table, op[ROPE_RUNS], op[HALF_BYTES])
        if op[KEY_ROTATIONS] != 0:
            call2(op[KEY_ROTATE_TILE], at, op[KEY_ROTATIONS])


@driver
def _store(op: Any, row: int, qkv: int) -> None:
    """Keys and values of one row into its slot."""
    position = load_i32(op[POSITIONS] + 4 * row) if op[POSITION_BYTES] == 4 else load_i64(op[POSITIONS] + 8 * row)
    keys = load_i64(op[BASES] + 8 * row) + op[LAYER] + (position >> 8) * op[BLOCK_BYTES]
    chunks = op[HEAD_BYTES] >> 6
    for head in range(op[STORED_HEADS]):
        at = head * op[HEAD_BYTES]
        value = qkv + op[V_AT] + at
        if op[VALUE_ROTATIONS] != 0:
            call2(op[VALUE_ROTATE_TILE], value, op[VALUE_ROTATIONS])
        call4(op[KEYS_TILE], qkv + op[K_AT] + at, keys, position & 255, chunks)
        call4(op[VALUES_TILE], value, keys + op[REGION_BYTES], position & 255, chunks)
        keys += 2 * op[REGION_BYTES]


@driver
def attend(op: Any, reals: int, step: Any, counter: int, scratch: int, worker: int, workers: int) -> None:
    """Hand out units: those of prompts and patches, a segment's costliest first; then one per decode row and kv head."""
    segments, count = op[SEGMENTS_AT], step[SEGMENTS]
    at, passed = 0, 0  # the segment of the unit, and the units before it: both only grow
    decoding = False
    while True:
        unit = atomic_add(counter, 1)
        while True:
            if at == count:
                if decoding:
                    return
                decoding, at = True, 0
                continue
            segment = segments + at * SEGMENT_BYTES
            units = _units(op, segment, decoding)
            if unit < passed + units:
                break
            passed += units
            at += 1
        index = unit - passed
        if decoding:
            decode_unit(op, reals, segment, index // op[KV_HEADS], index % op[KV_HEADS], scratch)
        else:  # all of a head's, then the next head's: its keys and values stay in the cache
            runs = units // op[KV_HEADS]
            flash_unit(op, reals, segment, runs - 1 - index % runs, index // runs, scratch)


@driver
def _units(op: Any, segment: int, decoding: bool) -> int:
    """How many units a segment has in this pass."""
    rows = load_i64(segment + SEGMENT_ROWS)
    units = 0
    if (load_i64(segment + SEGMENT_KIND) == DECODE_ROWS) == decoding:
        unit_rows = op[UNIT_BLOCKS] * BLOCK_ROWS
        units = rows * op[KV_HEADS] if decoding else (rows * op[GROUP] + unit_rows - 1) // unit_rows * op[KV_HEADS]
    return units
