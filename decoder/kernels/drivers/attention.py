"""ROPE_STORE and ATTEND: who does what.  The units of ATTEND are in ``flash`` and ``decode``."""

from __future__ import annotations

from typing import Any

from pagemill.decoder.kernels.calls import atomic_add, call2, call4, call5, driver, load_i32, load_i64
from pagemill.decoder.kernels.drivers.decode import decode_unit
from pagemill.decoder.kernels.drivers.fields import ATTEND_AT as AT
from pagemill.decoder.kernels.drivers.fields import ROPE_STORE_AT as ROPE
from pagemill.decoder.kernels.drivers.fields import SEGMENT_AT
from pagemill.decoder.kernels.drivers.flash import flash_unit
from pagemill.decoder.kernels.drivers.segments import BLOCK_ROWS, DECODE_ROWS, SEGMENT_BYTES
from pagemill.decoder.kernels.drivers.step import ROWS, SEGMENTS

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
            qkv = op[ROPE.qkv] + row * op[ROPE.row_bytes]
            _turn(op, reals, row, qkv + op[ROPE.q_at], op[ROPE.heads], op[ROPE.q_norm])
            _turn(op, reals, row, qkv + op[ROPE.k_at], op[ROPE.stored_heads], op[ROPE.k_norm])
            _store(op, row, qkv)


@driver
def _turn(op: Any, reals: int, row: int, first: int, heads: int, norm: int) -> None:
    """Norm, rope and rotate the heads of one row."""
    table = row * op[ROPE.table_bytes]
    for head in range(heads):
        at = first + head * op[ROPE.head_bytes]
        if norm != 0:
            call4(op[ROPE.norm_tile], at, norm, op[ROPE.head_bytes] >> 6, reals)
        if op[ROPE.rope_runs] != 0:
            call5(op[ROPE.rope_tile], at, op[ROPE.cos] + table, op[ROPE.sin] + table, op[ROPE.rope_runs], op[ROPE.half_bytes])
        if op[ROPE.key_rotations] != 0:
            call2(op[ROPE.key_rotate_tile], at, op[ROPE.key_rotations])


@driver
def _store(op: Any, row: int, qkv: int) -> None:
    """Keys and values of one row into its slot."""
    position = (
        load_i32(op[ROPE.positions] + 4 * row) if op[ROPE.position_bytes] == 4 else load_i64(op[ROPE.positions] + 8 * row)
    )
    keys = load_i64(op[ROPE.bases] + 8 * row) + op[ROPE.layer] + (position >> 8) * op[ROPE.block_bytes]
    chunks = op[ROPE.head_bytes] >> 6
    for head in range(op[ROPE.stored_heads]):
        at = head * op[ROPE.head_bytes]
        value = qkv + op[ROPE.v_at] + at
        if op[ROPE.value_rotations] != 0:
            call2(op[ROPE.value_rotate_tile], value, op[ROPE.value_rotations])
        call4(op[ROPE.keys_tile], qkv + op[ROPE.k_at] + at, keys, position & 255, chunks)
        call4(op[ROPE.values_tile], value, keys + op[ROPE.region_bytes], position & 255, chunks)
        keys += 2 * op[ROPE.region_bytes]


@driver
def attend(op: Any, reals: int, step: Any, counter: int, scratch: int, worker: int, workers: int) -> None:
    """Hand out units: those of prompts and patches, a segment's costliest first; then one per decode row and kv head."""
    segments, count = op[AT.segments], step[SEGMENTS]
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
            decode_unit(op, reals, segment, index // op[AT.kv_heads], index % op[AT.kv_heads], scratch)
        else:  # all of a head's, then the next head's: its keys and values stay in the cache
            runs = units // op[AT.kv_heads]
            flash_unit(op, reals, segment, runs - 1 - index % runs, index // runs, scratch)


@driver
def _units(op: Any, segment: int, decoding: bool) -> int:
    """How many units a segment has in this pass."""
    rows = load_i64(segment + SEGMENT_AT.rows)
    units = 0
    if (load_i64(segment + SEGMENT_AT.kind) == DECODE_ROWS) == decoding:
        unit_rows = op[AT.unit_blocks] * BLOCK_ROWS
        units = rows * op[AT.kv_heads] if decoding else (rows * op[AT.group] + unit_rows - 1) // unit_rows * op[AT.kv_heads]
    return units
