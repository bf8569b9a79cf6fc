"""The loop over a program's ops: what every worker of the team executes, one call a step."""

from __future__ import annotations

from typing import Any

from decoder.kernels.calls import driver
from decoder.kernels.drivers.attention import attend, rope_store
from decoder.kernels.drivers.barrier import barrier
from decoder.kernels.drivers.codes import ATTEND, MATMUL, PREPARE, ROPE_STORE
from decoder.kernels.drivers.matmul import matmul
from decoder.kernels.drivers.rows import prepare


@driver
def run(
    ops: Any, reals: int, step: Any, counters: int, scratch: int, scratch_bytes: int, gate: int, worker: int, workers: int
) -> None:
    """ops: (n, 32) int64; reals: address of float32 (n, 8); counters: address of a zeroed int64 per 64-byte line and op."""
    own = scratch + worker * scratch_bytes
    for i in range(ops.shape[0]):
        op, real, counter = ops[i], reals + 32 * i, counters + 64 * i
        code = op[0]
        if code == PREPARE:
            prepare(op, real, step, counter, own, worker, workers)
        elif code == MATMUL:
            matmul(op, real, step, counter, own, worker, workers)
        elif code == ROPE_STORE:
            rope_store(op, real, step, counter, own, worker, workers)
        elif code == ATTEND:
            attend(op, real, step, counter, own, worker, workers)
        barrier(gate, workers)
