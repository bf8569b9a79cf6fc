"""MATMUL: activations times panels.  Fields: ``fields.MatmulOp``."""

from __future__ import annotations

from typing import Any

from pagemill.decoder.kernels.calls import atomic_add, call6, call8, driver
from pagemill.decoder.kernels.drivers.fields import MATMUL_AT as AT

CHUNKS_PER_WORKER = 8  # a worker that starts late costs an eighth of its share at most
LARGEST_CHUNK = 32  # row groups a worker takes at a time, at most: a late worker holds the others up for one chunk


@driver
def matmul(op: Any, reals: int, step: Any, counter: int, scratch: int, worker: int, workers: int) -> None:
    """Workers take chunks of row groups, for one block of rows after the other."""
    rows, groups, block_rows = step[op[AT.step_rows]], op[AT.groups], op[AT.block_rows]
    chunk = min(LARGEST_CHUNK, max(1, groups // (CHUNKS_PER_WORKER * workers)))
    chunks = (groups + chunk - 1) // chunk
    row_blocks = (rows + block_rows - 1) // block_rows
    while True:
        unit = atomic_add(counter, 1)
        if unit >= chunks * row_blocks:
            return
        first_row = unit // chunks * block_rows  # all chunks of a block of rows first: its activations stay cached
        first_group = unit % chunks * chunk
        for group in range(first_group, min(groups, first_group + chunk)):
            _group(op, group, first_row, min(rows, first_row + block_rows), rows, scratch)


@driver
def _group(op: Any, group: int, row: int, end: int, rows: int, scratch: int) -> None:
    """One row group of weights times activation rows row .. end, as many at a time as a tile variant holds."""
    weights = op[AT.panels] + group * op[AT.group_bytes]
    lane = group * op[AT.group_rows]
    out = op[AT.out] + 4 * lane
    valid = min(op[AT.group_rows], op[AT.written] - lane)
    bias = op[AT.bias] + 4 * lane
    for variant in range(op[AT.variants]):
        first = AT.variants + 1 + 2 * variant
        count, tile = op[first], op[first + 1]
        while end - row >= count:  # largest tile first; the last has one activation, so nothing is left
            call8(
                tile,
                weights,
                op[AT.codes] + row * op[AT.code_bytes],
                op[AT.scales] + row * 4,
                op[AT.sums16] + row * op[AT.sums16_bytes],
                op[AT.sums32] + row * op[AT.sums32_bytes],
                scratch,
                op[AT.blocks],
                rows,
            )
            call6(op[AT.finish_kernel], scratch, out + row * op[AT.out_bytes], op[AT.out_bytes], count, valid, bias)
            row += count
