"""MATMUL: activations times panels.

op[1] step slot of the row count
op[2] panels  [3] bytes per row group  [4] row groups  [5] rows per group  [6] blocks of k
op[7] codes  [8] scales  [9] sums16  [10] sums32 of the activations
op[11] bytes per row in a block of codes  [12] of sums16  [13] of sums32
op[14] out at its column  [15] bytes per out row  [16] floats to write in a row
op[17] bias, or 0  [18] finish kernel  [19] rows whose activations stay in the cache
op[20] tile variants, then (activations, kernel) of each, largest first
"""

from __future__ import annotations

from typing import Any

from pagemill.decoder.kernels.calls import atomic_add, call6, call8, driver

CHUNKS_PER_WORKER = 8
LARGEST_CHUNK = 32
"""Row groups a worker takes at a time, at most: a late worker holds the others up for one chunk."""


@driver
def matmul(op: Any, reals: int, step: Any, counter: int, scratch: int, worker: int, workers: int) -> None:
    """Workers take chunks of row groups, for one block of rows after the other."""
    rows, groups, block_rows = step[op[1]], op[4], op[19]
    chunk = min(LARGEST_CHUNK, max(1, groups // (CHUNKS_PER_WORKER * workers)))
    chunks = (groups + chunk - 1) // chunk
    row_blocks = (rows + block_rows - 1) // block_rows
    while True:
        unit = atomic_add(counter, 1)
        if unit >= chunks * row_blocks:
            return
        first_row = unit // chunks * block_rows
        first_group = unit % chunks * chunk
        for group in range(first_group, min(groups, first_group + chunk)):
            _group(op, group, first_row, min(rows, first_row + block_rows), rows, scratch)


@driver
def _group(op: Any, group: int, row: int, end: int, rows: int, scratch: int) -> None:
    """One row group of weights times activation rows row .. end, as many at a time as a tile variant holds."""
    weights = op[2] + group * op[3]
    lane = group * op[5]
    out = op[14] + 4 * lane
    valid = min(op[5], op[16] - lane)
    bias = op[17] + 4 * lane
    for variant in range(op[20]):
        count, tile = op[21 + 2 * variant], op[22 + 2 * variant]
        while end - row >= count:
            call8(
                tile,
                weights,
                op[7] + row * op[11],
                op[8] + row * 4,
                op[9] + row * op[12],
                op[10] + row * op[13],
                scratch,
                op[6],
                rows,
            )
            call6(op[18], scratch, out + row * op[15], op[15], count, valid, bias)
            row += count
