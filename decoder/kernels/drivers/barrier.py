"""Where the team meets: a counter and a generation, on two cache lines."""

from __future__ import annotations

from pagemill.decoder.kernels.calls import atomic_add, driver, load_acquire, pause, store_release, yield_core

SPINS_BEFORE_YIELD = 4000  # a few tens of microseconds: longer than any healthy wait, shorter than a scheduler's slice


@driver
def barrier(gate: int, workers: int) -> None:
    """Return when all workers have come.  gate: address of int64[16]: [0] arrived, [8] generation."""
    generation = load_acquire(gate + 64)
    if atomic_add(gate, 1) == workers - 1:
        store_release(gate, 0)  # before the generation moves: a quick worker is at the next barrier at once
        store_release(gate + 64, generation + 1)
        return
    spins = 0
    while load_acquire(gate + 64) == generation:
        pause()  # the other thread of this core gets its cycles
        spins += 1
        if spins > SPINS_BEFORE_YIELD:
            yield_core()
