"""PREPARE: each row through a source kernel (norm, activation), then packed for a matrix product or kept as float32.

op[1] step slot of the row count   [2] src  [3] bytes per src row   [4] table of row indices, or 0
op[5] source kernel  [6] a  [7] b  [8] vectors per row
op[9] packing kernel, or 0: float32 rows   [10] codes  [11] scales  [12] sums16  [13] sums32  [14] blocks
op[15] bytes of one row in a block of codes (float32 rows: bytes per row)   [16] sums16 per block  [17] sums32 per block
op[18] bytes of a padded row in scratch
reals: eps, width
"""

from __future__ import annotations

from typing import Any

from pagemill.decoder.kernels.calls import atomic_add, call6, call7, driver, load_i64, store_i64

ROWS_PER_CHUNK = 4


@driver
def prepare(op: Any, reals: int, step: Any, counter: int, scratch: int, worker: int, workers: int) -> None:
    """Workers take a few rows at a time."""
    rows = step[op[1]]
    row_bytes = 64 * op[8]
    padded = op[18]
    for tail in range(row_bytes, padded, 8):
        store_i64(scratch + tail, 0)
    chunk = ROWS_PER_CHUNK if rows >= ROWS_PER_CHUNK * workers else 1
    while True:
        first = atomic_add(counter, chunk)
        if first >= rows:
            return
        for row in range(first, min(rows, first + chunk)):
            index = row if op[4] == 0 else load_i64(op[4] + 8 * row)
            src = op[2] + index * op[3]
            if op[9] == 0:
                call6(op[5], src, op[10] + row * op[15], op[6], op[7], reals, op[8])
                continue
            call6(op[5], src, scratch, op[6], op[7], reals, op[8])
            call7(
                op[9],
                scratch,
                op[10] + row * op[15],
                op[11] + 4 * row,
                op[12] + 2 * row * op[16],
                op[13] + 4 * row * op[17],
                op[14],
                rows,
            )
