"""The loop over a program's ops: what every worker of the team executes, one call a step."""

from __future__ import annotations

from typing import Any

from pagemill.decoder.kernels.calls import driver, thread_nanoseconds, wall_nanoseconds
from pagemill.decoder.kernels.drivers.attention import attend, rope_store
from pagemill.decoder.kernels.drivers.barrier import barrier
from pagemill.decoder.kernels.drivers.codes import ATTEND, MATMUL, PREPARE, ROPE_STORE
from pagemill.decoder.kernels.drivers.matmul import matmul
from pagemill.decoder.kernels.drivers.rows import prepare


@driver
def run(
    ops: Any, reals: int, step: Any, counters: int, scratch: int, scratch_bytes: int, gate: int, worker: int, workers: int
) -> None:
    """ops: (n, 32) int64; reals: address of float32 (n, 8); counters: address of a zeroed int64 per 64-byte line and op."""
    own = scratch + worker * scratch_bytes
    for i in range(ops.shape[0]):
        _execute(ops[i], reals + 32 * i, step, counters + 64 * i, own, worker, workers)
        barrier(gate, workers)


@driver
def run_timed(
    ops: Any,
    reals: int,
    step: Any,
    counters: int,
    scratch: int,
    scratch_bytes: int,
    times: Any,
    gate: int,
    worker: int,
    workers: int,
) -> None:
    """As ``run``; times: (workers, n, 3) int64 nanoseconds: begin and end by the wall, and CPU time, without the barrier's."""
    own = scratch + worker * scratch_bytes
    for i in range(ops.shape[0]):
        times[worker, i, 0] = wall_nanoseconds()
        before = thread_nanoseconds()
        _execute(ops[i], reals + 32 * i, step, counters + 64 * i, own, worker, workers)
        times[worker, i, 2] = thread_nanoseconds() - before
        times[worker, i, 1] = wall_nanoseconds()
        barrier(gate, workers)


@driver
def _execute(op: Any, real: int, step: Any, counter: int, own: int, worker: int, workers: int) -> None:
    """One op, this worker's share."""
    code = op[0]
    if code == PREPARE:
        prepare(op, real, step, counter, own, worker, workers)
    elif code == MATMUL:
        matmul(op, real, step, counter, own, worker, workers)
    elif code == ROPE_STORE:
        rope_store(op, real, step, counter, own, worker, workers)
    elif code == ATTEND:
        attend(op, real, step, counter, own, worker, workers)
