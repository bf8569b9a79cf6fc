"""What this machine's cores and memory can do at best: products of registers with themselves, and a plain read of memory."""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from collections.abc import Callable

import numpy as np

from pagemill.decoder.kernels.compile import Emit, compile_kernel
from pagemill.decoder.kernels.isa import Isa
from pagemill.decoder.kernels.memory import address, aligned
from pagemill.decoder.kernels.tiles.dots import dot_codes
from pagemill.decoder.kernels.tiles.emit import I8, I32, V16F, V16I, Emitter, Value, vector

SUMS = 12
"""Independent sums: more than the latency of a product times its throughput."""
UNROLL = 4
LOOPS = 2_000_000
READ_BYTES = 1 << 30
RUNS = 7
OPERATIONS = {"int8": 2 * 64, "bf16": 2 * 32, "f32": 2 * 16}
"""Of one vector product: a multiplication and an addition each."""

Product = Callable[[Emitter, Value, Value], Value]


def _int8(e: Emitter, total: Value, x: Value) -> Value:
    codes = e.bits(x, vector(I8, 64))  # families but vnni take bytes, not the int32 lanes that they are summed in
    # where the sum is an instruction of its own, a product of two constants would be taken out of the loop
    signed = codes if e.isa.dot in ("vnni", "sdot") else e.bits(total, vector(I8, 64))
    return dot_codes(e, total, [codes], [signed], 8 if e.isa.dot == "vnni" else 4)


def _bf16(e: Emitter, total: Value, x: Value) -> Value:
    return e.dot_bf16(total, x, x)


def _f32(e: Emitter, total: Value, x: Value) -> Value:
    return e.fma(e.bits(x, V16F), e.bits(x, V16F), total)


PRODUCTS: dict[str, tuple[Product, Value]] = {"int8": (_int8, V16I), "bf16": (_bf16, V16F), "f32": (_f32, V16F)}


def peaks(isa: Isa, threads: int) -> dict[str, float]:
    """Operations per second of each kind of product that the CPU has, and bytes per second read from memory."""
    found = {}
    for name, (product, kind) in PRODUCTS.items():
        if name != "bf16" or isa.bf16:
            kernel = _kernel(f"peak_{name}", _products(product, kind), isa)
            seconds = _together(lambda thread, k=kernel: k(LOOPS, address(buffers[thread]), 0), threads)  # type: ignore[misc]
            found[name] = threads * LOOPS * UNROLL * SUMS * OPERATIONS[name] / min(seconds)
    memory = aligned(READ_BYTES, np.uint8)
    memory.fill(1)
    part = READ_BYTES // threads // 256 * 256
    read = _kernel("peak_read", _read, isa)
    seconds = _together(lambda thread: read(part // 256, address(buffers[thread]), address(memory) + thread * part), threads)
    return {**found, "dram": threads * part / statistics.median(seconds)}  # it depends on the neighbours: what is usual


buffers = [aligned(64, np.uint8) for _ in range(256)]


def _products(product: Product, kind: Value) -> Emit:
    def emit(e: Emitter, loops: Value, operand: Value, _unused: Value) -> None:
        x = e.load(operand, V16I)
        sums = [e.variable(e.zero(kind)) for _ in range(SUMS)]
        with e.loop(loops):
            for _ in range(UNROLL):
                for total in sums:
                    e.set(total, product(e, e.get(total), x))
        _store_sum(e, operand, [e.get(total) for total in sums])

    return emit


def _read(e: Emitter, lines: Value, out: Value, memory: Value) -> None:
    """lines: of 256 bytes."""
    sums = [e.variable(e.zero(V16I)) for _ in range(4)]
    with e.loop(lines) as line:
        for i, total in enumerate(sums):
            e.set(total, e.b.add(e.get(total), e.load(e.at(memory, e.scaled(line, 256)), V16I, 64 * i)))
    _store_sum(e, out, [e.get(total) for total in sums])


def _store_sum(e: Emitter, out: Value, sums: list[Value]) -> None:
    """So that nothing is optimized away."""
    whole = e.bits(sums[0], vector(I32))
    for total in sums[1:]:
        whole = e.b.xor(whole, e.bits(total, vector(I32)))
    e.store(out, whole)


def _kernel(name: str, emit: Emit, isa: Isa) -> Callable[[int, int, int], None]:
    kernel: Callable[[int, int, int], None] = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(compile_kernel(name, 3, emit, isa))
    return kernel


def _together(work: Callable[[int], object], threads: int) -> list[float]:
    """Seconds until all threads have done their part, run after run; a foreign call gives Python's lock back.

    A run takes tens of milliseconds: new threads share a core for the first few.
    """
    return [_run_together(work, threads) for _ in range(RUNS)]


def _run_together(work: Callable[[int], object], threads: int) -> float:
    start, times = threading.Barrier(threads), []

    def one(thread: int) -> None:
        start.wait()
        began = time.perf_counter()
        work(thread)
        times.append((began, time.perf_counter()))

    running = [threading.Thread(target=one, args=(thread,)) for thread in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return max(end for _, end in times) - min(began for began, _ in times)
