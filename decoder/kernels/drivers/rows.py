"""PREPARE: each row through a source kernel (norm, activation), then packed for a product.  Fields: ``fields.PrepareOp``."""

from __future__ import annotations

from typing import Any

from pagemill.decoder.kernels.calls import atomic_add, call6, call7, driver, load_i64, store_i64
from pagemill.decoder.kernels.drivers.fields import PREPARE_AT as AT

ROWS_PER_CHUNK = 4  # a counter is touched once for so many: rows are short


@driver
def prepare(op: Any, reals: int, step: Any, counter: int, scratch: int, worker: int, workers: int) -> None:
    """Workers take a few rows at a time."""
    rows = step[op[AT.step_rows]]
    row_bytes = 64 * op[AT.vectors]
    padded = op[AT.padded_bytes]
    for tail in range(row_bytes, padded, 8):
        store_i64(scratch + tail, 0)  # padding meets zero weights, and zero times NaN is NaN
    chunk = ROWS_PER_CHUNK if rows >= ROWS_PER_CHUNK * workers else 1
    while True:
        first = atomic_add(counter, chunk)
        if first >= rows:
            return
        for row in range(first, min(rows, first + chunk)):
            index = row if op[AT.row_index] == 0 else load_i64(op[AT.row_index] + 8 * row)
            src = op[AT.src] + index * op[AT.src_bytes]
            if op[AT.packing_kernel] == 0:
                call6(
                    op[AT.source_kernel], src, op[AT.codes] + row * op[AT.row_bytes], op[AT.a], op[AT.b], reals, op[AT.vectors]
                )
                continue
            call6(op[AT.source_kernel], src, scratch, op[AT.a], op[AT.b], reals, op[AT.vectors])
            call7(
                op[AT.packing_kernel],
                scratch,
                op[AT.codes] + row * op[AT.row_bytes],
                op[AT.scales] + 4 * row,
                op[AT.sums16] + 2 * row * op[AT.sums16_per_block],
                op[AT.sums32] + 4 * row * op[AT.sums32_per_block],
                op[AT.blocks],
                rows,
            )
